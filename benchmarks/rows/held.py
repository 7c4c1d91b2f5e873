"""Processes that hold all values of one array at the same time: the memory of all together."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.candidates import LOCAL_FUSED
from benchmarks.data import Stored, Values, put_into_folder, put_into_server
from benchmarks.process import proportional_bytes
from benchmarks.result import Row, below, figure
from benchmarks.scale import Scale
from benchmarks.settings import FUSED
from benchmarks.together import group
from benchmarks.ways import LOCAL, SHARED_MEMORY, Way

_HELD = below(1.1)  # arrays

_PROCESSES = 8
_COLUMNS = 4096
_CHUNKS = 16  # of rows
# Of a chunk, a multiple: so each begins on a huge page, and can be mapped as such into `z[:]`.
_ROWS = (2 << 20) // 4 // _COLUMNS

type _Way = tuple[str, Way | None, str]

_WAYS: list[_Way] = [
    (f"ucxstore, {LOCAL.name}, store.view of each chunk", LOCAL, "view"),
    (f"ucxstore, {LOCAL.name}, z[:]", LOCAL, "read"),
    (f"ucxstore, {SHARED_MEMORY.name}, z[:]", SHARED_MEMORY, "read"),
    (LOCAL_FUSED, None, "read"),
]


def measure(scale: Scale, folder: Path) -> Row:
    rows = math.ceil(scale.held_bytes / 4 / _COLUMNS / _CHUNKS / _ROWS) * _ROWS * _CHUNKS
    # No two pages are the same, so nobody can merge them.
    values = np.arange(rows * _COLUMNS, dtype=np.float32).reshape(rows, _COLUMNS)
    stored = Stored((rows // _CHUNKS, _COLUMNS))
    lines = []
    for name, way, how in _WAYS:
        grown = _hold(way, how, values, stored, folder / how) / values.nbytes
        what = f"{name}: memory of all"
        ours = way is LOCAL
        lines.append(figure(what, [grown], "arrays", _HELD, counts=ours))
    return Row(
        name="held",
        title=f"{_PROCESSES} processes that hold the same {values.nbytes / 1e9:.3g} GB",
        lines=lines,
        notes=[
            "the proportional sets of all readers and of the server, less what they were before "
            "the array was written",
        ],
    )


def _hold(way: Way | None, how: str, values: Values, stored: Stored, folder: Path) -> int:
    """Return by how many bytes all processes have grown, each page shared out among them."""
    with (
        _serving(way, values, stored, folder) as (task, put, servers),
        group("holder", [{**task, "how": how}] * _PROCESSES) as readers,
    ):
        pids = [*readers.pids, *servers]
        before = sum(map(proportional_bytes, pids))
        put()
        readers.say("hold")
        expected = values.sum(dtype="f8")
        if not np.allclose(readers.hear(), expected):
            raise AssertionError("the data came back wrong")
        return sum(map(proportional_bytes, pids)) - before


@contextmanager
def _serving(
    way: Way | None, values: Values, stored: Stored, folder: Path
) -> Iterator[tuple[dict[str, Any], Callable[[], None], list[int]]]:
    """Yield the readers' task, what writes the array, and the process of the server, if any."""
    if way is None:
        task = {"location": str(folder), "pipeline": FUSED}
        yield task, lambda: put_into_folder(folder, values, stored), []
        return
    with way.serve("memory://") as server:
        task = {"location": server.address, "client": way.of_client}
        put = partial(put_into_server, server.address, values, stored, **way.of_client)
        yield task, put, [server.pid]
