"""The candidates that several rows compare."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from zarr.storage import LocalStore

from benchmarks.data import Values, put_into_server
from benchmarks.settings import BATCHED, FUSED, MEMORY, ZERO_COPY, open_array
from benchmarks.timing import Candidate
from ucxstore import Server, UcxStore

COPY = "np.copyto, fresh array"
WARM_COPY = "np.copyto, used array"
LOCAL_FUSED = "LocalStore, fused"
LOCAL_RECYCLED = "LocalStore, fused, recycled"
LOCAL_DEFAULT = "LocalStore, default pipeline"


def ours(backing: str, memory: str) -> str:
    """Name the candidate that reads from a server with this backing into this kind of memory."""
    return f"ucxstore, {backing} backing, {memory}"


OURS = [ours(backing, memory) for backing in ("memory", "directory") for memory in MEMORY]


def copies(values: Values) -> list[Candidate]:
    """``np.copyto``: into a new array each time, and into one that was used before."""
    used = np.empty_like(values)

    def copy_to_fresh() -> Values:
        fresh = np.empty_like(values)
        np.copyto(fresh, values)
        return fresh

    return [Candidate(COPY, copy_to_fresh), Candidate(WARM_COPY, lambda: np.copyto(used, values))]


def local_reads(folder: Path, values: Values) -> list[Candidate]:
    """zarr's own store, as zarr is without us and, to be fair, with results in recycled memory."""

    def reading(name: str, pipeline: str, memory: str) -> Candidate:
        array = open_array(LocalStore(folder, read_only=True), pipeline)
        return Candidate(
            name, lambda: array[:], pipeline, MEMORY[memory], lambda got: _same(got, values)
        )

    return [
        reading(LOCAL_FUSED, FUSED, "fresh"),
        reading(LOCAL_RECYCLED, FUSED, "recycled"),
        reading(LOCAL_DEFAULT, BATCHED, "fresh"),
    ]


@contextmanager
def our_reads(
    folder: Path,
    values: Values,
    chunks: tuple[int, ...],
    ucx: Mapping[str, str],
    compressor: Any = None,
) -> Iterator[tuple[list[Candidate], list[str]]]:
    """Read from servers with both backings into both kinds of memory; and the lanes in use.

    The directory is the one that `local_reads` reads: the same files, in the same page cache.
    """
    with (
        Server.spawn("memory://", ucx=ucx) as memory,
        Server.spawn(folder, ucx=ucx) as directory,
        _store(memory.address, ucx) as memory_store,
        _store(directory.address, ucx) as directory_store,
    ):
        put_into_server(memory.address, values, chunks, compressor, ucx=ucx)
        found = []
        for backing, store in (("memory", memory_store), ("directory", directory_store)):
            array = open_array(store, ZERO_COPY)
            for kind, ndbuffer in MEMORY.items():
                found.append(_reading(ours(backing, kind), array, ndbuffer, values))
        yield found, memory_store.stats()["lanes"]


def _store(address: str, ucx: Mapping[str, str]) -> UcxStore:
    # Strict: a chunk that took another way than the short one would be a failure.
    return UcxStore(address, ucx=ucx, read_only=True, strict=True, select_pipeline=False)


def _reading(name: str, array: Any, ndbuffer: str, values: Values) -> Candidate:
    return Candidate(name, lambda: array[:], ZERO_COPY, ndbuffer, lambda got: _same(got, values))


def _same(result: object, values: Values) -> bool:
    return np.array_equal(np.asarray(result), values)
