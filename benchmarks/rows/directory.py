"""A grid of raw chunks in a directory: ``z[:] = x``, and ``z[:]`` of what each has written."""

import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.storage import LocalStore

from benchmarks.candidates import (
    LOCAL_FUSED,
    ZARRS,
    our_write,
    our_writes,
    reading,
    reading_store,
    whole,
    writing,
)
from benchmarks.data import Stored, Values, put_into_folder, random_values
from benchmarks.result import Line, Row, at_least, times_as_fast
from benchmarks.scale import GRID_CHUNK, Scale
from benchmarks.settings import FRESH, FUSED, RECYCLED, ZARRS_PIPELINE, ZERO_COPY, open_array
from benchmarks.timing import Candidate, Times, interleave
from benchmarks.ways import LOCAL, SHARED_MEMORY

_OF_LOCAL = at_least(1)
_OF_ZARRS = at_least(0.8)
_OF_ZARRISTA = at_least(0.77)  # at most 1.3 times its time
_OF_LOCAL_FILES = at_least(0.95)

_ZARRISTA = "zarrista"
_OUR_FILES = "files of ucxstore, {}"
_LOCAL_FILES = "files of LocalStore"
_WAYS = (LOCAL, SHARED_MEMORY)


def measure(scale: Scale, folder: Path) -> Row:
    import zarrs  # noqa: F401  # registers its pipeline

    values = random_values(scale.shape)
    folders = {name: folder / name for name in (_LOCAL_FILES, ZARRS, _ZARRISTA)}
    for one in folders.values():
        put_into_folder(one, values, Stored(GRID_CHUNK))
    # `our_writes` names its folders by the ways.
    folders |= {_OUR_FILES.format(way.name): folder / way.name.replace(" ", "-") for way in _WAYS}
    with our_writes(values, Stored(GRID_CHUNK), _WAYS, folder) as (writes, notes):
        writes += [
            _writing(LOCAL_FUSED, folders[_LOCAL_FILES], values, FUSED),
            _writing(ZARRS, folders[ZARRS], values, ZARRS_PIPELINE),
            _writing_zarrista(folders[_ZARRISTA], values),
        ]
        written = interleave(writes, rounds=scale.directory_writes)
    os.sync()
    times = {f"write: {name}": found for name, found in written.items()}
    times |= _read(scale, folders, values)
    return Row(
        name="directory",
        title=f"{scale.nbytes / 1e6:g} MB raw in a grid of chunks, directory storage",
        lines=_lines(times),
        times=times,
        notes=notes,
    )


def _lines(times: dict[str, Times]) -> list[Line]:
    lines = [
        times_as_fast(times, f"write: {our_write(way, 'directory')}", f"write: {against}", bound)
        for against, bound in ((LOCAL_FUSED, _OF_LOCAL), (ZARRS, _OF_ZARRS))
        for way in _WAYS
    ]
    lines += [
        times_as_fast(
            times,
            f"write: {our_write(way, 'directory')}",
            f"write: {_ZARRISTA}",
            _OF_ZARRISTA,
            counts=way is LOCAL,
        )
        for way in _WAYS
    ]
    # Who wrote the files makes no difference, whoever reads them.
    for way in _WAYS:
        ours = _OUR_FILES.format(way.name)
        lines += [
            times_as_fast(times, f"{by}: {ours}", f"{by}: {_LOCAL_FILES}", _OF_LOCAL_FILES)
            for by in (f"read, {way.name}", "read by LocalStore")
        ]
    return lines


def _writing(name: str, folder: Path, values: Values, pipeline: str) -> Candidate:
    return writing(name, open_array(LocalStore(folder), pipeline, "r+"), values, pipeline)


def _writing_zarrista(folder: Path, values: Values) -> Candidate:
    import zarrista

    array = zarrista.Array.open(zarrista.store.FilesystemStore(folder))

    def write() -> None:
        array[...] = values

    def is_right(_: Any) -> bool:
        return np.array_equal(zarr.open_array(LocalStore(folder), mode="r")[:], values)

    return Candidate(_ZARRISTA, write, is_right=is_right)


def _read(scale: Scale, folders: dict[str, Path], values: Values) -> dict[str, Times]:
    """Read the files of each by each way, and by LocalStore.

    The same code reads all of them, and the page cache has them as they were written.
    """
    reads: list[Candidate] = []
    with ExitStack() as stack:
        for way in _WAYS:
            for name in (_OUR_FILES.format(way.name), _LOCAL_FILES):
                server = stack.enter_context(way.serve(folders[name], read_only=True))
                store = stack.enter_context(reading_store(server.address, way))
                array = open_array(store, ZERO_COPY)
                label = f"read, {way.name}: {name}"
                reads.append(reading(label, array, whole, ZERO_COPY, RECYCLED, values))
        for name in (*(_OUR_FILES.format(way.name) for way in _WAYS), _LOCAL_FILES):
            array = open_array(LocalStore(folders[name], read_only=True), FUSED)
            label = f"read by LocalStore: {name}"
            reads.append(reading(label, array, whole, FUSED, FRESH, values))
        return interleave(reads, rounds=scale.rounds)
