"""Writers, removers and readers of an object store that carries requests out late, or not at all.

Each value is written once. So what is read names its write, and the rule is easy to check: no read
returns what was over before a change began that was acknowledged before the read began; and what
is said to have failed is never read.
"""

import itertools
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from tests.eventually import nothing_happens
from tests.server.sources.s3_objects import Answer, Rule, S3Objects, s3_objects
from tests.server.sources.test_cache import get, put
from tests.server.sources.test_order_of_writes import delete
from ucxstore import UcxStore
from ucxstore.base import errors
from ucxstore.server import Server
from ucxstore.server.sources.doubts import Doubts

KEYS = ["a", "b", "c/d", "c/e"]
SECONDS = 6.0
TIMEOUT = 0.4
LASTING = 5.0


@dataclass
class Change:
    """A write, or a removal."""

    begun: int
    ended: int | None = None  # for its caller
    acknowledged: bool = False
    failed: bool = False  # for sure


class Histories:
    """What was done to each key, and whether reads fit to it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._clock = itertools.count(1)
        nothing = Change(0, 0, acknowledged=True)
        self._writes: dict[bytes | None, Change] = {}
        self._changes = {key: [nothing] for key in KEYS}
        self._removals = {key: [nothing] for key in KEYS}
        self.faults: list[str] = []
        self.counts = {"acknowledged": 0, "unknown": 0, "failed": 0, "reads": 0}

    def tick(self) -> int:
        return next(self._clock)

    def begin(self, key: str, value: bytes | None) -> Change:
        with self._lock:
            change = Change(self.tick())
            self._changes[key].append(change)
            if value is None:
                self._removals[key].append(change)
            else:
                self._writes[value] = change
            return change

    def end(self, change: Change, how: str) -> None:
        with self._lock:
            change.ended = self.tick()
            change.acknowledged = how == "acknowledged"
            change.failed = how == "failed"
            self.counts[how] += 1

    def check(self, key: str, value: bytes | None, begun: int) -> None:
        with self._lock:
            self.counts["reads"] += 1
            made = [self._writes[value]] if value is not None else self._removals[key]
            if not any(self._may_be_read(key, one, begun) for one in made):
                self.faults.append(f"{key}: {value!r} was read, begun at {begun}: {made[-1]}")

    def _may_be_read(self, key: str, one: Change, begun: int) -> bool:
        if one.failed:
            return False
        return one.ended is None or not any(
            later.acknowledged
            and later.ended is not None
            and one.ended < later.begun
            and later.ended < begun
            for later in self._changes[key]
        )


class Fates:
    """What becomes of each request: most are carried out, some late, some without an answer."""

    def __init__(self, bucket: S3Objects, chance: random.Random) -> None:
        self._chance = chance
        self._ask = bucket.rule_of
        self._timers: list[threading.Timer] = []
        bucket.rule_of = self.rule_of  # type: ignore[method-assign]

    def rule_of(self, method: str, key: str) -> Rule | None:
        self._ask(method, key)
        fate = self._chance.random()
        if method not in ("PUT", "DELETE") or fate > 0.35:
            return None
        rule = Rule(self._chance.choice(list(Answer)) if method == "PUT" else Answer.SENT)
        wait = self._chance.choice([0.0, 0.1, 2 * TIMEOUT, 4 * TIMEOUT])
        timer = threading.Timer(wait, rule.goes_on.set)
        timer.daemon = True
        timer.start()
        return rule


@pytest.fixture
def lasting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes are in doubt for longer than the store holds any back."""
    monkeypatch.setattr("ucxstore.server.sources.object_store.Doubts", lambda _: Doubts(LASTING))


@pytest.mark.usefixtures("lasting")
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in (1, 2))]
)
def test_what_was_given_up_never_comes_back(seed: int) -> None:
    histories = Histories()
    until = time.monotonic() + SECONDS
    names = itertools.count()

    def change(store: UcxStore, chance: random.Random) -> None:
        while time.monotonic() < until:
            key = chance.choice(KEYS)
            value = None if chance.random() < 0.15 else b"%d" % next(names)
            begun = histories.begin(key, value)
            try:
                if value is None:
                    delete(store, key)
                else:
                    put(store, key, value)
            except errors.UnknownOutcomeError:
                histories.end(begun, "unknown")
            except errors.UcxStoreError:
                histories.end(begun, "failed")
            else:
                histories.end(begun, "acknowledged")

    def read(store: UcxStore, chance: random.Random) -> None:
        while time.monotonic() < until + 4 * TIMEOUT:
            key = chance.choice(KEYS)
            begun = histories.tick()
            try:
                value = get(store, key)
            except errors.UcxStoreError:
                continue
            histories.check(key, value, begun)
            nothing_happens(0.002)

    with ExitStack() as stack:
        bucket = stack.enter_context(s3_objects())
        Fates(bucket, random.Random(seed))
        server = stack.enter_context(Server(bucket.store(), source_timeout=TIMEOUT))
        stores = [
            stack.enter_context(UcxStore(server.address, timeout=timeout, integrity=True))
            for timeout in (30.0, 0.3)
        ]
        stores.append(stack.enter_context(UcxStore(server.address, local="auto")))
        chances = (random.Random(f"{seed} {number}") for number in itertools.count())
        with ThreadPoolExecutor(6) as pool:
            tasks = [pool.submit(change, store, next(chances)) for store in stores]
            tasks += [pool.submit(read, store, next(chances)) for store in stores]
            for task in tasks:
                task.result()
    assert histories.faults == []
    assert all(histories.counts[one] for one in ("acknowledged", "unknown", "reads"))
