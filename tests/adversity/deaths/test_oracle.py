"""The matrix can fail: wrong answers, memory that is written to late, and leftovers are noticed."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from tests.adversity.deaths import carrying_out, places, planted
from tests.adversity.deaths.cases import GETS, Case, Kind, Lane
from tests.adversity.deaths.places import Places
from tests.adversity.deaths.processes import Fuse, Held
from tests.adversity.deaths.requests import AFTER, NEW, OLD, UNTOUCHED, Memory, pattern
from tests.adversity.nursery import ROOT
from tests.eventually import nothing_happens
from tests.stopping import stop

SIZE = 5_000


def test_without_checksums_changed_bytes_are_a_wrong_answer(
    all_places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carrying_out, "is_checked", lambda _: False)
    flipped = Case.parse("tcp.flip.client.segment.to-client.get.memory.300000.200000")
    with pytest.raises(AssertionError, match="a wrong answer"):
        carrying_out.carry_out(flipped, all_places, has_hosts=False)
    written = Case.parse("tcp.flip.server.segment.to-server.set.memory.300000.200000")
    with pytest.raises(AssertionError, match=r"has version None, not one of \[2\]"):
        carrying_out.carry_out(written, all_places, has_hosts=False)


def test_a_hurt_that_does_not_come_is_noticed(all_places: Places) -> None:
    late = Case.parse("tcp.reset.client.request.to-server.get.memory.5000.100000")
    with pytest.raises(AssertionError, match="nothing was hurt"):
        carrying_out.carry_out(late, all_places, has_hosts=False)
    late = Case.parse("tcp.kill.client.request.to-server.get.memory.5000.100000")
    with pytest.raises(AssertionError, match="nothing was hurt"):
        carrying_out.carry_out(late, all_places, has_hosts=False)


RESET = Case.parse("tcp.reset.server.reply.to-client.get.memory.5000.10")


@pytest.fixture
def afresh(all_places: Places) -> Iterator[None]:
    """Let processes of plain TCP be new ones."""
    all_places.forget(Lane.TCP)
    yield
    all_places.forget(Lane.TCP)


@pytest.mark.parametrize(
    ("be", "said"),
    [
        (planted.is_written_to, "the caller's memory was written to after the end"),
        (planted.writes_beside, "it wrote beside the memory that it was given"),
        (planted.raises_others, "not an exception of ours: RuntimeError: not one of ours"),
        (planted.leaks, "the client: descriptors: "),
        (planted.aborts, "the client ended with -6: "),
    ],
)
def test_a_mistake_of_a_client_is_noticed(
    be: Callable[..., None],
    said: str,
    all_places: Places,
    afresh: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(places, "be_client", be)
    with pytest.raises(AssertionError, match=said):
        carrying_out.carry_out(RESET, all_places, has_hosts=False)


def test_a_descriptor_that_a_server_keeps_is_noticed(
    all_places: Places, afresh: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "be_server", planted.server_leaks)
    monkeypatch.setattr(places, "NOTICED", 1.0)
    with pytest.raises(AssertionError, match="the server: descriptors: "):
        carrying_out.carry_out(RESET, all_places, has_hosts=False)


def test_a_server_that_aborts_is_noticed(
    all_places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        carrying_out, "Fuse", lambda pid, _, after: Fuse(pid, signal.SIGABRT, after)
    )
    killed = Case.parse("local.kill.server.segment.to-client.get.memory.300000.0")
    with pytest.raises(AssertionError, match="the server ended with -6: "):
        carrying_out.carry_out(killed, all_places, has_hosts=False)


def test_lateness_is_noticed(all_places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carrying_out, "LATE", -2 * carrying_out.TIMEOUT)
    with pytest.raises(AssertionError, match="too late: "):
        carrying_out.carry_out(RESET, all_places, has_hosts=False)


@pytest.mark.parametrize("kind", [*GETS, Kind.SET_MANY])
def test_one_byte_is_noticed(kind: Kind) -> None:
    memory = Memory(kind, SIZE)
    memory.put(OLD)
    assert memory.has(OLD)
    assert not memory.has(NEW)
    assert memory.gaps_are(UNTOUCHED)
    memory.views[-1][..., -1] ^= 1
    assert not memory.has(OLD)
    assert memory.gaps_are(UNTOUCHED)
    memory.fill(AFTER)
    assert memory.is_all(AFTER)
    assert not memory.gaps_are(UNTOUCHED)
    memory.views[0][0] ^= 1
    assert not memory.is_all(AFTER)


@pytest.mark.parametrize("kind", [Kind.GET, Kind.GET_MANY, Kind.GET_STRIDED])
@pytest.mark.parametrize("side", [-1, 1])
def test_a_byte_beside_the_memory_is_noticed(kind: Kind, side: int) -> None:
    memory = Memory(kind, SIZE)
    view = memory.views[0]
    beside = view.__array_interface__["data"][0] + (-1 if side < 0 else view.shape[-1])
    whole = view.base
    assert whole is not None
    whole.reshape(-1)[beside - whole.__array_interface__["data"][0]] ^= 1
    assert not memory.gaps_are(UNTOUCHED)


def test_each_word_of_a_value_says_where_it_belongs() -> None:
    words = np.concatenate([pattern(80_000, version).view("<u8") for version in (OLD, NEW, 12)])
    assert len(np.unique(words)) == len(words)


def test_a_descriptor_that_is_left_is_noticed() -> None:
    before = Held.now()
    assert Held.now().beyond(before) == ""
    left = os.dup(0)
    try:
        assert Held.now().beyond(before).startswith("descriptors: ")
    finally:
        os.close(left)


WATCHES = """
from tests.adversity.deaths.stall import Stall
with Stall() as stall:
    print("watches", flush=True)
    input()
print(stall.longest)
"""


def test_a_process_that_was_stopped_has_stood_still() -> None:
    command = [sys.executable, "-c", WATCHES]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "watches\n"
        stop(process.pid)
        nothing_happens(0.5)
        os.kill(process.pid, signal.SIGCONT)
        said, _ = process.communicate("\n", 60)
    assert float(said) > 0.3
