"""Strangers at the Unix socket of a server, who do not know its secret."""

import socket
import struct
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from tests.eventually import eventually
from tests.values import as_buffer
from ucxstore import UcxStore
from ucxstore.server import Server

# Seconds for which the close of a passed connection waits. A client has half of that.
LINGER = 40


@pytest.fixture
def lingering() -> socket.socket:
    """Return a connection whose last close waits, as its peer does not read what was sent."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sock = socket.create_connection(listener.getsockname())
        peer, _ = listener.accept()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, LINGER))
    sock.setblocking(False)
    with suppress(BlockingIOError):
        while True:
            sock.send(bytes(1 << 20))
    _peers.append(peer)
    return sock


_peers: list[socket.socket] = []


def test_a_descriptor_whose_close_waits(tmp_path: Path, lingering: socket.socket) -> None:
    """20 bytes and a descriptor, and nothing else of this host gets in meanwhile."""
    path = tmp_path / "socket"
    with Server("memory://", local=True, socket=path, secret="known") as server:
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.connect(str(path))
            # Kernels that let the server refuse descriptors say so to the sender.
            with suppress(PermissionError):
                socket.send_fds(stranger, [bytes(20)], [lingering.fileno()])
            lingering.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, LINGER))
            threading.Thread(target=lingering.close, daemon=True).start()
            eventually(lambda: lingering.fileno() == -1)
            options = {"timeout": LINGER / 2, "connect_timeout": LINGER / 2, "secret": "known"}
            with UcxStore(server.address, **options) as store:
                store.set_sync("key", as_buffer(b"value"))
                assert store.stats()["lanes"] == ["local"]
        for peer in _peers:
            peer.close()
