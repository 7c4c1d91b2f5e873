"""Servers and clients that run out of memory, descriptors, mappings, threads or disk, at any call.

Neither of the two ends or hangs; whatever fails is an exception that says so; and once there is
enough again, the same server serves a new client.
"""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.adversity.scarcity import Caller, Case, Family, Kind, Outcome
from tests.durability.recording import preload

SOURCE = Path(__file__).with_name("scarcity.c")
PLENTY = 10**9

CORE = Caller.CORE
# What Python asks for is a server's, too: its sockets and the accepting thread.
ALL = Caller.CORE | Caller.UCX | Caller.OTHERS

# UCX's own allocations are left out: it does not look whether it gets memory, or ends the process
# by ucs_fatal(). Its descriptors, mappings and threads are in, but for FATAL_IN_UCX.
CASES = [
    Case(victim, way, storage, int(kind), int(callers))
    for kind, callers, ways in (
        (Kind.MEMORY, CORE, ("local", "shm", "tcp")),
        (Kind.DESCRIPTORS, ALL, ("local", "shm", "tcp")),
        (Kind.MAPPINGS, CORE | Caller.UCX, ("local", "shm")),
        (Kind.THREADS, CORE | Caller.OTHERS, ("local", "shm")),
    )
    for way in ways
    for victim, storage in (("server", "memory"), ("client", "memory"), ("server", "directory"))
] + [Case("server", way, "directory", int(Kind.DISK), int(CORE)) for way in ("local", "shm")]


def _name(case: Case) -> str:
    return f"{case.victim}-{case.way}-{case.storage}-{Kind(case.kind).name}"


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Family]:
    library = preload(SOURCE, tmp_path_factory.mktemp("scarcity"), "-l:libstdc++.so.6")
    with Family(library) as family:
        yield family


def check(outcome: Outcome) -> None:
    assert not outcome.faults, "\n".join([outcome.report, *outcome.errors, *outcome.faults])


# Some of all, always the same ones; each takes a second.
SAMPLE = random.Random(15).sample(CASES, 8)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("case", SAMPLE, ids=_name)
def test_some_calls(family: Family, case: Case) -> None:
    counted = family.run(case, PLENTY)
    check(counted)
    assert counted.failed == 0
    assert counted.counted > 0
    outcome = family.run(case, random.Random(_name(case)).randint(1, counted.counted))
    check(outcome)


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("failures", [1, 3])
@pytest.mark.parametrize("case", CASES, ids=_name)
def test_every_place_that_calls(family: Family, case: Case, failures: int) -> None:
    """A call fails at each place once: a place is a call, and the calls that have led to it."""
    family.forget()
    places = 0
    faults = []
    while (outcome := family.run(case, 0, failures)).failed or outcome.faults:
        places += 1
        if outcome.faults:
            faults.append("\n".join([outcome.report, *outcome.errors, *outcome.faults]))
    assert not faults, f"{len(faults)} of {places} places:\n" + "\n\n".join(faults)
    assert places > 0
