"""What is asked of the server for shards whose indexes are known: pure, no I/O."""

from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple

import numpy.typing as npt
from zarr.core.array_spec import ArraySpec
from zarr.core.buffer import NDBuffer
from zarr.core.chunk_utils import fill_value_or_default

from ucxstore.byte_ranges import NativeRange
from ucxstore.decode_plan import Group, group_bytes
from ucxstore.memory import describe
from ucxstore.shard_boxes import Boxes, Part, Points
from ucxstore.shard_index import Ints, ShardIndex, Sharding
from ucxstore.shard_plan import Shard

# Inner chunks that one item of a request asks for: half of what a server takes, as offsets or as
# byte ranges.
MOST_PARTS = 1 << 13


class InnerChunk(NamedTuple):
    """An inner chunk, as errors call it."""

    path: Any
    sharding: Sharding
    number: int

    def __str__(self) -> str:
        return f"{self.path}, inner chunk {self.sharding.coordinates(self.number)}"


type InnerItem = tuple[InnerChunk, ArraySpec, Any, Any, NDBuffer]
"""As zarr's items, but that the last one is the array that the second selection is of."""


@dataclass(slots=True)
class Gathering:
    """What is read of some shards.

    Parameters
    ----------
    array : numpy.ndarray
        The whole array, which all views of shards are parts of.
    generations : dict
        The ones that shards must have, by key.
    keys, sources, targets : list
        Parts that move straight, as `Connection.read_parts` takes them.
    sizes : list of int
        Bytes of each.
    items : list
        Inner chunks that are decoded.
    ranges, whole : list
        Where each of them is, and whether all of it is wanted.
    """

    array: npt.NDArray[Any]
    generations: dict[str, int] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)
    sources: list[Part] = field(default_factory=list)
    targets: list[Part] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    items: list[InnerItem] = field(default_factory=list)
    ranges: list[NativeRange] = field(default_factory=list)
    whole: list[bool] = field(default_factory=list)

    def add(self, shard: Shard, index: ShardIndex | None, target: NDBuffer) -> None:
        """Take what is wanted of a shard. What it does not hold is filled right away.

        Raises
        ------
        ShardError, ChunkSizeError
            If the index of an inner chunk that is wanted is wrong.
        """
        fill = fill_value_or_default(shard.sharding.spec)
        if index is None or not shard.any_held(index):
            target[...] = fill
            return
        self.generations[shard.key] = index.generation
        for part, straight in shard.parts():
            offsets, lengths = index.find(part.chunks, shard.sharding, shard.item[0])
            held = offsets >= 0
            if not held.all():
                for _, _, place in part.only(~held):
                    target[place] = fill
                part, offsets, lengths = part.only(held), offsets[held], lengths[held]
            if straight:
                self._move(shard, part, offsets)
            else:
                self._decode(shard, part, offsets, lengths, target)

    def _move(self, shard: Shard, boxes: Boxes | Points, offsets: Ints) -> None:
        assert shard.view is not None
        assert isinstance(boxes, Boxes)
        (first, *_), (address, _, _, size) = describe(self.array), describe(shard.view)
        source = boxes.source(shard.sharding.spec.shape, size, offsets)
        target = boxes.target(shard.view.strides, size)
        for begin in range(0, len(offsets), MOST_PARTS):
            some = slice(begin, begin + MOST_PARTS)
            self.keys.append(shard.key)
            self.sources.append((*source[:4], source[4][some]))
            self.targets.append((address - first, *target[1:4], target[4][some]))
            self.sizes.append(len(offsets[some]) * prod(boxes.counts) * size)

    def _decode(
        self, shard: Shard, part: Boxes | Points, offsets: Ints, lengths: Ints, target: NDBuffer
    ) -> None:
        path, sharding = shard.item[0], shard.sharding
        for (number, selection, place), start, length in zip(
            part, offsets.tolist(), lengths.tolist(), strict=True
        ):
            inner = InnerChunk(path, sharding, number)
            self.items.append((inner, sharding.spec, selection, place, target))
            self.ranges.append((1, start, start + length))
            self.whole.append(part.whole)

    def groups(self) -> list[Group]:
        """Return the inner chunks to decode as requests, each of them one of some keys."""
        if not self.items:
            return []
        size = self.items[0][0].sharding.chunk_nbytes
        step = max(1, group_bytes(len(self.items) * size) // size)
        groups = []
        for begin in range(0, len(self.items), step):
            some = slice(begin, begin + step)
            ranges = self.ranges[some]
            groups.append(
                Group(
                    list(range(begin, begin + len(ranges))),
                    [inner.path.path for inner, *_ in self.items[some]],
                    self.whole[some],
                    [[wanted] for wanted in ranges],
                    sum(end - start for _, start, end in ranges),
                )
            )
        return groups
