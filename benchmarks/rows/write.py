"""``z[:] = x`` into an array that is one raw chunk, over shared memory."""

from pathlib import Path

from benchmarks.candidates import (
    COPY,
    LOCAL_FUSED,
    WRITE_DIRECTORY,
    WRITE_MEMORY,
    copies,
    directory_writes,
    writing,
    writing_store,
)
from benchmarks.data import Stored, put_into_server, random_values
from benchmarks.result import Row, at_least, times_as_fast
from benchmarks.scale import Scale
from benchmarks.settings import ZERO_COPY, open_array
from benchmarks.timing import interleave
from ucxstore import Server

_OF_COPY = at_least(0.6)


def measure(scale: Scale, folder: Path) -> Row:
    values = random_values(scale.shape)
    stored = Stored(scale.shape)
    with Server.spawn("memory://") as server:
        put_into_server(server.address, values, stored)
        with writing_store(server.address) as store:
            array = open_array(store, ZERO_COPY, "r+")
            ours = writing(WRITE_MEMORY, array, values, ZERO_COPY)
            times = interleave([*copies(values), ours], rounds=scale.rounds)
            lanes = store.stats()["lanes"]
    times |= directory_writes(folder, values, stored, scale.directory_writes)
    return Row(
        name="write",
        title=f"{scale.nbytes / 1e6:g} MB raw, one chunk, z[:] = x, shared memory",
        lines=[
            times_as_fast(times, WRITE_MEMORY, COPY, _OF_COPY),
            times_as_fast(times, WRITE_DIRECTORY, LOCAL_FUSED),
        ],
        times=times,
        notes=[f"lanes: {lanes}"],
    )
