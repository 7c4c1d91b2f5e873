"""What reads and writes of shards ask the server for: indexes, and inner chunks by them."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import batched
from typing import TYPE_CHECKING, Protocol

from ucxstore.client.byte_ranges import NativeRange
from ucxstore.client.loops import LoopQueue
from ucxstore.pipeline.budget import Claim
from ucxstore.pipeline.compressors import Bytes
from ucxstore.pipeline.shards.index import ShardIndex, Sharding
from ucxstore.store import UcxStore

if TYPE_CHECKING:
    from ucxstore._core import Connection

# How often a shard is read anew that was replaced meanwhile. Each time takes two requests, while
# whoever replaces it sends all of it.
ATTEMPTS = 10

# Byte ranges in one item of a request: more than half of what a server takes.
MOST_RANGES = 1 << 13


class Wanted(Protocol):
    """A shard of which something is wanted."""

    @property
    def path(self) -> object:
        """What it is called in an error."""
        ...

    @property
    def key(self) -> str:
        """Its key, without the store's prefix."""
        ...

    @property
    def sharding(self) -> Sharding:
        """How it is made."""
        ...

    def any_held(self, index: ShardIndex) -> bool:
        """Tell whether it holds any of the inner chunks that are wanted, or is said to."""
        ...


@dataclass(frozen=True, slots=True)
class Fetching:
    """A connection, and the store whose shards are fetched over it."""

    store: UcxStore
    connection: "Connection"
    queue: LoopQueue

    async def indexes(
        self, shards: Sequence[Wanted], claim: Claim | None = None
    ) -> list[ShardIndex | None]:
        """Return the indexes of shards, ``None`` for those that the store does not hold.

        They may be out of date, but not those of shards that hold nothing of what is wanted:
        nothing will be fetched of these that could tell.

        Parameters
        ----------
        shards : sequence
        claim : Claim, optional
            One that covers them, if there is one already.
        """
        cache = self.store.shard_indexes
        indexes = [cache.get(shard.key, shard.sharding.index_form) for shard in shards]
        unknown = [
            position
            for position, (shard, index) in enumerate(zip(shards, indexes, strict=True))
            if index is None or not shard.any_held(index)
        ]
        if not unknown:
            return indexes
        asked = [shards[position] for position in unknown]
        nbytes = sum(shard.sharding.index_nbytes for shard in asked)
        with nullcontext() if claim is not None else await self.store.budget.claim(nbytes):
            operation = self.connection.get(
                [self.store.key_prefix + shard.key for shard in asked],
                [shard.sharding.index_ranges for shard in asked],
                self.store.timeout,
                self.queue.native,
            )
            read = 0
            found = await self.queue.complete(operation)
            for position, shard, value in zip(unknown, asked, found, strict=True):
                indexes[position] = index = None if value is None else _decode(shard, *value)
                if index is not None:
                    read += value[0].size
                    if index.sound:  # else an error might tell of a shard that was mended since
                        cache.put(shard.key, shard.sharding.index_form, index)
        self.store.counters.add(read=read, staged=read)
        return indexes

    async def chunks(
        self, wanted: Sequence[tuple[str, int, Sequence[NativeRange]]]
    ) -> list[list[Bytes] | None]:
        """Fetch inner chunks.

        Parameters
        ----------
        wanted : sequence of (str, int, sequence)
            Keys of shards, the versions that they must have, and ranges of bytes in them.

        Returns
        -------
        list of list of Bytes or None
            What is in each of the ranges; ``None`` for a shard that is another one by now.
        """
        # A shard is looked up, and perhaps opened, once for many ranges.
        items = [
            (number, list(some))
            for number, (_, _, ranges) in enumerate(wanted)
            for some in batched(ranges, MOST_RANGES)
        ]
        operation = self.connection.get(
            [self.store.key_prefix + wanted[number][0] for number, _ in items],
            [ranges for _, ranges in items],
            self.store.timeout,
            self.queue.native,
            [wanted[number][1] for number, _ in items],
        )
        found: list[list[Bytes] | None] = [[] for _ in wanted]
        for (number, ranges), value in zip(
            items, await self.queue.complete(operation), strict=True
        ):
            pieces = found[number]
            if value is None or value[0] is None:
                found[number] = None
            elif pieces is not None:
                end = 0
                for _, start, stop in ranges:
                    begin, end = end, end + stop - start
                    pieces.append(value[0][begin:end])
        return found


def _decode(shard: Wanted, data: Bytes, size: int, version: int) -> ShardIndex:
    try:
        return ShardIndex.decode(data, size, version, shard.sharding)
    except Exception as error:
        error.add_note(f"while reading the index of {shard.path}")
        raise
