"""Make the content of shards from written values and stored inner chunks: no I/O."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from zarr.codecs import ShardingCodec
from zarr.codecs.sharding import SubchunkWriteOrder, _ShardIndex

from ucxstore.base.zarr_compat import NDBuffer
from ucxstore.client.memory import Layout, describe
from ucxstore.codecs.compressors import Bytes
from ucxstore.pipeline.indexes.index import Ints, Sharding
from ucxstore.pipeline.merge import Merger
from ucxstore.pipeline.shards.boxes import Boxes, Points, points_of
from ucxstore.pipeline.shards.shard import InnerChunk, view_of
from ucxstore.pipeline.shards.write_plan import ShardWrite

type Made = list[tuple[int, Bytes | None]]
"""Numbers of inner chunks, and the bytes to store; ``None`` if nothing is stored."""


@dataclass(slots=True)
class Content:
    """The inner chunks that a shard will hold.

    Parameters
    ----------
    lengths : numpy.ndarray
        Bytes of each inner chunk, in C order; 0 for those that are not stored.
    layouts : dict
        Where each of them lies in memory.
    owners : list
        The objects that hold that memory.
    nbytes : int
        Bytes in memory that is not the user's.
    made : int
        How many inner chunks were encoded or merged.
    """

    lengths: Ints
    layouts: dict[int, Layout] = field(default_factory=dict)
    owners: list[object] = field(default_factory=list)
    nbytes: int = 0
    made: int = 0

    @classmethod
    def of(cls, sharding: Sharding, existing: dict[int, Bytes]) -> Self:
        """Start with stored inner chunks; `put` replaces those that are merged."""
        content = cls(np.zeros(sharding.count, np.int64))
        for number, value in existing.items():
            content._hold(number, value)
        return content

    def put(self, values: Made) -> None:
        """Add inner chunks that were encoded or merged."""
        for number, value in values:
            self.made += 1
            self.lengths[number] = 0
            if value is not None:
                self._hold(number, value)

    def _hold(self, number: int, value: Bytes) -> None:
        self.lengths[number] = value.size
        self.layouts[number] = describe(value)
        self.owners.append(value)
        self.nbytes += value.size

    def refer(self, sharding: Sharding, chunks: Ints, layouts: Sequence[Layout]) -> None:
        """Add raw inner chunks that lie in the user's array."""
        self.lengths[chunks] = sharding.chunk_nbytes
        self.layouts.update(zip(chunks.tolist(), layouts, strict=True))

    def assemble(self, sharding: Sharding) -> list[Layout]:
        """Return where the bytes of the shard lie, in their order; an empty list if it has none."""
        held, index = lay_out(sharding, self.lengths)
        if not held.size:
            return []
        self.owners.append(index)
        layouts = [self.layouts[number] for number in held.tolist()]
        at_start = sharding.codec.index_location == "start"
        layouts.insert(0 if at_start else len(layouts), describe(index))
        return layouts


class StartedShard(NamedTuple):
    """A shard before any of its inner chunks is encoded or merged.

    Parameters
    ----------
    shard : ShardWrite
    existing : dict
        Inner chunks that are stored and not overwritten, by number.
    content : Content
        Those inner chunks, and the ones that are sent from the user's array.
    inner : sequence of Boxes or Points
        The inner chunks to encode or merge.
    value : NDBuffer
        What is written to them.
    """

    shard: ShardWrite
    existing: dict[int, Bytes]
    content: Content
    inner: Sequence[Boxes | Points]
    value: NDBuffer


