"""Reads of shards: their indexes, and then only the inner chunks that are wanted."""

from collections.abc import Sequence
from itertools import batched, groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from zarr.abc.codec import GetResult
from zarr.core.buffer import NDBuffer

from ucxstore.byte_ranges import NativeRange
from ucxstore.compressors import Bytes
from ucxstore.decode import AnyItem, Decoding, Found
from ucxstore.decode_frames import SplitChunk
from ucxstore.decode_plan import Group
from ucxstore.errors import ShardError
from ucxstore.loops import LoopQueue, Pending
from ucxstore.memory import describe
from ucxstore.shard_gather import Gathering
from ucxstore.shard_index import ShardIndex
from ucxstore.shard_plan import Shard, rounds
from ucxstore.store import UcxStore

if TYPE_CHECKING:
    from ucxstore._core import Connection, Operation

# How often a shard is read anew that was replaced meanwhile. Each time takes two requests, while
# whoever replaces it sends all of it.
_ATTEMPTS = 10

# Bytes of indexes that are asked for at once, and of arrays beside the one that is read into.
_ROUND_BYTES = 16 << 20

# Byte ranges in one item of a request: more than half of what a server takes.
_MOST_RANGES = 1 << 13

_HELD = 0  # what `read_parts` says of a value that is still the one that is meant


class ShardReading:
    """A read of shards into one array.

    All that is read of a shard is of one value, even if others replace it meanwhile.

    Parameters
    ----------
    store : UcxStore
    out : NDBuffer
        Where the selection goes: plain memory, which does not overlap itself.
    drop_axes : tuple of int
        As zarr gives them.
    """

    def __init__(self, store: UcxStore, out: NDBuffer, drop_axes: tuple[int, ...]) -> None:
        self.missing: dict[int, GetResult] = {}
        self._store = store
        self._out = out
        self._drop_axes = drop_axes

    async def read(self, shards: Sequence[Shard]) -> None:
        """Read them.

        When this returns or raises, cancelled too, nobody writes to the array any more. `missing`
        then has the results of shards that the store does not hold.
        """
        connection, queue = await self._store.session()
        for left in rounds(shards, _ROUND_BYTES):
            for _ in range(_ATTEMPTS):
                left = await self._try(connection, queue, left)
                if not left:
                    break
            else:
                raise ShardError(
                    f"{left[0].item[0]} was replaced each of {_ATTEMPTS} times that it was read"
                )

    async def _try(
        self, connection: "Connection", queue: LoopQueue, shards: list[Shard]
    ) -> list[Shard]:
        """Read shards, and return those that were replaced before all of them was there."""
        indexes = await self._find_indexes(connection, queue, shards)
        gathering = Gathering(describe(self._out.as_numpy_array())[0])
        targets = [shard.target(self._out) for shard in shards]
        for shard, index, target in zip(shards, indexes, targets, strict=True):
            gathering.add(shard, index, target)

        changed: set[str] = set()
        async with Pending(queue) as pending:
            if gathering.keys:
                pending.add(self._start(connection, queue, gathering))
            if gathering.items:
                decoding = _InnerDecoding(self._store, self._out, gathering)
                await decoding.read(connection, queue, gathering.groups())
                changed |= decoding.changed
        read = 0
        for statuses in pending.results():
            for key, nbytes, status in zip(gathering.keys, gathering.sizes, statuses, strict=True):
                if status == _HELD:
                    read += nbytes
                else:
                    changed.add(key)
        self._store.shard_indexes.drop(changed)
        direct = decode = 0
        for shard, index, target in zip(shards, indexes, targets, strict=True):
            if shard.key in changed:
                continue
            shard.finish(target, self._out, self._drop_axes)
            if index is None:
                self.missing[shard.position] = GetResult(status="missing")
            direct += sum(len(moving.part.chunks) for moving in shard.wanted.direct)
            decode += sum(len(part.chunks) for part in shard.wanted.decode)
        self._store.counters.add(direct=direct, decode=decode, read=read)
        return [shard for shard in shards if shard.key in changed]

    def _start(
        self, connection: "Connection", queue: LoopQueue, gathering: Gathering
    ) -> "Operation":
        return connection.read_parts(
            [self._store.key_prefix + key for key in gathering.keys],
            gathering.sources,
            gathering.targets,
            gathering.address,
            [-1] * len(gathering.keys),
            [gathering.generations[key] for key in gathering.keys],
            gathering.owners,
            self._store.timeout,
            queue.native,
        )

    async def _find_indexes(
        self, connection: "Connection", queue: LoopQueue, shards: list[Shard]
    ) -> list[ShardIndex | None]:
        """Return the indexes of shards, ``None`` for those that the store does not hold."""
        cache = self._store.shard_indexes
        indexes = [cache.get(shard.key, shard.sharding.index_form) for shard in shards]
        # Of shards of which nothing is read, nothing would tell that their index is out of date.
        unknown = [
            position
            for position, (shard, index) in enumerate(zip(shards, indexes, strict=True))
            if index is None or not shard.any_held(index)
        ]
        if not unknown:
            return indexes
        asked = [shards[position] for position in unknown]
        with await self._store.budget.claim(sum(s.sharding.index_nbytes for s in asked)):
            operation = connection.get(
                [self._store.key_prefix + shard.key for shard in asked],
                [shard.sharding.index_ranges for shard in asked],
                self._store.timeout,
                queue.native,
            )
            found = await queue.complete(operation)
            read = 0
            for position, shard, value in zip(unknown, asked, found, strict=True):
                index = None
                if value is not None:
                    data, size, generation = value
                    read += data.size
                    index = _decode_index(shard, data, size, generation)
                    cache.put(shard.key, shard.sharding.index_form, index)
                indexes[position] = index
        self._store.counters.add(read=read, staged=read)
        return indexes


