"""The candidates that several rows compare: ucxstore, zarr's own stores, ``np.copyto``."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from zarr.storage import LocalStore

from benchmarks.data import Stored, Values, put_into_folder, put_into_server
from benchmarks.settings import (
    BATCHED,
    FRESH,
    FUSED,
    MEMORY,
    RECYCLED,
    ZARRS_PIPELINE,
    ZERO_COPY,
    open_array,
)
from benchmarks.timing import Candidate, Times, interleave
from benchmarks.ways import LOCAL, SHARED_MEMORY, TCP, UCX_OVER_TCP, Way
from ucxstore import UcxStore

COPY = "np.copyto, fresh array"
WARM_COPY = "np.copyto, used array"
LOCAL_FUSED = "LocalStore, fused"
LOCAL_RECYCLED = "LocalStore, fused, recycled"
LOCAL_DEFAULT = "LocalStore, default pipeline"
ZARRS = "LocalStore, zarrs-python"

type Read = Callable[[Any], Any]
"""A selection, which returns the same from a zarr array and a numpy array."""

type Ours = tuple[Way, str, str]
"""A read of ours: by which way, from a server with which storage, into which kind of memory."""


def ours(way: Way, storage: str, memory: str) -> str:
    """Name the candidate of a read."""
    return f"ucxstore, {way.name}, {storage} storage, {memory}"


def our_write(way: Way, storage: str) -> str:
    """Name the candidate that writes to a server with this storage."""
    return f"ucxstore, {way.name}, {storage} storage"


READS: list[Ours] = [
    *product((LOCAL, SHARED_MEMORY), ("memory", "directory"), MEMORY),
    *((way, "memory", "recycled") for way in (TCP, UCX_OVER_TCP)),
]
OURS = [ours(*one) for one in READS]

# The default of users: to make a UcxStore selects recycled memory. Targets are for these.
DEFAULTS = [ours(way, "memory", "recycled") for way in (LOCAL, SHARED_MEMORY)]


def copies(values: Values) -> list[Candidate]:
    """Return ``np.copyto`` into a new array each time, and into one that was used before."""
    used = np.empty_like(values)

    def copy_to_fresh() -> Values:
        fresh = np.empty_like(values)
        np.copyto(fresh, values)
        return fresh

    return [Candidate(COPY, copy_to_fresh), Candidate(WARM_COPY, lambda: np.copyto(used, values))]


def whole(array: Any) -> Any:
    return array[:]


def local_reads(folder: Path, values: Values, read: Read = whole) -> list[Candidate]:
    """Return reads by zarr's own store: as it is, and, to be fair, into recycled memory."""
    expected = read(values)

    def local(name: str, pipeline: str, memory: str) -> Candidate:
        array = open_array(LocalStore(folder, read_only=True), pipeline)
        return reading(name, array, read, pipeline, MEMORY[memory], expected)

    return [
        local(LOCAL_FUSED, FUSED, "fresh"),
        local(LOCAL_RECYCLED, FUSED, "recycled"),
        local(LOCAL_DEFAULT, BATCHED, "fresh"),
    ]


def zarrs_read(folder: Path, values: Values, read: Read = whole) -> Candidate:
    """Return a read of the same files by the pipeline of zarrs-python, which is in Rust."""
    import zarrs  # noqa: F401  # registers it

    array = open_array(LocalStore(folder, read_only=True), ZARRS_PIPELINE)
    return reading(ZARRS, array, read, ZARRS_PIPELINE, FRESH, read(values))


@contextmanager
def our_reads(
    folder: Path,
    values: Values,
    stored: Stored,
    reads: Sequence[Ours] = READS,
    read: Read = whole,
) -> Iterator[tuple[list[Candidate], list[str]]]:
    """Yield the candidates of reads, and a note of each way's lanes.

    The directory is that of `local_reads`: the same files, in the same page cache.
    """
    arrays: dict[tuple[Way, str], Any] = {}
    notes: dict[Way, str] = {}
    with ExitStack() as stack:
        for way, storage in dict.fromkeys(one[:2] for one in reads):
            served = "memory://" if storage == "memory" else folder
            server = stack.enter_context(way.serve(served, read_only=served == folder))
            if storage == "memory":
                put_into_server(server.address, values, stored, **way.of_client)
            store = stack.enter_context(reading_store(server.address, way))
            arrays[way, storage] = open_array(store, ZERO_COPY)
            notes[way] = way.check(store)
        expected = read(values)
        candidates = [
            reading(ours(*one), arrays[one[:2]], read, ZERO_COPY, MEMORY[one[2]], expected)
            for one in reads
        ]
        yield candidates, [*notes.values()]


def reading_store(address: str, way: Way) -> UcxStore:
    # Strict: fail if a chunk does not take the short path.
    return way.open(address, read_only=True, strict=True)


def reading(
    name: str, array: Any, read: Read, pipeline: str, ndbuffer: str, expected: Any
) -> Candidate:
    def is_right(result: Any) -> bool:
        return np.array_equal(np.asarray(result), expected)

    return Candidate(name, lambda: read(array), pipeline, ndbuffer, is_right)


def writing(name: str, array: Any, values: Values, pipeline: str) -> Candidate:
    return Candidate(
        name,
        lambda: array.__setitem__(slice(None), values),
        pipeline,
        is_right=lambda _: np.array_equal(array[:], values),
    )


def reading_and_writing(what: str, name: str, store: UcxStore, values: Values) -> list[Candidate]:
    """Return a read and a write of all values, each called by what it does and by `name`."""
    array = open_array(store, ZERO_COPY, "r+")
    return [
        reading(f"{what}, read: {name}", array, whole, ZERO_COPY, RECYCLED, values),
        writing(f"{what}, write: {name}", array, values, ZERO_COPY),
    ]


@contextmanager
def our_writes(
    values: Values,
    stored: Stored,
    ways: Sequence[Way],
    folder: Path | None = None,
) -> Iterator[tuple[list[Candidate], list[str]]]:
    """Yield the candidates of writes, one for each way, and a note of each way's lanes.

    The values are in the servers' memory, or, with a folder, in a directory of each in there.
    """
    storage = "memory" if folder is None else "directory"
    candidates, notes = [], []
    with ExitStack() as stack:
        for way in ways:
            served = "memory://" if folder is None else folder / way.name.replace(" ", "-")
            server = stack.enter_context(way.serve(served))
            put_into_server(server.address, values, stored, **way.of_client)
            store = stack.enter_context(way.open(server.address, strict=True))
            array = open_array(store, ZERO_COPY, "r+")
            candidates.append(writing(our_write(way, storage), array, values, ZERO_COPY))
            notes.append(way.check(store))
        yield candidates, notes


def directory_writes(folder: Path, values: Values, stored: Stored, rounds: int) -> dict[str, Times]:
    """Time writes to servers of directories, and to a directory by zarr's own store.

    They do not take turns with other candidates, since the disk would disturb these.
    """
    put_into_folder(folder / "LocalStore", values, stored)
    fused = open_array(LocalStore(folder / "LocalStore"), FUSED, "r+")
    with our_writes(values, stored, (LOCAL, SHARED_MEMORY), folder) as (candidates, _):
        times = interleave([*candidates, writing(LOCAL_FUSED, fused, values, FUSED)], rounds=rounds)
    os.sync()
    return times
