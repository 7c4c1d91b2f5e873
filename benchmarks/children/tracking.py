"""The peak of a block's memory, as memray sees it."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import memray


def peak_bytes(action: Callable[[], object]) -> int:
    """Return the most memory that was allocated at once during an action, by any thread.

    What the action returns is alive at the end.
    """
    with tempfile.TemporaryDirectory(prefix="ucxstore-bench-") as folder:
        trace = Path(folder, "trace.bin")
        with memray.Tracker(trace):
            result = action()
        del result
        with memray.FileReader(trace) as reader:
            peak = int(reader.metadata.peak_memory)
    return peak
