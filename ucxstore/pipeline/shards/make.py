"""What new shards hold, made of what is written and of what was stored: computes, no I/O."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import add
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from ucxstore.client.memory import Layout, describe
from ucxstore.pipeline.compressors import Bytes
from ucxstore.pipeline.fill import FillTest
from ucxstore.pipeline.merge import merged
from ucxstore.pipeline.plan import Item
from ucxstore.pipeline.shards.boxes import Boxes, Points, points_of
from ucxstore.pipeline.shards.gather import InnerChunk
from ucxstore.pipeline.shards.index import Ints, Sharding
from ucxstore.pipeline.shards.layout import lay_out
from ucxstore.pipeline.shards.plan import view_of
from ucxstore.pipeline.shards.write_plan import ShardWrite
from ucxstore.pipeline.stored import Stored
from ucxstore.zarr_compat import NDBuffer


@dataclass(slots=True)
class Content:
    """What a shard will hold.

    Parameters
    ----------
    lengths : numpy.ndarray
        Bytes of each inner chunk, in C order; 0 for those that are not stored.
    layouts : dict
        Where each of them lies in memory.
    owners : list
        What holds that memory.
    nbytes : int
        Bytes in memory that is not the user's.
    made : int
        How many inner chunks were made.
    """

    lengths: Ints
    layouts: dict[int, Layout] = field(default_factory=dict)
    owners: list[object] = field(default_factory=list)
    nbytes: int = 0
    made: int = 0

    @classmethod
    def of(cls, sharding: Sharding, existing: dict[int, Bytes]) -> Self:
        """Start with what is stored, whatever becomes of it."""
        content = cls(np.zeros(sharding.count, np.int64))
        for number, value in existing.items():
            content._hold(number, value)
        return content

    def put(self, values: Iterable[tuple[int, Bytes | None]]) -> None:
        """Take inner chunks that were made, by number; ``None``: nothing is stored."""
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
        """Take raw inner chunks in the user's memory."""
        self.lengths[chunks] = sharding.chunk_nbytes
        self.layouts.update(zip(chunks.tolist(), layouts, strict=True))

    def assemble(self, sharding: Sharding) -> list[Layout]:
        """Return where the parts of the shard lie, one behind the other; none if it is empty."""
        held, index = lay_out(sharding, self.lengths)
        if not held.size:
            return []
        self.owners.append(index)
        parts = [self.layouts[number] for number in held.tolist()]
        parts.insert(0 if sharding.codec.index_location == "start" else len(parts), describe(index))
        return parts


class Maker:
    """Makes inner chunks. Methods may be called by many threads at once.

    Parameters
    ----------
    value : NDBuffer
        What is written, by all of the batch: plain memory.
    sharding : Sharding
        Of any shard of the array.
    stored : Stored
        How inner chunks are stored.
    """

    def __init__(self, value: NDBuffer, sharding: Sharding, stored: Stored) -> None:
        self._value = value
        self._stored = stored
        spec = sharding.spec
        self._fill = None if spec.config.write_empty_chunks else FillTest(spec)

    def begin(
        self, shard: ShardWrite, existing: dict[int, Bytes]
    ) -> tuple[Content, Sequence[Boxes | Points], NDBuffer]:
        """Begin with a shard: with all that needs not be made.

        Parameters
        ----------
        shard : ShardWrite
        existing : dict
            What is stored of it, and not overwritten, by number.

        Returns
        -------
        Content
            With what is stored, and what lies in the user's array as it is to be stored.
        sequence of Boxes or Points
            What is to be made.
        NDBuffer
            What it is to be made of.
        """
        content = Content.of(shard.sharding, existing)
        for boxes in shard.written.sent:
            source = view_of(self._value.as_numpy_array(), shard.item[3])
            stored = self._not_empty(boxes, source)
            address, _, _, size = describe(source)
            starts = address + boxes.places @ np.array(source.strides, np.int64)
            shape, strides = boxes.counts or (1,), source.strides or (size,)
            layouts = [(start, shape, strides, size) for start in starts[stored].tolist()]
            content.refer(shard.sharding, boxes.chunks[stored], layouts)
        _, spec, chunk_selection, out_selection, _ = shard.item
        # As zarr's pipelines and its codec do, for selections by arrays too.
        value = self._value if self._value.shape == () else self._value[out_selection]
        if shard.written.made is not None:
            return content, shard.written.made, value
        codec = shard.sharding.codec
        projections, value = codec._get_shard_indexer_and_value(chunk_selection, spec, value)
        return content, [points_of(projections, shard.sharding)], value

    def _not_empty(self, boxes: Boxes, source: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Tell which of some whole inner chunks zarr would store."""
        stored = np.ones(len(boxes.chunks), np.bool_)
        fill = self._fill
        if fill is not None:
            for number, first in enumerate(boxes.places.tolist()):
                if not fill.rules_out(source, first):
                    ends = map(add, first, boxes.counts)
                    chunk: npt.NDArray[Any] = view_of(source, tuple(map(slice, first, ends)))
                    stored[number] = not fill.holds(chunk)
        return stored

    def make(
        self,
        shard: ShardWrite,
        part: Boxes | Points,
        value: NDBuffer,
        existing: dict[int, Bytes],
    ) -> Iterator[tuple[int, Bytes | None]]:
        """Yield inner chunks, made as zarr makes them, by number; ``None``: nothing is stored.

        The parameters are those of `begin`, and what it returned.
        """
        spec = shard.sharding.spec
        is_same, made = False, None
        for number, selection, place in part:
            if not is_same:
                try:
                    made = self._make(
                        (None, spec, selection, place, part.whole), value, existing.get(number)
                    )
                except Exception as error:
                    inner = InnerChunk(shard.path, shard.sharding, number)
                    error.add_note(f"while writing {inner}")
                    raise
            yield number, made
            is_same = part.whole and value.shape == ()  # a scalar

    def _make(self, item: Item, value: NDBuffer, existing: Bytes | None) -> Bytes | None:
        _, spec, *_, whole = item
        stored = None if existing is None or whole else self._stored.load(existing, spec)
        chunk = merged(value, item, (), stored)
        array, fill = chunk.as_numpy_array(), self._fill
        if fill is not None and not fill.rules_out(array, (0,) * array.ndim) and fill.holds(array):
            return None
        return self._stored.encode(chunk, spec)
