"""Write shards: fetch what stays of them, encode inner chunks, and send all in parts."""

from collections.abc import Sequence
from functools import partial

from ucxstore.client.requests import delete, get, set_parts
from ucxstore.codecs.compressors import Bytes
from ucxstore.pipeline.access import ChunkAccess
from ucxstore.pipeline.batch import Batch, Group, split_ranges
from ucxstore.pipeline.budget import Claim
from ucxstore.pipeline.scheduler import Scheduler
from ucxstore.pipeline.shards.fetch import ATTEMPTS, fetch_indexes, replaced_too_often
from ucxstore.pipeline.shards.gather import held_ranges
from ucxstore.pipeline.shards.make import Content, Made, Maker
from ucxstore.pipeline.shards.write_plan import ShardGroup, ShardWrite
from ucxstore.pipeline.write_plan import GROUP_BYTES

# Shares of a large shard for each thread. So all threads are busy until the end, and a share is
# still much more work than handing it to a thread.
_SHARES = 4


class ShardWriting:
    """A write of shards from one array. No shard is copied into one buffer.

    Parameters
    ----------
    access, batch
        The array of the batch is plain memory.
    """

    def __init__(self, access: ChunkAccess, batch: Batch) -> None:
        self._access = access
        self._value = batch.values
        self._scheduler = Scheduler(access.budget)
        self._direct = self._encode = self._received = self._sent = 0

    async def write(self, groups: Sequence[ShardGroup]) -> None:
        """Write all groups.

        When this returns or raises, even if it is cancelled, neither UCX nor a thread reads the
        array any more. If it raises, some of the shards may have been written.
        """
        maker = Maker(self._value, groups[0].shards[0].sharding)
        await self._scheduler.run(groups, partial(self._write, maker))
        self._access.counters.add(
            direct=self._direct,
            encode=self._encode,
            bytes_read=self._received,
            staged_bytes=self._received,
            bytes_written=self._sent,
        )

    async def _write(self, maker: Maker, group: ShardGroup, claim: Claim) -> None:
        partial_writes = [shard for shard in group.shards if shard.written.kept.size]
        existing = await self._read(partial_writes, claim)
        # A group is one shard, which may be large, or some small ones for one thread.
        if len(group.shards) == 1:
            (shard,) = group.shards
            contents = [await self._make(maker, shard, existing.get(shard.key, {}))]
        else:
            contents = await self._scheduler.in_thread(
                self._make_all, maker, group.shards, existing
            )
        claim.resize(sum(content.nbytes for content in contents))
        try:
            await self._send(group.shards, contents)
        finally:
            self._access.shard_indexes.drop(shard.key for shard in group.shards)

    async def _read(
        self, shards: Sequence[ShardWrite], claim: Claim
    ) -> dict[str, dict[int, Bytes]]:
        """Fetch the inner chunks that are not overwritten, all of a shard under one version."""
        existing: dict[str, dict[int, Bytes]] = {}
        left = shards
        for _ in range(ATTEMPTS):
            if not left:
                return existing
            changed = await self._try(left, existing, claim)
            self._access.shard_indexes.drop(changed)
            left = [shard for shard in left if shard.key in changed]
        raise replaced_too_often(left[0])

    async def _try(
        self, shards: Sequence[ShardWrite], existing: dict[str, dict[int, Bytes]], claim: Claim
    ) -> set[str]:
        """Fetch inner chunks; return the keys of shards that were replaced in the meantime."""
        wanted = Group(versions=[])
        numbers: dict[str, list[int]] = {}
        indexes = await fetch_indexes(self._access, shards, claim)
        for shard, index in zip(shards, indexes, strict=True):
            if index is not None and shard.holds_any(index):
                kept = shard.written.kept
                held, ranges = held_ranges(index, kept, shard.sharding, shard.path)
                numbers[shard.key] = held
                wanted.add_ranges(shard.key, index.version, ranges)
        if not wanted.keys:
            return set()
        found = await self._access.channel.ask(
            get(self._access.full_keys(wanted.keys), wanted.ranges, wanted.versions)
        )
        changed: set[str] = set()
        values: dict[str, list[Bytes]] = {key: [] for key in numbers}
        for key, ranges, value in zip(wanted.keys, wanted.ranges, found, strict=True):
            some = split_ranges(value, ranges)
            if some is None:
                changed.add(key)
            else:
                values[key] += some
        for key in numbers.keys() - changed:
            existing[key] = dict(zip(numbers[key], values[key], strict=True))
            self._received += sum(value.size for value in values[key])
        return changed

    async def _make(self, maker: Maker, shard: ShardWrite, existing: dict[int, Bytes]) -> Content:
        """Make the content of a shard, in many threads if it is large."""
        started = await self._scheduler.in_thread(maker.start, shard, existing)
        chunks = sum(len(inner.chunks) for inner in started.inner)
        shares = min(
            -(-chunks * shard.sharding.chunk_nbytes // GROUP_BYTES),
            _SHARES * self._scheduler.threads,
        )
        step = max(1, -(-chunks // max(1, shares)))
        made: list[Made] = await self._scheduler.in_threads(
            [
                partial(maker.make, started, inner.only(slice(start, start + step)), self._stopping)
                for inner in started.inner
                for start in range(0, len(inner.chunks), step)
            ]
        )
        for values in made:
            started.content.put(values)
        return started.content

    async def _send(self, shards: Sequence[ShardWrite], contents: Sequence[Content]) -> None:
        """Send shards, all bytes from where they lie, and delete those that hold nothing."""
        values = [
            content.assemble(shard.sharding)
            for shard, content in zip(shards, contents, strict=True)
        ]
        full = self._access.full_keys(shard.key for shard in shards)
        empty = [key for key, layouts in zip(full, values, strict=True) if not layouts]
        held = [key for key, layouts in zip(full, values, strict=True) if layouts]
        owners: list[object] = [self._value.as_numpy_array()]
        for content in contents:
            owners += content.owners
        async with self._access.channel.flight() as flight:
            if held:
                flight.start(set_parts(held, [layouts for layouts in values if layouts], owners))
            if empty:
                flight.start(delete(empty))
        flight.results()
        for shard, content, layouts in zip(shards, contents, values, strict=True):
            self._direct += sum(len(boxes.chunks) for boxes in shard.written.sent)
            self._encode += content.made
            if layouts:
                self._sent += int(content.lengths.sum()) + shard.sharding.index_nbytes

    def _stopping(self) -> bool:
        return self._scheduler.stopping

    # ---- in threads ----

    def _make_all(
        self, maker: Maker, shards: Sequence[ShardWrite], existing: dict[str, dict[int, Bytes]]
    ) -> list[Content]:
        contents = []
        for shard in shards:
            started = maker.start(shard, existing.get(shard.key, {}))
            for inner in started.inner:
                started.content.put(maker.make(started, inner, self._stopping))
            contents.append(started.content)
        return contents
