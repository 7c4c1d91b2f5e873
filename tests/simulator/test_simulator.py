"""The simulator finds nothing in the machine, and finds each fault that is planted in it."""

import os
import random
import time

import pytest

from tests.register import Op, is_linearizable
from tests.simulator import monitor, orders
from tests.simulator.chances import KEYS, draw, member, run, shorter_times
from tests.simulator.drills import DRILLS
from tests.simulator.faults import FAULTS
from tests.simulator.monitor import GET, MADE, MISSING, REMOVE, SET, UNKNOWN, Register
from tests.simulator.shrinking import describe, shrink
from tests.simulator.world import ViolationError
from ucxstore.server.peers import times

# A seed whose history shows each planted fault, found by `python -m tests.simulator --fault NAME`.
# What chance seldom brings about is in `drills.py`.
SEEDS = {
    "sends-untold": 4483,
    "tells-made-as-not-made": 112,
    "forgets-at-restart": 4652,
    "remembers-refused": 2,
    "tells-nobody": 0,
    "waits-for-nobody": 30,
    "keeps-at-joining": 121,
    "keeps-what-it-wrote": 0,
    "tells-new-peers-nothing": 241,
    "notes-without-asking": 0,
    "shuts-out-at-once": 182,
    "looks-no-more": 3,
    "renews-from-the-answer": 5540,
    "forgets-what-peers-changed": 64,
    "forgets-what-it-gave-up": 1485,
    "overtakes-doubts": 977,
}

# Faults that break no promise, and why the guard is there all the same.
HARMLESS = {
    "acknowledges-unchecked": (
        "whoever has shut the writer out asks for what it was told of, or has read in the note, "
        "until a change is made that began later. The first one can be carried out after that only "
        "if it has no condition, which docs/consistency.md names as what remains; there, the "
        "guard lets no client rely on a change that caches do not see"
    )
}

# Seconds of random histories: no seed is tried twice by two runs.
SHORT, LONG = 3.0, 120.0


@pytest.mark.parametrize("seed", range(20))
def test_a_random_history_is_right(seed: int) -> None:
    result = run(draw(seed), member)
    assert (result.violation, result.sure) == ("", True)
    assert result.events > 100


@pytest.mark.parametrize(
    "seconds", [SHORT, pytest.param(LONG, marks=[pytest.mark.full, pytest.mark.timeout(600)])]
)
def test_other_random_histories_are_right(seconds: float) -> None:
    until = time.monotonic() + seconds
    seed = int.from_bytes(os.urandom(4), "big")
    while time.monotonic() < until:
        result = run(draw(seed), member)
        assert not result.violation, f"python -m tests.simulator --seed {seed}"
        seed += 1


def test_each_planted_fault_is_found_or_harmless() -> None:
    assert sorted([*SEEDS, *DRILLS, *HARMLESS]) == sorted(FAULTS)


@pytest.mark.parametrize("fault", sorted([*SEEDS, *DRILLS]))
def test_a_planted_fault_is_found(fault: str) -> None:
    plan, salt = DRILLS[fault] if fault in DRILLS else (draw(SEEDS[fault]), 0)
    assert run(plan, FAULTS[fault], salt=salt).violation
    assert not run(plan, member, salt=salt).violation


def test_the_simulator_leaves_the_times_of_servers_alone() -> None:
    before = times.LATE_SECONDS, times.IDLE_SECONDS
    run(draw(0), member)
    assert (times.LATE_SECONDS, times.IDLE_SECONDS) == before == (16 * 60.0, 60.0)


@pytest.mark.full
@pytest.mark.timeout(900)
def test_a_violation_is_shrunk_to_what_shows_it() -> None:
    plan, result = shrink(draw(SEEDS["sends-untold"]), FAULTS["sends-untold"])
    assert result.violation
    assert sum(map(len, plan.clients)) < sum(map(len, draw(SEEDS["sends-untold"]).clients))
    assert f"violation: {result.violation}" in describe(plan, result)


