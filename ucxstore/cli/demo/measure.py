"""Measure the speed of a transfer, and of ``np.copyto`` for comparison."""

import statistics
import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

REPEATS = 5


def median_rate(action: Callable[[], object], nbytes: int) -> float:
    """Return the median speed of a few runs of an action that moves `nbytes`, in GB/s.

    The time includes freeing what the action returns.
    """
    seconds = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - start)
    return nbytes / statistics.median(seconds) / 1e9


def copy_rates(source: npt.NDArray[np.float32]) -> tuple[float, float]:
    """Return the GB/s of ``np.copyto`` into a new array, and into one that was used before."""
    used = source.copy()
    fresh_rate = median_rate(lambda: np.copyto(np.empty_like(source), source), source.nbytes)
    return fresh_rate, median_rate(lambda: np.copyto(used, source), source.nbytes)
