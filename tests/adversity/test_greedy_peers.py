"""Peers that take what a server has for all: none of them keeps the others out."""

import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.adversity.conftest import StartServer
from tests.adversity.transfers import as_buffer
from tests.eventually import eventually
from ucxstore import ConnectError, UcxStore
from ucxstore.address import Address
from ucxstore.client.connect import Greeting
from ucxstore.server import Server
from ucxstore.server.acceptor import HANDSHAKE_SECONDS
from ucxstore.server.shortage import RESERVED_FILES

SILENT = 300

# Seconds for a handshake: it takes some 0.05 s behind that many, who are waited for up to 30.
PROMPT = 5.0


@contextmanager
def silent_peers(server: Server, kind: str, count: int = SILENT) -> Iterator[list[socket.socket]]:
    """Connect that often, and say nothing."""
    [place] = Address.parse(server.address).servers
    family, name = socket.AF_INET, (place.host, place.port)
    if kind == "unix":
        with Greeting(place, None, 20.0) as greeting:
            family, name = socket.AF_UNIX, greeting.welcome.socket
    with ExitStack() as stack:
        peers = []
        for _ in range(count):
            peer = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
            peer.settimeout(20)
            peer.connect(name)
            peers.append(peer)
        yield peers


def goes_on(address: str, local: str) -> None:
    """A client is served, and its handshake waits for nobody."""
    [place] = Address.parse(address).servers
    begun = time.monotonic()
    with Greeting(place, None, PROMPT):
        assert time.monotonic() - begun < PROMPT
    # UCX, for which other peers do not matter, may take longer to start on a busy machine.
    patience = PROMPT if local == "auto" else HANDSHAKE_SECONDS / 2
    with UcxStore(address, local=local, connect_timeout=patience) as store:
        store.set_sync("k", as_buffer(b"value"))
        found = store.get_sync("k")
        assert found is not None
        assert found.to_bytes() == b"value"


@pytest.mark.parametrize("kind", ["tcp", "unix"])
@pytest.mark.parametrize("local", ["ucx", "auto"])
def test_silent_connections(kind: str, local: str) -> None:
    with Server("memory://", local=True) as server, silent_peers(server, kind):
        goes_on(server.address, local)
        eventually(lambda: server.stats()["turned_away"] >= SILENT - 256)


def test_the_most_silent_one_goes_and_is_told() -> None:
    with Server("memory://") as server, silent_peers(server, "tcp") as peers:
        eventually(lambda: server.stats()["turned_away"] >= SILENT - 256)
        assert b"silent for longest" in peers[0].recv(4096)
        assert peers[0].recv(4096) == b""
        peers[-1].setblocking(False)
        with pytest.raises(BlockingIOError):
            peers[-1].recv(1)


def test_no_descriptors_for_another_client(start_server: StartServer) -> None:
    """It is told which limit it is, and the server goes on."""
    server = start_server()
    pid = server.process.pid
    _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    with UcxStore(server.address, local="ucx") as first:
        first.set_sync("k", as_buffer(b"value"))
        used = sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (used + RESERVED_FILES // 2, hard))
        with (
            UcxStore(server.address, local="ucx", ucx={"TCP_TX_SEG_SIZE": "200K"}) as other,
            pytest.raises(ConnectError, match=r"files .* may have open .*ulimit -n"),
        ):
            other.get_sync("k")
        assert first.get_sync("k") is not None
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (hard, hard))
    goes_on(server.address, "ucx")
