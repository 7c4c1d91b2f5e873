"""Time candidates in turns, so that a disturbance of the machine affects all of them."""

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from benchmarks.settings import BATCHED, FRESH, zarr_settings

_WARM_UPS = 2


@dataclass(frozen=True, slots=True)
class Candidate:
    name: str
    call: Callable[[], Any]
    pipeline: str = BATCHED
    ndbuffer: str = FRESH
    is_right: Callable[[Any], bool] = lambda result: True


@dataclass(slots=True)
class Times:
    """Seconds of each repetition."""

    seconds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def minimum(self) -> float:
        return min(self.seconds)

    def percentile(self, percent: int) -> float:
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) * percent // 100, len(ordered) - 1)]

    @property
    def spread(self) -> float:
        """The range of the middle half, divided by the median."""
        return (self.percentile(75) - self.percentile(25)) / self.median


def interleave(
    candidates: Sequence[Candidate],
    rounds: int,
    *,
    warm_ups: int = _WARM_UPS,
    turn_seconds: float = 0.0,
) -> dict[str, Times]:
    """Time each candidate once a round; each round starts with another one.

    The results of the warm-ups are checked. All candidates drop a result after it is timed, so no
    figure includes the time to free memory.

    Parameters
    ----------
    turn_seconds : float
        If 0, a turn is one call. Otherwise it is one call that is not timed, which warms the
        caches, and then calls for so many seconds. The time of the turn is their mean.
    """
    times = {candidate.name: Times() for candidate in candidates}
    with _without_collector():
        for _ in range(warm_ups):
            for candidate in candidates:
                _check(candidate)
        for number in range(rounds):
            first = number % len(candidates)
            for candidate in [*candidates[first:], *candidates[:first]]:
                times[candidate.name].seconds.append(_turn(candidate, turn_seconds))
    return times


def _check(candidate: Candidate) -> None:
    with zarr_settings(pipeline=candidate.pipeline, ndbuffer=candidate.ndbuffer):
        result = candidate.call()
    if not candidate.is_right(result):
        raise AssertionError(f"{candidate.name}: the data came back wrong")


def _turn(candidate: Candidate, seconds: float) -> float:
    with zarr_settings(pipeline=candidate.pipeline, ndbuffer=candidate.ndbuffer):
        if seconds == 0.0:
            return _time(candidate)
        candidate.call()
        times: list[float] = []
        while sum(times) < seconds:
            times.append(_time(candidate))
        return statistics.mean(times)


def _time(candidate: Candidate) -> float:
    start = time.perf_counter()
    result = candidate.call()
    seconds = time.perf_counter() - start
    del result
    return seconds


@contextmanager
def _without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
