"""The candidates that several rows compare: ucxstore, zarr's own stores, ``np.copyto``."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from zarr.storage import LocalStore

from benchmarks.data import Stored, Values, put_into_folder, put_into_server
from benchmarks.settings import BATCHED, FRESH, FUSED, MEMORY, ZARRS_PIPELINE, ZERO_COPY, open_array
from benchmarks.timing import Candidate, Times, interleave
from ucxstore import Server, UcxStore

COPY = "np.copyto, fresh array"
WARM_COPY = "np.copyto, used array"
LOCAL_FUSED = "LocalStore, fused"
LOCAL_RECYCLED = "LocalStore, fused, recycled"
LOCAL_DEFAULT = "LocalStore, default pipeline"
ZARRS = "LocalStore, zarrs-python"
WRITE_MEMORY = "ucxstore, memory storage"
WRITE_DIRECTORY = "ucxstore, directory storage"

type Read = Callable[[Any], Any]
"""A selection, which returns the same from a zarr array and a numpy array."""


def ours(storage: str, memory: str) -> str:
    """Name the candidate that reads from a server with this storage into this kind of memory."""
    return f"ucxstore, {storage} storage, {memory}"


OURS = [ours(storage, memory) for storage in ("memory", "directory") for memory in MEMORY]


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
    ucx: Mapping[str, str],
    read: Read = whole,
) -> Iterator[tuple[list[Candidate], list[str]]]:
    """Yield reads from servers of both storages into both kinds of memory, and the lanes in use.

    The directory is that of `local_reads`: the same files, in the same page cache.
    """
    with (
        Server.spawn("memory://", ucx=ucx) as memory,
        Server.spawn(folder, ucx=ucx) as directory,
        reading_store(memory.address, ucx) as memory_store,
        reading_store(directory.address, ucx) as directory_store,
    ):
        put_into_server(memory.address, values, stored, ucx=ucx)
        expected = read(values)
        found = []
        for storage, store in (("memory", memory_store), ("directory", directory_store)):
            array = open_array(store, ZERO_COPY)
            for kind, ndbuffer in MEMORY.items():
                name = ours(storage, kind)
                found.append(reading(name, array, read, ZERO_COPY, ndbuffer, expected))
        yield found, memory_store.stats()["lanes"]


def reading_store(address: str, ucx: Mapping[str, str] | None = None) -> UcxStore:
    # Strict: fail if a chunk does not take the short path.
    return UcxStore(address, ucx=ucx, read_only=True, strict=True, select_pipeline=False)


def reading(
    name: str, array: Any, read: Read, pipeline: str, ndbuffer: str, expected: Any
) -> Candidate:
    def is_right(result: Any) -> bool:
        return np.array_equal(np.asarray(result), expected)

    return Candidate(name, lambda: read(array), pipeline, ndbuffer, is_right)


@contextmanager
def writing_store(address: str) -> Iterator[UcxStore]:
    with UcxStore(address, strict=True, select_pipeline=False) as store:
        yield store


def writing(name: str, array: Any, values: Values, pipeline: str) -> Candidate:
    return Candidate(
        name,
        lambda: array.__setitem__(slice(None), values),
        pipeline,
        is_right=lambda _: np.array_equal(array[:], values),
    )


def directory_writes(folder: Path, values: Values, stored: Stored, rounds: int) -> dict[str, Times]:
    """Time writes to a server of a directory, and to a directory by zarr's own store.

    They do not take turns with other candidates, since the disk would disturb these.
    """
    with Server.spawn(folder / "served") as server:
        put_into_server(server.address, values, stored)
        put_into_folder(folder / "local", values, stored)
        with writing_store(server.address) as store:
            served = open_array(store, ZERO_COPY, "r+")
            local = open_array(LocalStore(folder / "local"), FUSED, "r+")
            times = interleave(
                [
                    writing(WRITE_DIRECTORY, served, values, ZERO_COPY),
                    writing(LOCAL_FUSED, local, values, FUSED),
                ],
                rounds=rounds,
            )
        os.sync()
    return times
