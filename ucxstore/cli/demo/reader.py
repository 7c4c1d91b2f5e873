"""The reading process of the demo: read what was written, compare and measure.

``python -m ucxstore.cli.demo.reader`` takes a `Task` and answers with a `Report`.
"""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
import zarr

from ucxstore.cli.demo.compare import array_differences, dataset_differences
from ucxstore.cli.demo.measure import copy_rates, median_rate
from ucxstore.cli.demo.sample import open_sample, random_array
from ucxstore.copies import count_copies
from ucxstore.copies.process import answer, module_command, run_child
from ucxstore.stores.store import UcxStore

# For the whole process, also on a busy machine.
TIMEOUT_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Task:
    """The task of the reading process.

    Parameters
    ----------
    address : str
        The store's address.
    client : dict
        Options of `UcxStore`, such as ``local`` and ``ucx``.
    megabytes : int
        The size of the random array to read; 0 to read the dataset.
    scratch : str
        A folder for temporary files. The parent removes it.
    """

    address: str
    client: dict[str, Any] = field(default_factory=dict)
    megabytes: int = 0
    scratch: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """The results of a process that wrote or read.

    Parameters
    ----------
    lanes : list of str
        The lanes that UCX chose; ``"local"`` or ``"tcp"`` where it is not needed.
    chunks : tuple of int
        The numbers of chunks that went DIRECT, DECODE, ENCODE and FALLBACK.
    differences : list of str
        Differences from the original; empty if there are none.
    rates : dict
        GB/s, by the name of the measurement.
    extra : float
        Memory beyond the user's array at the peak, in multiples of the array.
    """

    lanes: list[str]
    chunks: tuple[int, int, int, int]
    differences: list[str]
    rates: dict[str, float] = field(default_factory=dict)
    extra: float = 0.0


def report_on(
    store: UcxStore,
    differences: list[str],
    rates: dict[str, float] | None = None,
    extra: float = 0.0,
) -> Report:
    """Make a report with the counters of a store."""
    stats = store.stats()
    chunks = stats["direct"], stats["decode"], stats["encode"], stats["fallback"]
    return Report(stats["lanes"], chunks, differences, rates or {}, extra)


def run_in_child(task: Task) -> Report:
    """Run a task in a new process, which has ended when this returns or raises.

    Raises
    ------
    ChildError
        If it fails; the message has its standard error.
    """
    command = module_command("ucxstore.cli.demo.reader")
    return Report(**run_child(command, asdict(task), timeout=TIMEOUT_SECONDS))


def run(task: Task) -> Report:
    """Run a task in this process."""
    return _read_array(task) if task.megabytes else _read_dataset(task)


def _read_dataset(task: Task) -> Report:
    with UcxStore(task.address, read_only=True, **task.client) as store, open_sample() as original:
        with xr.open_zarr(store, chunks=None, consolidated=False) as dataset:
            differences = dataset_differences(original, dataset)
        return report_on(store, differences)


def _read_array(task: Task) -> Report:
    original = random_array(task.megabytes)
    size = original.nbytes
    fresh_copy, used_copy = copy_rates(original)
    # Strict: fail if a chunk does not go straight into the array.
    with UcxStore(task.address, read_only=True, strict=True, **task.client) as store:
        array = zarr.open_array(store, mode="r")  # connects

        def read() -> object:
            return array[:]

        # Count first: later results may be in recycled memory, which memray does not see.
        extra = count_copies(read, size, capture=Path(task.scratch, "read.bin")).peak_extra
        with zarr.config.set({"ndbuffer": zarr.config.defaults[0]["ndbuffer"]}):
            fresh = median_rate(read, size)  # without recycling
        rates = {
            "copy, fresh": fresh_copy,
            "copy, used": used_copy,
            "fresh": fresh,
            "recycled": median_rate(read, size),
        }
        differences = array_differences(original, np.asarray(array[:]))
        return report_on(store, differences, rates, extra)


if __name__ == "__main__":
    answer(lambda **task: asdict(run(Task(**task))))
