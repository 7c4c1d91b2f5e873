"""Clients whose connections of UCX's break as they are made: run by `test_reset`."""

import ctypes
import os
import signal
import sys

from tests.adversity.servers import port_of
from tests.values import as_buffer
from ucxstore import ConnectError, Server, UcxStore

ROUNDS = 5
SECONDS = 4.0  # to connect: some of what is broken here is tried again until then
TCP = {"TLS": "tcp"}
OVER_UCX = {"local": "ucx", "ucx": TCP}
VALUE = b"value"

shim = ctypes.CDLL(os.environ.get("LD_PRELOAD"))


def fail_to_connect(address: str) -> None:
    """Connect, which must raise, in bounded time."""
    try:
        with UcxStore(address, connect_timeout=SECONDS, **OVER_UCX) as store:
            store.ping_sync()
    except ConnectError:
        return
    raise AssertionError("it was connected")


def break_connections() -> None:
    """The server lives, but its connections over UCX do not."""
    with Server("memory://", ucx=TCP) as server:
        for _ in range(ROUNDS):
            shim.break_connections(port_of(server.address))
            fail_to_connect(server.address)
            shim.mend()
        with UcxStore(server.address, **OVER_UCX) as store:
            store.set_sync("key", as_buffer(VALUE))


def break_servers() -> None:
    """Each server is killed after UCX has connected to it, before it has said so."""
    for _ in range(ROUNDS):
        with Server.spawn("memory://", ucx=TCP) as server:
            shim.break_server(port_of(server.address), server.pid)
            fail_to_connect(server.address)


def break_requests() -> None:
    """A server, which has another client, connects back to one whose connection is over."""
    other_ucx = {**TCP, "TCP_SYN_CNT": "3"}  # so that it is another connection
    with (
        Server("memory://", ucx=TCP) as server,
        UcxStore(server.address, local="ucx", ucx=other_ucx) as other,
    ):
        other.set_sync("key", as_buffer(VALUE))
        for _ in range(ROUNDS):
            shim.break_requests()
            fail_to_connect(server.address)
            shim.mend()
            found = other.get_sync("key")
            assert found is not None
            assert found.to_bytes() == VALUE


if __name__ == "__main__":
    signal.alarm(120)
    {"connections": break_connections, "servers": break_servers, "requests": break_requests}[
        sys.argv[1]
    ]()
    print(shim.mend())
