"""What is asked of the server for shards whose indexes are known: pure, no I/O."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from zarr.storage import StorePath

from ucxstore.client.byte_ranges import NativeRange
from ucxstore.client.memory import describe
from ucxstore.pipeline.decode_plan import Group, group_bytes
from ucxstore.pipeline.geometry.runs import Part
from ucxstore.pipeline.shards.boxes import Boxes, Points
from ucxstore.pipeline.shards.index import ShardIndex, Sharding
from ucxstore.pipeline.shards.moves import BoxMoves, PointMoves
from ucxstore.pipeline.shards.plan import Shard
from ucxstore.zarr_compat import ArraySpec, NDBuffer, fill_value_or_default


class InnerChunk(NamedTuple):
    """An inner chunk, as errors call it."""

    path: StorePath
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
    address : int
        Where targets are counted from.
    owners : list
        What holds the memory that they are in.
    versions : dict
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

    address: int
    owners: list[object] = field(default_factory=list)
    versions: dict[str, int] = field(default_factory=dict)
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
        if index is None or not shard.any_held(index):
            target[...] = fill_value_or_default(shard.sharding.spec)
            return
        self.versions[shard.key] = index.version
        for moving in shard.wanted.direct:
            self._move(shard, index, moving, target)
        for part in shard.wanted.decode:
            self._decode(shard, index, part, target)

    def _move(
        self,
        shard: Shard,
        index: ShardIndex,
        moving: BoxMoves | PointMoves,
        target: NDBuffer,
    ) -> None:
        array = target.as_numpy_array()
        start, *_ = describe(array)
        self.owners.append(array)
        starts, _ = index.find(moving.part.chunks, shard.sharding, shard.path)
        held = starts >= 0
        if not held.all():
            _fill(target, moving.part.only(~held), shard.sharding)
        for source, goal, nbytes in moving.moves(starts, held):
            self.keys.append(shard.key)
            self.sources.append(source)
            self.targets.append((start - self.address + goal[0], *goal[1:]))
            self.sizes.append(nbytes)

    def _decode(
        self, shard: Shard, index: ShardIndex, part: Boxes | Points, target: NDBuffer
    ) -> None:
        path, sharding = shard.path, shard.sharding
        starts, lengths = index.find(part.chunks, sharding, path)
        held = starts >= 0
        if not held.all():
            _fill(target, part.only(~held), sharding)
            part, starts, lengths = part.only(held), starts[held], lengths[held]
        for (number, selection, place), start, length in zip(
            part, starts.tolist(), lengths.tolist(), strict=True
        ):
            inner = InnerChunk(path, sharding, number)
            self.items.append((inner, sharding.spec, selection, place, target))
            self.ranges.append((1, start, start + length))
            self.whole.append(part.whole)

    def groups(self) -> list[Group]:
        """Return the inner chunks to decode in groups."""
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


def _fill(target: NDBuffer, part: Boxes | Points, sharding: Sharding) -> None:
    fill = fill_value_or_default(sharding.spec)
    for _, _, place in part:
        target[place] = fill
