"""What is moved, how it is stored, and which way: pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

type Direction = Literal["write", "read"]
type Codec = Literal["raw", "zstd", "blosc", "gzip"]
type Layout = Literal["one", "rows", "grid", "shard"]

DIRECTIONS: tuple[Direction, ...] = ("write", "read")
CODECS: tuple[Codec, ...] = ("raw", "zstd", "blosc", "gzip")
LAYOUTS: tuple[Layout, ...] = ("one", "rows", "grid", "shard")

_ITEM_BYTES = 4  # float32
_PARTS = 10  # chunks along an axis

# zarr's own defaults for each codec, but for blosc, where the study takes lz4 and shuffles.
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
    """An array of ``side`` x ``side`` float32, and what is done with it.

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
        """For files and options: ``"write-raw-one"``."""
        return f"{self.direction}-{self.codec}-{self.layout}"

    @property
    def stored_as(self) -> str:
        """What reads of the same stored array have in common: ``"raw-one"``."""
        return f"{self.codec}-{self.layout}"

    @property
    def shape(self) -> tuple[int, int]:
        """Items along each axis."""
        return (self.side, self.side)

    @property
    def chunk_shape(self) -> tuple[int, int]:
        """Items of a chunk along each axis; of an inner chunk, where there are shards."""
        part = self.side // _PARTS
        return {
            "one": self.shape,
            "rows": (part, self.side),
            "grid": (part, part),
            "shard": (part, part),
        }[self.layout]

    @property
    def shard_shape(self) -> tuple[int, int] | None:
        """Items of a shard along each axis, or None where there are none."""
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
        """The codec's metadata as Zarr v3 has it; None for raw chunks."""
        return _COMPRESSORS[self.codec]


def select(patterns: Sequence[str], side: int) -> list[Workload]:
    """Return the workloads whose names match any of the patterns (parts of names), or all.

    Raises
    ------
    ValueError
        If a pattern matches none.
    """
    everything = [
        Workload(direction, codec, layout, side)
        for direction, codec, layout in product(DIRECTIONS, CODECS, LAYOUTS)
    ]
    for pattern in patterns:
        if not any(pattern in workload.name for workload in everything):
            raise ValueError(f"no workload has {pattern!r} in its name, such as write-raw-one")
    return [
        workload
        for workload in everything
        if not patterns or any(pattern in workload.name for pattern in patterns)
    ]
