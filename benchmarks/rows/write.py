"""``z[:] = x`` into an array that is one raw chunk, over shared memory."""

import os
from pathlib import Path
from typing import Any

import numpy as np
from zarr.storage import LocalStore

from benchmarks.candidates import COPY, LOCAL_FUSED, copies
from benchmarks.data import Values, put_into_folder, put_into_server, random_values
from benchmarks.result import Row, at_least, times_as_fast
from benchmarks.scale import Scale
from benchmarks.settings import FUSED, ZERO_COPY, open_array
from benchmarks.timing import Candidate, interleave
from ucxstore import Server, UcxStore

_OF_COPY = at_least(0.6)

_MEMORY = "ucxstore, memory storage"
_DIRECTORY = "ucxstore, directory storage"


def measure(scale: Scale, folder: Path) -> Row:
    values = random_values(scale.shape)
    with Server.spawn("memory://") as server:
        put_into_server(server.address, values, scale.shape)
        with _store(server.address) as store:
            writing = _writing(_MEMORY, open_array(store, ZERO_COPY, "r+"), values, ZERO_COPY)
            times = interleave([*copies(values), writing], rounds=scale.rounds)
            lanes = store.stats()["lanes"]
    # Apart from the others, which the disk would disturb as it takes what was written.
    with Server.spawn(folder / "served") as server:
        put_into_server(server.address, values, scale.shape)
        put_into_folder(folder / "local", values, scale.shape)
        with _store(server.address) as store:
            served = open_array(store, ZERO_COPY, "r+")
            local = open_array(LocalStore(folder / "local"), FUSED, "r+")
            times |= interleave(
                [
                    _writing(_DIRECTORY, served, values, ZERO_COPY),
                    _writing(LOCAL_FUSED, local, values, FUSED),
                ],
                rounds=scale.directory_writes,
            )
        os.sync()
    return Row(
        name="write",
        title=f"{scale.nbytes / 1e6:g} MB raw, one chunk, z[:] = x, shared memory",
        lines=[
            times_as_fast(times, _MEMORY, COPY, _OF_COPY),
            times_as_fast(times, _DIRECTORY, LOCAL_FUSED),
        ],
        times=times,
        notes=[f"lanes: {lanes}"],
    )


def _store(address: str) -> UcxStore:
    return UcxStore(address, strict=True, select_pipeline=False)


def _writing(name: str, array: Any, values: Values, pipeline: str) -> Candidate:
    return Candidate(
        name,
        lambda: array.__setitem__(slice(None), values),
        pipeline,
        is_right=lambda _: np.array_equal(array[:], values),
    )
