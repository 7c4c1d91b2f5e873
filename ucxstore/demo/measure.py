"""What a transfer costs: time beside ``np.copyto``, and memory as memray sees it."""

import statistics
import time
from collections.abc import Callable
from pathlib import Path

import memray
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


def peak_bytes(action: Callable[[], object], scratch: str) -> int:
    """Return the most memory that was allocated at once during an action, by any thread.

    Parameters
    ----------
    action : callable
        What it returns counts: memory that is allocated inside, and handed on.
    scratch : str
        A folder to write the trace to.
    """
    trace = Path(scratch, "trace.bin")
    with memray.Tracker(trace):
        result = action()
    del result
    with memray.FileReader(trace) as reader:
        peak = int(reader.metadata.peak_memory)
    trace.unlink()
    return peak