class Maker:
    """Makes inner chunks. Methods may be called by many threads at once.

    Parameters
    ----------
    value : NDBuffer
        The array that the whole batch writes, in plain memory.
    sharding : Sharding
        The sharding of any shard of the array.
    """

    def __init__(self, value: NDBuffer, sharding: Sharding) -> None:
        self._value = value
        self._merger = Merger(sharding.chain, sharding.spec)

    def start(self, shard: ShardWrite, existing: dict[int, Bytes]) -> StartedShard:
        """Start a shard from the inner chunks that are stored and not overwritten."""
        content = Content.of(shard.sharding, existing)
        for boxes in shard.written.sent:
            source = view_of(self._value.as_numpy_array(), shard.chunk[3])
            stored = self._not_empty(boxes, source)
            address, _, _, size = describe(source)
            starts = address + boxes.starts @ np.array(source.strides, np.int64)
            shape, strides = boxes.counts or (1,), source.strides or (size,)
            layouts = [(start, shape, strides, size) for start in starts[stored].tolist()]
            content.refer(shard.sharding, boxes.chunks[stored], layouts)
        _, spec, chunk_selection, out_selection, _ = shard.chunk
        # The same as zarr's pipelines and its codec do, also for selections by arrays.
        value = self._value if self._value.shape == () else self._value[out_selection]
        if shard.written.made is not None:
            return StartedShard(shard, existing, content, shard.written.made, value)
        codec = shard.sharding.codec
        projections, value = codec._get_shard_indexer_and_value(chunk_selection, spec, value)
        inner = [points_of(projections, shard.sharding)]
        return StartedShard(shard, existing, content, inner, value)

    def make(
        self, started: StartedShard, inner: Boxes | Points, stopping: Callable[[], bool]
    ) -> Made:
        """Encode or merge inner chunks as zarr does, until `stopping` returns true."""
        shard, existing, _, _, value = started
        spec = shard.sharding.spec
        found: Made = []
        is_same, made = False, None
        for number, chunk_selection, out_selection in inner:
            if stopping():
                break
            if not is_same:
                chunk = (None, spec, chunk_selection, out_selection, inner.whole)
                stored = None if inner.whole else existing.get(number)
                try:
                    made = self._merger.make(value, chunk, stored)
                except Exception as error:
                    name = InnerChunk(shard.path, shard.sharding, number)
                    error.add_note(f"while writing {name}")
                    raise
            found.append((number, made))
            is_same = inner.whole and value.shape == ()  # all inner chunks of a scalar are equal
        return found

    def _not_empty(self, boxes: Boxes, source: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Return which of some whole inner chunks zarr would store."""
        stored = np.ones(len(boxes.chunks), np.bool_)
        fill = self._merger.fill
        if fill is not None:
            for number, first in enumerate(boxes.starts.tolist()):
                stored[number] = not fill.holds(source, first, boxes.counts)
        return stored


def lay_out(sharding: Sharding, lengths: Ints) -> tuple[Ints, Bytes]:
    """Order inner chunks as zarr does, and make the index of them.

    Parameters
    ----------
    sharding : Sharding
    lengths : numpy.ndarray
        Bytes of each inner chunk, in C order; 0 for those that are not stored.

    Returns
    -------
    numpy.ndarray
        The numbers of those that are stored, in the order in which they lie.
    numpy.ndarray
        The index, encoded.
    """
    codec = sharding.codec
    order = _order(codec.subchunk_write_order, sharding.grid)
    held = order[lengths[order] > 0]
    ends = np.cumsum(lengths[held])
    if codec.index_location == "start":
        ends += sharding.index_nbytes
    index = _ShardIndex.create_empty(sharding.grid)
    entries = index.offsets_and_lengths.reshape(-1, 2)
    entries[held, 0] = ends - lengths[held]
    entries[held, 1] = lengths[held]
    return held, codec._encode_shard_index_sync(index).as_numpy_array()


@lru_cache(maxsize=16)
def _order(name: SubchunkWriteOrder, grid: tuple[int, ...]) -> Ints:
    """Return the numbers of inner chunks in zarr's order. Slow for many, so it is cached."""
    any_codec = ShardingCodec(chunk_shape=grid)
    coordinates = list(any_codec._subchunk_order_iter(grid, name))
    where = np.array(coordinates, np.int64).reshape(-1, len(grid))
    order = np.asarray(np.ravel_multi_index(tuple(where.T), grid))
    order.flags.writeable = False
    return order
