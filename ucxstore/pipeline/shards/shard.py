"""Shards and inner chunks of a batch, as reads and writes share them: values, no I/O."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy.typing as npt
from zarr.storage import StorePath

from ucxstore.base.zarr_compat import ArraySpec
from ucxstore.codecs.classify import Sharded
from ucxstore.pipeline.batch import Batch, Chunk
from ucxstore.pipeline.indexes.index import MISSING, Ints, ShardIndex, Sharding


class InnerChunk(NamedTuple):
    """Name of an inner chunk in errors; stands where other chunks have a StorePath."""

    path: StorePath
    sharding: Sharding
    number: int

    def __str__(self) -> str:
        return f"{self.path}, inner chunk {self.sharding.coordinates(self.number)}"


@dataclass(frozen=True, slots=True)
class Shard(ABC):
    """A shard of a batch, some of whose inner chunks are read.

    Parameters
    ----------
    chunk : Chunk
    sharding : Sharding
    """

    chunk: Chunk
    sharding: Sharding

    @property
    def path(self) -> StorePath:
        """Its path in the store."""
        path: StorePath = self.chunk[0]
        return path

    @property
    def key(self) -> str:
        """Its key, without the store's prefix."""
        return self.path.path

    @abstractmethod
    def read_chunks(self) -> Iterable[Ints]:
        """Yield the numbers of the inner chunks that are read."""

    def holds_any(self, index: ShardIndex) -> bool:
        """Tell whether an inner chunk that is read has an entry in the index, even a wrong one."""
        return any((index.offsets[numbers] != MISSING).any() for numbers in self.read_chunks())


def shards_of(
    batch: Batch, kind: Sharded, positions: Sequence[int]
) -> Iterator[tuple[int, Chunk, Sharding]]:
    """Yield position, chunk and sharding of some chunks of a batch."""
    shapes: dict[tuple[int, ...], Sharding] = {}
    for position in positions:
        chunk = batch.chunks[position]
        spec = chunk[1]
        sharding = shapes.get(spec.shape)
        if sharding is None:
            sharding = shapes[spec.shape] = Sharding.of(kind, spec)
        yield position, chunk, sharding


def basic_key(chunk_selection: Any, spec: ArraySpec, more: object) -> object:
    """Return a key that shards share if the same basic selection of them is wanted, or ``None``.

    Other selections have arrays in them, which take too long to compare.
    """
    if type(chunk_selection) is tuple and all(type(s) in {slice, int} for s in chunk_selection):
        return spec.shape, chunk_selection, more
    return None


def is_view(out_selection: Any) -> bool:
    """Tell whether a selection of an array is a view without steps."""
    parts = out_selection if type(out_selection) is tuple else (out_selection,)
    return all(type(part) is slice and part.step in {None, 1} for part in parts)


def view_of(array: Any, out_selection: Any) -> npt.NDArray[Any]:
    """Return the view of an array that a selection is: see `is_view`."""
    parts = out_selection if type(out_selection) is tuple else (out_selection,)
    view: npt.NDArray[Any] = array[(*parts, ...)]
    return view
