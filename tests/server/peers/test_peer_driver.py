"""What carries out the machine of a member, with a machine that fails."""

import asyncio
import logging
import socket
from types import SimpleNamespace
from typing import Any

import pytest

from tests.eventually import eventually_async, nothing_happens_async
from ucxstore.server.peers.events import Event, Outcome, Refused, TurnCame, Unknown
from ucxstore.server.peers.names import Names
from ucxstore.server.source_thread.peer_driver import ClientChange, Contact, PeerDriver


class Source:
    """A source in memory, as far as a membership needs one."""

    def __init__(self) -> None:
        self.doubts = SimpleNamespace(lasting=1.0, tell=None)
        self.values: dict[str, bytes] = {}

    def explain(self, error: BaseException) -> str:
        return str(error)

    async def get(self, key: str, part: None) -> object:
        value = self.values.get(key)
        return None if value is None else SimpleNamespace(buffer=value)

    async def put(self, key: str, value: Any, *, if_absent: bool) -> str:
        self.values[key] = bytes(value)
        return ""

    async def list_reserved(self) -> list[str]:
        return list(self.values)

    async def remove(self, keys: list[str]) -> None:
        for key in keys:
            self.values.pop(key, None)


class Storage:
    """A cache, of which it is told until when it may answer."""

    def __init__(self) -> None:
        self.until = 0

    def set_lease_end(self, until: int) -> None:
        self.until = until

    def begin_asking(self, *_: object) -> None: ...

    def end_asking(self, *_: object) -> None: ...

    def forget_all(self) -> None: ...


class Run:
    """A member, which is alone, and whose machine fails when a test says so."""

    def __init__(self) -> None:
        self.storage = Storage()
        kind: Any = PeerDriver
        self.members: PeerDriver = kind(
            Source(), self.storage, shared=True, asks=False, patience=5.0
        )
        self.told: list[Outcome] = []

    async def join(self) -> None:
        self.members.start()
        self.members.join(Contact(("127.0.0.1",), 1, b""), 0.0)
        async with asyncio.timeout(5.0):
            machine = self.members.machine
            await eventually_async(lambda: machine.state.phase == "member", pause=0.01)

    def ask(self, key: str) -> ClientChange:
        def reply(outcome: Outcome, keep: bool) -> None:
            assert not keep
            self.told.append(outcome)

        return self.members.change(Names(frozenset({key})), b"v", reply)

    def break_machine(self) -> None:
        def handle(event: Event, now: float) -> list[object]:
            raise RuntimeError("the machine is at a loss")

        self.members.machine.handle = handle  # type: ignore[assignment, method-assign]


async def test_a_server_whose_machine_fails_relies_on_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    run = Run()
    await run.join()
    ours, theirs = socket.socketpair()
    run.members.adopt(theirs)
    await nothing_happens_async(0.05)
    sent, waiting = run.ask("k"), run.ask("k")
    async with asyncio.timeout(5.0):
        assert await sent.is_due()
    assert sent.goes()
    assert sent.may_go_on()
    assert run.storage.until > 0
    run.break_machine()
    with caplog.at_level(logging.ERROR, "ucxstore.server"):
        run.members.feed(TurnCame(1))
    assert run.storage.until == 0
    assert [type(one) for one in run.told] == [Unknown, Unknown]
    assert not sent.may_go_on()
    assert not await waiting.is_due()
    assert "at a loss" in caplog.text
    await nothing_happens_async(0.05)
    ours.settimeout(5.0)
    assert ours.recv(100) == b"", "its peers shut it out, and need not wait for its silence"
    ours.close()

    # Nor does it begin anew.
    run.told.clear()
    later = run.ask("l")
    assert [type(one) for one in run.told] == [Refused]
    assert not await later.is_due()
    assert run.members.trouble
    ours, theirs = socket.socketpair()
    run.members.adopt(theirs)
    await nothing_happens_async(0.05)
    assert ours.recv(100) == b""
    ours.close()
    sent.end(Unknown())
    assert run.storage.until == 0
    assert len(caplog.records) == 1
    async with asyncio.timeout(0.5):
        await run.members.leave()


async def test_a_server_whose_actions_fail_relies_on_nothing() -> None:
    run = Run()
    await run.join()

    def fail(*_: object) -> None:
        raise MemoryError

    run.storage.begin_asking = fail  # type: ignore[method-assign]
    run.ask("k")
    assert run.storage.until == 0
    assert [type(one) for one in run.told] == [Unknown]
    await run.members.leave()
