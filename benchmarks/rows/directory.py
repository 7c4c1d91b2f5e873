"""A grid of raw chunks in a directory: ``z[:] = x``, and ``z[:]`` of what each has written."""

import os
from pathlib import Path

from zarr.storage import LocalStore

from benchmarks.candidates import (
    LOCAL_FUSED,
    WRITE_DIRECTORY,
    ZARRS,
    reading,
    reading_store,
    whole,
    writing,
    writing_store,
)
from benchmarks.data import Stored, put_into_folder, put_into_server, random_values
from benchmarks.result import Line, Row, at_least, times_as_fast
from benchmarks.scale import GRID_CHUNK, Scale
from benchmarks.settings import FRESH, FUSED, RECYCLED, ZARRS_PIPELINE, ZERO_COPY, open_array
from benchmarks.timing import Candidate, interleave
from ucxstore import Server

_OF_LOCAL = at_least(1)
_OF_ZARRS = at_least(0.8)
_OF_LOCAL_FILES = at_least(0.95)

_OUR_FILES = "files of ucxstore"
_LOCAL_FILES = "files of LocalStore"


def measure(scale: Scale, folder: Path) -> Row:
    import zarrs  # noqa: F401  # registers it

    values = random_values(scale.shape)
    stored = Stored(GRID_CHUNK)
    folders = {name: folder / name for name in ("ours", "fused", "zarrs")}
    for name in ("fused", "zarrs"):
        put_into_folder(folders[name], values, stored)
    with Server.spawn(folders["ours"]) as server, writing_store(server.address) as store:
        put_into_server(server.address, values, stored)
        written = [
            (WRITE_DIRECTORY, store, ZERO_COPY),
            (LOCAL_FUSED, LocalStore(folders["fused"]), FUSED),
            (ZARRS, LocalStore(folders["zarrs"]), ZARRS_PIPELINE),
        ]
        writes = [
            writing(f"write: {name}", open_array(where, pipeline, "r+"), values, pipeline)
            for name, where, pipeline in written
        ]
        times = interleave(writes, rounds=scale.directory_writes)
    os.sync()
    # The same server code reads both, and the page cache has both as they were written.
    with (
        Server.spawn(folders["ours"]) as ours,
        Server.spawn(folders["fused"]) as local,
        reading_store(ours.address) as our_store,
        reading_store(local.address) as local_store,
    ):
        reads: list[Candidate] = [
            reading(
                f"read: {name}", open_array(where, ZERO_COPY), whole, ZERO_COPY, RECYCLED, values
            )
            for name, where in ((_OUR_FILES, our_store), (_LOCAL_FILES, local_store))
        ]
        for name, where in ((_OUR_FILES, "ours"), (_LOCAL_FILES, "fused")):
            array = open_array(LocalStore(folders[where], read_only=True), FUSED)
            found = reading(f"read by LocalStore: {name}", array, whole, FUSED, FRESH, values)
            reads.append(found)
        times |= interleave(reads, rounds=scale.rounds)
    lines: list[Line] = [
        times_as_fast(times, f"write: {WRITE_DIRECTORY}", f"write: {LOCAL_FUSED}", _OF_LOCAL),
        times_as_fast(times, f"write: {WRITE_DIRECTORY}", f"write: {ZARRS}", _OF_ZARRS),
    ]
    lines += [
        times_as_fast(times, f"{by}: {_OUR_FILES}", f"{by}: {_LOCAL_FILES}", _OF_LOCAL_FILES)
        for by in ("read", "read by LocalStore")
    ]
    return Row(
        name="directory",
        title=f"{scale.nbytes / 1e6:g} MB raw in a grid of chunks, directory storage",
        lines=lines,
        times=times,
    )
