"""`Workload`: the array that a measurement moves, how it is stored, and the direction."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import zarr

from ucxstore.copies import count_copies
from ucxstore.copies.result import Counts

type Direction = Literal["write", "read"]
type Codec = Literal["raw", "zstd", "blosc", "gzip"]
type Layout = Literal["one", "rows", "grid", "shard"]

DIRECTIONS: tuple[Direction, ...] = ("write", "read")
CODECS: tuple[Codec, ...] = ("raw", "zstd", "blosc", "gzip")
LAYOUTS: tuple[Layout, ...] = ("one", "rows", "grid", "shard")

# The pipelines of zarr, zarrs-python and ucxstore, by their names in reports.
PIPELINES = {
    "default": "zarr.core.codec_pipeline.BatchedCodecPipeline",
    "fused": "zarr.core.codec_pipeline.FusedCodecPipeline",
    "zarrs": "zarrs.ZarrsCodecPipeline",
    "zero-copy": "ucxstore.pipeline.ZeroCopyCodecPipeline",
}

_SEED = 20250521  # the same numbers in every process
_ITEM_BYTES = 4  # float32
_PARTS = 10  # chunks along an axis

# zarr's defaults for each codec. For blosc, lz4 and shuffle, as in the memray-array study.
_COMPRESSORS: dict[Codec, dict[str, Any] | None] = {
    "raw": None,
    "zstd": {"name": "zstd", "configuration": {"level": 0, "checksum": False}},
    "blosc": {
        "name": "blosc",
        "configuration": {
            "cname": "lz4",
            "clevel": 5,
            "shuffle": "shuffle",
            "typesize": _ITEM_BYTES,
            "blocksize": 0,
        },
    },
    "gzip": {"name": "gzip", "configuration": {"level": 5}},
}


@dataclass(frozen=True, slots=True)
class Workload:
    """An array of ``side`` x ``side`` float32, and whether it is written or read.

    Attributes
    ----------
    direction : str
        ``"write"`` or ``"read"``, of the whole array.
    codec : str
        ``"raw"``, ``"zstd"`` (level 0), ``"blosc"`` (lz4, byte shuffle) or ``"gzip"`` (level 5).
    layout : str
        ``"one"`` chunk, ``"rows"`` (ten chunks of whole rows), ``"grid"`` (10 x 10 chunks), or
        ``"shard"`` (one shard of 10 x 10 inner chunks).
    side : int
        Items along each axis; a multiple of 10.
    """

    direction: Direction
    codec: Codec
    layout: Layout
    side: int

    @property
    def name(self) -> str:
        """The name in files and options: ``"write-raw-one"``."""
        return f"{self.direction}-{self.codec}-{self.layout}"

    @property
    def stored_as(self) -> str:
        """The name of the stored array, which several workloads share: ``"raw-one"``."""
        return f"{self.codec}-{self.layout}"

    @property
    def shape(self) -> tuple[int, int]:
        """Items along each axis."""
        return (self.side, self.side)

    @property
    def chunk_shape(self) -> tuple[int, int]:
        """Items of a chunk along each axis; with shards, of an inner chunk."""
        part = self.side // _PARTS
        return {
            "one": self.shape,
            "rows": (part, self.side),
            "grid": (part, part),
            "shard": (part, part),
        }[self.layout]

    @property
    def shard_shape(self) -> tuple[int, int] | None:
        """Items of a shard along each axis; None without shards."""
        return self.shape if self.layout == "shard" else None

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return self.side * self.side * _ITEM_BYTES

    @property
    def chunk_nbytes(self) -> int:
        """Bytes of a chunk before it is encoded."""
        rows, columns = self.chunk_shape
        return rows * columns * _ITEM_BYTES

    @property
    def compressor(self) -> dict[str, Any] | None:
        """The codec's metadata in Zarr v3; None for raw chunks."""
        return _COMPRESSORS[self.codec]

    def values(self) -> npt.NDArray[np.float32]:
        """Return the array: random numbers, as in the memray-array study."""
        return np.random.default_rng(_SEED).random(self.shape, dtype=np.float32)

    def create(self, store: Any) -> Any:
        """Create the array in a store, without its values; replace an existing array."""
        return zarr.create_array(
            store,
            shape=self.shape,
            dtype="float32",
            chunks=self.chunk_shape,
            shards=self.shard_shape,
            compressors=None if self.compressor is None else [self.compressor],
            overwrite=True,
        )

    def open(self, store: Any, pipeline: str) -> Any:
        """Create the array to write to it, or open it to read it.

        Parameters
        ----------
        store
            A zarr store.
        pipeline : str
            A key of `PIPELINES`.

        Raises
        ------
        RuntimeError
            If zarr chose another pipeline.
        """
        path = PIPELINES[pipeline]
        with zarr.config.set({"codec_pipeline.path": path}):
            if self.direction == "write":
                array = self.create(store)
            else:
                array = zarr.open_array(store, mode="r")
            actual = type(array.async_array.codec_pipeline).__name__
        if actual != path.rpartition(".")[2]:
            raise RuntimeError(f"zarr opened it with {actual}, not with the pipeline {pipeline!r}")
        return array


def count_workload(
    store: Any,
    workload: Workload,
    pipeline: str,
    capture: Path | None = None,
    wait: Callable[[str], object] = lambda state: None,
    *,
    action: Callable[[Any, npt.NDArray[Any]], Callable[[], Any]] | None = None,
) -> Counts:
    """Move the array, count the copies in this process, and compare the values.

    Parameters
    ----------
    store
        A zarr store. For a read, it must have the array already.
    workload : Workload
    pipeline : str
        A key of `PIPELINES`.
    capture : Path or None
        As for `ucxstore.copies.count_copies`.
    wait : callable
        Called with ``"connected"`` right before the array is moved, and with ``"done"`` after it.
    action : callable or None
        What moves the array, if not ``array[:]`` or ``array[:] = values``. It is given both, may
        make what it needs, and returns the call that is counted. That returns the array that was
        read, or memory of the user's that was written.

    Raises
    ------
    AssertionError
        If the values that were read differ from those that were written.
    """
    array = workload.open(store, pipeline)  # connects
    values = workload.values()
    results: list[Any] = []
    call = (action or _usual_action(workload))(array, values)

    def move() -> Any:
        results.append(call())
        return results[0]

    wait("connected")
    counts = count_copies(
        move, workload.nbytes, chunk_nbytes=workload.chunk_nbytes, capture=capture
    )
    wait("done")
    if workload.direction == "write":
        results.append(replace(workload, direction="read").open(store, "default")[:])
    if not np.array_equal(results[-1], values):
        raise AssertionError("the data came back wrong")
    return counts


def _usual_action(workload: Workload) -> Callable[[Any, npt.NDArray[Any]], Callable[[], Any]]:
    if workload.direction == "write":
        return lambda array, values: lambda: array.__setitem__(slice(None), values)
    return lambda array, values: lambda: array[:]
