"""Many clients of one server, on a machine that has much else to do."""

import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests import proc
from tests.adversity.nursery import Child, Nursery
from tests.eventually import eventually, nothing_happens
from tests.faults.crowds import SIZE, burn, visit
from tests.proc import descriptors
from ucxstore import UcxStore
from ucxstore.base.options import UcxValue
from ucxstore.server import Server
from ucxstore.server.spawn import ServerProcess

WAYS: dict[str, tuple[str, Mapping[str, UcxValue]]] = {
    "local": ("auto", {}),
    "shared-memory": ("ucx", {}),
    "tcp": ("ucx", {"TLS": "tcp"}),
}

# Bytes that the server's allocator may keep beside what it had, in all. A hundred times less than
# what the clients' values and sessions take while they are there.
KEPT = 16 << 20

# Bytes that a few clients may leave.
LITTLE = 6 << 20

# Seconds for what a machine under load does in no time else.
PATIENCE = 250.0

type Visit = Callable[[int], Child]


def resident(server: ServerProcess) -> int:
    """Return the bytes of memory of the server's own, with what it shows to local clients."""
    return proc.resident(server, "RssAnon", "RssShmem")


@pytest.fixture
def nursery(tmp_path: Path) -> Iterator[Nursery]:
    with Nursery(tmp_path) as nursery:
        yield nursery


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("way", ["local", "shared-memory", "tcp"])
def test_all_connect_and_none_starves(nursery: Nursery, way: str) -> None:
    many, at_once, seconds = 200, 64, 60.0
    local, ucx = WAYS[way]
    with ExitStack() as stack:
        server = stack.enter_context(
            Server.spawn("memory://", ucx=ucx, ucx_shared_memory=way == "shared-memory")
        )
        with UcxStore(server.address, ucx=ucx, local=local) as store:
            store.ping_sync()
        eventually(lambda: _settled(server))
        had, open_files = resident(server), descriptors(server.pid)

        def start(number: int) -> Child:
            child = nursery.start(visit, server.address, number, ucx, local)
            stack.callback(child.close)
            return child

        clients = [start(number) for number in range(many)]
        for client in clients:
            client.hear(PATIENCE)
        for _ in range(2 * (os.cpu_count() or 1)):
            stack.callback(nursery.start(burn).close)
        connected = []
        for first in range(0, many, at_once):
            together = clients[first : first + at_once]
            for client in together:
                client.channel.send("go")
            connected += [client.hear(PATIENCE) for client in together]
        until = time.monotonic() + seconds
        for client in clients:
            client.channel.send(until)
        rounds = sorted(client.hear(PATIENCE) for client in clients)
        most = resident(server)
        for client in clients:
            client.channel.send("leave")
        for client in clients:
            assert client.hear(PATIENCE) == "gone"
        for client in clients:
            assert client.wait(PATIENCE) == 0, client.output
        median = statistics.median(rounds)
        print(
            f"\n{way}: {many} connected, slowest after {max(connected):.1f} s; "
            f"rounds: least {rounds[0]}, median {median:g}, most {rounds[-1]}"
        )
        assert rounds[0] >= median / 2
        assert median >= 5
        assert most > had + many * SIZE / 2
        eventually(lambda: descriptors(server.pid) <= open_files, PATIENCE, 0.1)
        eventually(lambda: resident(server) <= had + KEPT, PATIENCE, 0.1)
        print(
            f"descriptors: {open_files}, then {descriptors(server.pid)}; resident: "
            f"{had >> 10} KiB, {most >> 10} KiB, then {resident(server) >> 10} KiB"
        )


def test_what_sessions_took_goes_back_to_the_system() -> None:
    """UCX's buffers are some MB for each client, and glibc keeps what a process has freed."""
    with Server.spawn("memory://", network="ucx") as server:
        _visit(server, 1)
        eventually(lambda: _settled(server))
        had, open_files = resident(server), descriptors(server.pid)
        for _ in range(2):
            most = _visit(server, 12)
            assert most > had + 2 * LITTLE
            eventually(lambda: descriptors(server.pid) <= open_files)
            eventually(lambda: resident(server) < had + LITTLE, 30)


def _visit(server: ServerProcess, clients: int) -> int:
    """Connect so often, let all go, and return what the server took meanwhile."""
    with ExitStack() as stack:
        for number in range(clients):
            # Stores of one process share a connection where their options are the same.
            ucx = {"TLS": "tcp", "KEEPALIVE_INTERVAL": f"{20 + number}s"}
            store = UcxStore(server.address, ucx=ucx, local="ucx")
            stack.enter_context(store).ping_sync()
        return resident(server)


def _settled(server: ServerProcess) -> bool:
    before = resident(server), descriptors(server.pid)
    nothing_happens(0.2)
    return before == (resident(server), descriptors(server.pid))
