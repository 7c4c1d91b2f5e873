"""Open a group of many arrays, and read one element of each."""

from contextlib import ExitStack
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.storage import LocalStore

from benchmarks.candidates import LOCAL_FUSED
from benchmarks.result import Row, at_least, times_as_fast
from benchmarks.scale import Scale
from benchmarks.settings import BATCHED, FRESH, FUSED, ZERO_COPY, zarr_settings
from benchmarks.timing import Candidate, interleave
from benchmarks.ways import LOCAL, SHARED_MEMORY

_SHAPE = (100, 100)


def measure(scale: Scale, folder: Path) -> Row:
    names = [f"array-{number:04}" for number in range(scale.arrays)]
    _put(LocalStore(folder), names, BATCHED)
    with ExitStack() as stack:
        candidates = []
        for way, storage in product((LOCAL, SHARED_MEMORY), ("memory", "directory")):
            served = "memory://" if storage == "memory" else folder
            server = stack.enter_context(way.serve(served, read_only=served == folder))
            store = stack.enter_context(way.open(server.address))
            if storage == "memory":
                _put(store, names, ZERO_COPY)
            name = f"ucxstore, {way.name}, {storage} storage"
            candidates.append(_reading(name, store, ZERO_COPY, names))
        candidates.append(_reading(LOCAL_FUSED, LocalStore(folder, read_only=True), FUSED, names))
        times = interleave(candidates, rounds=scale.small_rounds, warm_ups=1)
    ours = [candidate.name for candidate in candidates[:-1]]
    return Row(
        name="group",
        title=f"a group of {scale.arrays:,} arrays, opened, and one element of each read",
        lines=[
            times_as_fast(times, name, LOCAL_FUSED, at_least(1), counts="memory storage" in name)
            for name in ours
        ],
        times=times,
    )


def _put(store: Any, names: list[str], pipeline: str) -> None:
    with zarr_settings(pipeline=pipeline, ndbuffer=FRESH):
        group = zarr.create_group(store)
        for number, name in enumerate(names):
            array = group.create_array(name, shape=_SHAPE, dtype="f4", compressors=None)
            array[:] = number


def _reading(name: str, store: Any, pipeline: str, names: list[str]) -> Candidate:
    expected = {name: number for number, name in enumerate(names)}

    def read() -> dict[str, Any]:
        group = zarr.open_group(store, mode="r")
        return {name: array[7, 7] for name, array in group.arrays()}

    def is_right(found: dict[str, Any]) -> bool:
        return {name: np.asarray(value).item() for name, value in found.items()} == expected

    return Candidate(name, read, pipeline, FRESH, is_right)
