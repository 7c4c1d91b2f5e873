"""Reads of shards: their indexes, and then only the inner chunks that are wanted."""

from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from zarr.abc.codec import GetResult

from ucxstore.client.byte_ranges import NativeRange
from ucxstore.client.loops import LoopQueue, Pending
from ucxstore.client.memory import describe
from ucxstore.errors import ShardError
from ucxstore.pipeline.decode import AnyItem, Decoding, Found
from ucxstore.pipeline.decode_frames import SplitChunk
from ucxstore.pipeline.decode_plan import Group
from ucxstore.pipeline.shards.fetch import ATTEMPTS, Fetching
from ucxstore.pipeline.shards.gather import Gathering
from ucxstore.pipeline.shards.plan import Shard, rounds
from ucxstore.store import UcxStore
from ucxstore.zarr_compat import NDBuffer

if TYPE_CHECKING:
    from ucxstore._core import Connection, Operation

# Bytes of indexes that are asked for at once, and of arrays beside the one that is read into.
_ROUND_BYTES = 16 << 20

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
        fetching = Fetching(self._store, *await self._store.session())
        for left in rounds(shards, _ROUND_BYTES):
            for _ in range(ATTEMPTS):
                left = await self._try(fetching, left)
                if not left:
                    break
            else:
                raise ShardError(
                    f"{left[0].path} was replaced each of {ATTEMPTS} times that it was read"
                )

    async def _try(self, fetching: Fetching, shards: list[Shard]) -> list[Shard]:
        """Read shards, and return those that were replaced before all of them was there."""
        indexes = await fetching.indexes(shards)
        gathering = Gathering(describe(self._out.as_numpy_array())[0])
        targets = [shard.target(self._out) for shard in shards]
        for shard, index, target in zip(shards, indexes, targets, strict=True):
            gathering.add(shard, index, target)

        changed: set[str] = set()
        async with Pending(fetching.queue) as pending:
            if gathering.keys:
                pending.add(self._start(fetching, gathering))
            if gathering.items:
                decoding = _InnerDecoding(fetching, self._out, gathering)
                await decoding.read(fetching.connection, fetching.queue, gathering.groups())
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

    def _start(self, fetching: Fetching, gathering: Gathering) -> "Operation":
        return fetching.connection.read_parts(
            [self._store.key_prefix + key for key in gathering.keys],
            gathering.sources,
            gathering.targets,
            gathering.address,
            [-1] * len(gathering.keys),
            [gathering.versions[key] for key in gathering.keys],
            gathering.owners,
            self._store.timeout,
            fetching.queue.native,
        )


class _InnerDecoding(Decoding):
    """A read of encoded inner chunks.

    `changed` then has the keys of shards that have been replaced, and of which what was read is
    worth nothing.
    """

    def __init__(self, fetching: Fetching, out: NDBuffer, gathering: Gathering) -> None:
        inner, *_ = gathering.items[0]
        super().__init__(fetching.store, gathering.items, out, inner.sharding.chain, ())
        self.changed: set[str] = set()
        self._fetching = fetching
        self._versions = gathering.versions

    def _count(self, chunks: int) -> None:
        super()._count(0)  # those of a shard are counted when all of them are there

    def _target(self, item: AnyItem) -> NDBuffer:
        target: NDBuffer
        *_, target = item
        return target

    def _fetches_alone(self, connection: "Connection") -> bool:
        return False  # that may need another look at the shard

    async def _split(
        self, connection: "Connection", queue: LoopQueue, groups: list[Group]
    ) -> list[SplitChunk]:
        return []  # that is for values that are one chunk

    async def _fetch(
        self,
        connection: "Connection",
        queue: LoopQueue,
        keys: list[str],
        ranges: list[list[NativeRange]],
    ) -> list[Found]:
        wanted = [
            (key, self._versions[key], [each for _, (each,) in pairs])
            for key, pairs in groupby(zip(keys, ranges, strict=True), itemgetter(0))
        ]
        found: list[Found] = []
        for (key, version, its_ranges), pieces in zip(
            wanted, await self._fetching.chunks(wanted), strict=True
        ):
            if pieces is None:
                self.changed.add(key)
                found += [None] * len(its_ranges)
            else:
                found += [(piece, piece.size, version) for piece in pieces]
        return found
