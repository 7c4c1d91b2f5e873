"""A connection that is closed as idle at any moment of a request: nothing is lost of it.

A request and the closing are each a thread, and one of them stops before its first line, before its
second line, and so on, while the other one runs as far as it gets.
"""

import asyncio
import inspect
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import FrameType
from typing import Any

import pytest

from tests.conftest import address_of
from tests.eventually import eventually
from tests.values import as_buffer
from ucxstore import UcxStore
from ucxstore.client import connections
from ucxstore.cluster import cluster, connecting, gather, member, membership
from ucxstore.server import Server

# Whose lines are stopped at: they take connections, make them, and close them.
FILES = {
    module.__file__ for module in (connections, cluster, connecting, gather, member, membership)
}

KEY, VALUE = "c/0", b"value"

# How long a thread may take to come to its end, or to a lock that the stopped one holds.
BLOCKED_SECONDS = 0.03
LONG = 60.0


class Stopped:
    """A function in a thread of its own, which stops before one of its lines.

    `steps` counts the lines before which it would have stopped.
    """

    def __init__(self, function: Callable[[], Any], line: int) -> None:
        self.steps = 0
        self.result: Any = None
        self._function = function
        self._line = line
        self._arrived, self._go_on = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        assert self._arrived.wait(LONG)

    def finish(self) -> Any:
        self._go_on.set()
        self._thread.join(LONG)
        assert not self._thread.is_alive()
        if isinstance(self.result, Exception):
            raise self.result
        return self.result

    def _run(self) -> None:
        sys.settrace(self._enter)
        try:
            self.result = self._function()
        except Exception as error:
            self.result = error
        finally:
            sys.settrace(None)
            self._arrived.set()

    def _enter(self, frame: FrameType, event: str, _: Any) -> Any:
        return self._at_line if frame.f_code.co_filename in FILES else None

    def _at_line(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            self.steps += 1
            if self.steps == self._line:
                self._arrived.set()
                assert self._go_on.wait(LONG)
        return self._at_line


class Beside:
    """A function in a thread, which may have to wait for the stopped one."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._failure: Exception | None = None
        self._function = function
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        self._thread.join(BLOCKED_SECONDS)

    def finish(self) -> None:
        self._thread.join(LONG)
        assert not self._thread.is_alive()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            self._function()
        except Exception as error:
            self._failure = error


@pytest.fixture
def servers() -> Iterator[list[Server]]:
    with ExitStack() as stack:
        yield [stack.enter_context(Server("memory://", local=False)) for _ in range(2)]


@pytest.fixture
def store(servers: list[Server]) -> Iterator[UcxStore]:
    with UcxStore(address_of(servers), local="off", network="tcp") as store:
        store.set_sync(KEY, as_buffer(VALUE))
        yield store


def close_all() -> None:
    """Close what is idle, as it would be in an hour."""
    connections.close_idle(time.monotonic() + 3600)


def get(store: UcxStore) -> None:
    value = store.get_sync(KEY)
    assert value is not None
    assert value.to_bytes() == VALUE


def get_in_a_loop(store: UcxStore) -> None:
    assert asyncio.run(store.getsize(KEY)) == len(VALUE)


def put(store: UcxStore) -> None:
    """Write metadata, which goes to both servers."""
    store.set_sync("zarr.json", as_buffer(b"{}"))


def ping(store: UcxStore) -> None:
    store.ping_sync()


USES = pytest.mark.parametrize("use", [get, get_in_a_loop, put, ping], ids=lambda use: use.__name__)


@USES
@pytest.mark.parametrize("resting", [False, True], ids=["connected", "resting"])
def test_it_is_closed_at_any_line_of_a_request(
    store: UcxStore, use: Callable[[UcxStore], None], resting: bool
) -> None:
    line = 0
    while True:
        line += 1
        if resting:
            close_all()
        else:
            ping(store)
        request = Stopped(lambda: use(store), line)
        closing = Beside(close_all)
        request.finish()
        closing.finish()
        if request.steps < line:
            break
    assert line > 20


@USES
def test_a_request_comes_at_any_line_of_the_closing(
    store: UcxStore, use: Callable[[UcxStore], None]
) -> None:
    line = 0
    while True:
        line += 1
        ping(store)
        closing = Stopped(close_all, line)
        request = Beside(lambda: use(store))
        closing.finish()
        request.finish()
        if closing.steps < line:
            break
    assert line > len(inspect.getsource(connections.close_idle).splitlines())


def test_what_is_used_is_not_closed(servers: list[Server], store: UcxStore) -> None:
    ping(store)
    close_all()
    eventually(lambda: [server.sessions for server in servers] == [0, 0])
    get(store)
    assert sum(server.sessions for server in servers) == 1
