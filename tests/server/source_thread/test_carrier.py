"""The thread that carries out changes, with a membership that follows a script."""

import asyncio
import logging
import queue
import socket
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from obstore.store import MemoryStore

from tests.server.sources.test_cache import get, put
from ucxstore import UcxStore
from ucxstore.server import Server
from ucxstore.server.peers.events import Ended, Event, NotSent, Outcome, Refused, TurnCame
from ucxstore.server.peers.names import Names
from ucxstore.server.source_thread.carrier import Carrier
from ucxstore.server.source_thread.peer_driver import ClientChange

TICKET = 7
PUT = ("put", "k", np.zeros(1, np.uint8), False)


class Storage:
    """What the core is to a carrier: it makes one call, and is told what has become of it."""

    def __init__(self) -> None:
        self.told: queue.SimpleQueue[tuple[object, ...]] = queue.SimpleQueue()
        self._ours, self._theirs = socket.socketpair()
        self._calls: list[tuple[object, ...]] = []

    def make(self, *call: object) -> None:
        self._calls.append((TICKET, ("session", 1), call))
        self.wake()

    def take(self) -> list[tuple[object, ...]]:
        self._theirs.recv(100)
        calls, self._calls = self._calls, []
        return calls

    def fileno(self) -> int:
        return self._theirs.fileno()

    def wake(self) -> None:
        self._ours.send(b"1")

    def close(self, why: str) -> None: ...

    def moved(self, ticket: int) -> bool:
        return True

    def failed(self, *about: object) -> None:
        self.told.put(("failed", *about))

    def stored(self, *about: object) -> bool:
        self.told.put(("stored", *about))
        return False

    def end(self) -> None:
        self._ours.close()
        self._theirs.close()


class Source:
    """A source that stores at once, unless nobody wants that any more."""

    def __init__(self) -> None:
        self.doubts = SimpleNamespace(close=lambda: None)

    def explain(self, error: BaseException) -> str:
        return str(error)

    async def put(
        self, key: str, value: object, *, if_absent: bool, wanted: Callable[[], None]
    ) -> str:
        wanted()
        return "tag"


class Members:
    """A membership that does what a test says."""

    trouble = ""

    def __init__(self) -> None:
        self.machine = self
        self.may_be_sent = True
        self.turns = self.heard_of = 0
        self.one: ClientChange
        self.on_turn: Callable[[], None] = lambda: self.one.go()
        self.on_end: Callable[[Outcome], None] = lambda outcome: None

    def start(self) -> None: ...

    async def leave(self) -> None: ...

    def heard(self) -> None:
        self.heard_of += 1

    def may_send(self, change: int, now: float) -> bool:
        return self.may_be_sent

    def change(
        self, names: Names, value: object, reply: Callable[[Outcome, bool], None]
    ) -> ClientChange:
        self.one = ClientChange(self, 1, reply)
        self.one.come()
        return self.one

    def feed(self, event: Event) -> None:
        match event:
            case TurnCame():
                self.turns += 1
                self.on_turn()
            case Ended(_, outcome):
                self.on_end(outcome)

    def later(self, outcome: Outcome) -> None:
        """Tell the client once the carrier waits for that."""
        asyncio.get_running_loop().call_later(0.05, lambda: self.one.over(outcome, keep=True))


class Run:
    def __init__(self) -> None:
        self.storage, self.members = Storage(), Members()
        kind: Any = Carrier
        self.carrier = kind(self.storage, Source(), 5.0, self.members)

    def told(self) -> tuple[object, ...]:
        self.storage.make(*PUT)
        return self.storage.told.get(timeout=2.0)


@pytest.fixture
def run() -> Iterator[Run]:
    run = Run()
    yield run
    run.carrier.close(5.0)
    assert not run.carrier.is_alive
    run.storage.end()


def test_a_change_that_is_refused_once_it_was_not_sent_is_told_so(run: Run) -> None:
    members = run.members
    members.may_be_sent = False
    members.on_end = lambda outcome: members.later(Refused("it took too long"))
    assert run.told() == ("failed", TICKET, "it took too long")
    assert not members.heard_of, "the source was not asked, so it has answered nothing"


def test_a_change_that_is_not_sent_once_is_sent_when_it_is_due_again(run: Run) -> None:
    members = run.members
    members.may_be_sent = False

    def ended(outcome: Outcome) -> None:
        if isinstance(outcome, NotSent):
            members.may_be_sent = True
            members.one.come()
        else:
            members.later(outcome)

    members.on_end = ended
    assert run.told() == ("stored", TICKET, True, "tag", True)
    assert members.turns == 2


def test_a_change_that_became_due_twice_before_it_was_sent_is_told_as_made(run: Run) -> None:
    members = run.members

    def turn() -> None:
        members.one.come()  # shut out and joined anew, while it waited for its turn
        members.one.go()

    members.on_turn = turn
    members.on_end = lambda outcome: members.later(outcome)
    assert run.told() == ("stored", TICKET, True, "tag", True)
    assert members.turns == 1


def test_each_request_is_logged_where_everything_is(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "ucxstore.server")
    with Server(MemoryStore()) as server, UcxStore(server.address) as store:
        put(store, "k", b"v")
        assert get(store, "missing") is None
    lines = [line for line in caplog.records if getattr(line, "event", "") == "source_request"]
    assert {line.levelname for line in lines} == {"DEBUG"}
    told = {(line.detail, line.key) for line in lines}  # type: ignore[attr-defined]
    assert {("put", "k"), ("get", "missing")} <= told
    assert all(0 <= line.seconds < 60 for line in lines)  # type: ignore[attr-defined]