def _decode_index(shard: Shard, data: Bytes, size: int, generation: int) -> ShardIndex:
    try:
        return ShardIndex.decode(data, size, generation, shard.sharding)
    except Exception as error:
        error.add_note(f"while reading the index of {shard.item[0]}")
        raise


class _InnerDecoding(Decoding):
    """A read of encoded inner chunks.

    `changed` then has the keys of shards that have been replaced, and of which what was read is
    worth nothing.
    """

    def __init__(self, store: UcxStore, out: NDBuffer, gathering: Gathering) -> None:
        inner, *_ = gathering.items[0]
        super().__init__(store, gathering.items, out, inner.sharding.chain, ())
        self.changed: set[str] = set()
        self._generations = gathering.generations

    def _count(self, chunks: int) -> None:
        super()._count(0)  # those of a shard are counted when all of them are there

    async def _split(
        self, connection: "Connection", queue: LoopQueue, groups: list[Group]
    ) -> list[SplitChunk]:
        return []  # that is for values that are one chunk

    def _target(self, item: AnyItem) -> NDBuffer:
        target: NDBuffer
        *_, target = item
        return target

    async def _fetch(
        self,
        connection: "Connection",
        queue: LoopQueue,
        keys: list[str],
        ranges: list[list[NativeRange]],
    ) -> list[Found]:
        # A shard is looked up, and perhaps opened, once for all inner chunks that are wanted now.
        wanted = [
            (key, list(some))
            for key, pairs in groupby(zip(keys, ranges, strict=True), itemgetter(0))
            for some in batched((each for _, (each,) in pairs), _MOST_RANGES)
        ]
        operation = connection.get(
            [self._store.key_prefix + key for key, _ in wanted],
            [some for _, some in wanted],
            self._store.timeout,
            queue.native,
            [self._generations[key] for key, _ in wanted],
        )
        found: list[Found] = []
        for (key, some), value in zip(wanted, await queue.complete(operation), strict=True):
            if value is None or value[0] is None:
                self.changed.add(key)
                found += [None] * len(some)
                continue
            data, _, generation = value
            self._received += data.size
            end = 0
            for _, start, stop in some:
                begin, end = end, end + stop - start
                found.append((data[begin:end], stop - start, generation))
        return found