@pytest.mark.parametrize("kind", orders.KINDS)
@pytest.mark.parametrize(
    "most", [150, pytest.param(4_000, marks=[pytest.mark.full, pytest.mark.timeout(600)])]
)
def test_all_orders_of_a_small_history_are_right(kind: str, most: int) -> None:
    for script in orders.SCRIPTS if most > 1000 else orders.SCRIPTS[:2]:
        assert orders.search(script, kind, most=most).violation == ""


def test_trying_all_orders_finds_a_planted_fault() -> None:
    found = orders.search(orders.SCRIPTS[0], "none", FAULTS["notes-without-asking"])
    assert found.violation
    assert found.trace


# One that is given up, and lands once the cache has the old value.
_GIVEN_UP = orders.Script(
    "remove and read",
    2,
    1,
    (((REMOVE, KEYS[0], 1), (GET, KEYS[0], 1), (GET, KEYS[0], 0)),),
)


@pytest.mark.parametrize("fault", ["", "forgets-what-it-gave-up"])
def test_the_end_of_a_small_history_is_judged(fault: str) -> None:
    wrong = ""
    with shorter_times():
        first = orders.State(_GIVEN_UP, FAULTS[fault] if fault else member, "late")
        first.prepare()
        for seed in range(300):
            chance, state = random.Random(seed), first
            while steps := list(state.steps()):
                state = state.take(chance.choice(steps))
            try:
                state.judge()
            except ViolationError as error:
                wrong = str(error)
    assert wrong.endswith("has an old a/0 for ever") if fault else not wrong


# ---- the monitor ----


def _history(seed: int) -> tuple[list[Op], bool]:
    """Return a random history of a register, and what the monitor says of it."""
    chance = random.Random(seed)
    register = Register()
    ops: dict[int, tuple[float, str, int]] = {}
    done: list[Op] = []
    right = True
    now, value = 0.0, MISSING
    waiting: list[int] = []
    for number in range(1, chance.randint(6, 14)):
        now += 1
        kind = chance.choice((GET, SET))
        ops[number] = now, kind, number
        register.begin(number, kind, number)
        waiting.append(number)
        while waiting and chance.random() < 0.6:
            now += 1
            one = waiting.pop(chance.randrange(len(waiting)))
            begun, kind, written = ops[one]
            if kind == GET:
                seen = value if chance.random() < 0.8 else chance.randint(0, number)
                right = right and register.read(one, seen)
                done.append(Op(begun, now, False, str(seen).encode() if seen else None))
            elif chance.random() < 0.3:
                register.answer(one, UNKNOWN)
                done.append(Op(begun, float("inf"), True, str(written).encode()))
                value = written if chance.random() < 0.5 else value
            else:
                right = right and register.answer(one, MADE)
                done.append(Op(begun, now, True, str(written).encode()))
                value = written
            if not right:
                break
        if not right:
            break
    for one in waiting:
        begun, kind, written = ops[one]
        if kind == SET:
            done.append(Op(begun, float("inf"), True, str(written).encode()))
    return done, right


def test_the_monitor_agrees_with_the_search_of_whole_histories() -> None:
    verdicts = []
    for seed in range(3000):
        history, right = _history(seed)
        assert is_linearizable(history) == right, seed
        verdicts.append(right)
    assert 300 < sum(verdicts) < 2700


def test_the_monitor_knows_adds() -> None:
    register = Register()
    register.begin(1, monitor.ADD, 1)
    register.begin(2, monitor.ADD, 2)
    assert register.answer(1, MADE)
    assert not register.copy().answer(2, MADE)
    assert register.found(2)
    register.begin(3, GET)
    assert register.read(3, 1)
    register.begin(4, monitor.REMOVE)
    register.begin(5, monitor.ADD, 5)
    assert register.answer(5, MADE)
    register.begin(6, GET)
    assert not register.copy().read(6, MISSING)
    assert register.read(6, 5)
    assert register.answer(4, MADE)
