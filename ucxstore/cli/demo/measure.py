"""Speed of a transfer, beside ``np.copyto``."""

import statistics
import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

REPEATS = 5


def median_rate(action: Callable[[], object], nbytes: int) -> float:
    """Return GB/s of an action that moves `nbytes`: the median of a few runs.

    What the action returns is dropped within the time that is measured: giving memory back is
    part of what using it costs.
    """
    seconds = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - start)
    return nbytes / statistics.median(seconds) / 1e9


def copy_rates(source: npt.NDArray[np.float32]) -> tuple[float, float]:
    """Return GB/s of ``np.copyto`` into a new array, and into one that was used before."""
    used = source.copy()
    fresh_rate = median_rate(lambda: np.copyto(np.empty_like(source), source), source.nbytes)
    return fresh_rate, median_rate(lambda: np.copyto(used, source), source.nbytes)
