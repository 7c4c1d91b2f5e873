"""Writes of shards, none of which is ever put together in memory here."""

from collections.abc import Sequence
from functools import partial

from ucxstore.client.byte_ranges import NativeRange
from ucxstore.client.loops import Pending
from ucxstore.errors import ShardError
from ucxstore.pipeline.budget import Claim
from ucxstore.pipeline.compressors import Bytes
from ucxstore.pipeline.encode_plan import GROUP_BYTES
from ucxstore.pipeline.jobs import Jobs
from ucxstore.pipeline.shards.boxes import Boxes, Points
from ucxstore.pipeline.shards.fetch import ATTEMPTS, Fetching
from ucxstore.pipeline.shards.make import Content, Maker
from ucxstore.pipeline.shards.write_plan import Group, ShardWrite
from ucxstore.pipeline.stored import stored_by
from ucxstore.store import UcxStore
from ucxstore.zarr_compat import NDBuffer

# Pieces of a large shard for each thread that makes inner chunks: all of them are busy until the
# end, and a piece is still much more work than handing it to a thread.
_PIECES = 4


class ShardWriting:
    """A write of shards from one array.

    Parameters
    ----------
    store : UcxStore
    value : NDBuffer
        What is written: plain memory.
    """

    def __init__(self, store: UcxStore, value: NDBuffer) -> None:
        self._store = store
        self._value = value
        self._jobs = Jobs(store.budget)
        self._direct = self._encode = self._received = self._sent = 0

    async def write(self, groups: Sequence[Group]) -> None:
        """Write all groups.

        When this returns or raises, cancelled too, neither UCX nor a thread reads the array any
        more. Which shards were written if it raises is not said.
        """
        fetching = Fetching(self._store, *await self._store.session())
        sharding = groups[0].shards[0].sharding
        chain = None if sharding.raw is not None else sharding.chain
        stored = stored_by(sharding.codecs, chain, sharding.raw)
        maker = Maker(self._value, sharding, stored)
        await self._jobs.run(groups, partial(self._write, fetching, maker))
        self._store.counters.add(
            direct=self._direct,
            encode=self._encode,
            read=self._received,
            staged=self._received,
            written=self._sent,
        )

    async def _write(self, fetching: Fetching, maker: Maker, group: Group, claim: Claim) -> None:
        changed = [shard for shard in group.shards if shard.written.kept.size]
        existing = await self._read(fetching, changed, claim)
        # Either one shard, which may be large, or some small ones, for which one thread is enough.
        if len(group.shards) == 1:
            (shard,) = group.shards
            contents = [await self._make(maker, shard, existing.get(shard.key, {}))]
        else:
            contents = await self._jobs.in_thread(self._make_all, maker, group.shards, existing)
        claim.resize(sum(content.nbytes for content in contents))
        try:
            await self._send(fetching, group.shards, contents)
        finally:
            self._store.shard_indexes.drop(shard.key for shard in group.shards)

    async def _read(
        self, fetching: Fetching, shards: Sequence[ShardWrite], claim: Claim
    ) -> dict[str, dict[int, Bytes]]:
        """Fetch what is stored of shards and not overwritten, all of a shard of one value."""
        existing: dict[str, dict[int, Bytes]] = {}
        left = shards
        for _ in range(ATTEMPTS):
            if not left:
                return existing
            wanted: list[tuple[str, int, list[NativeRange]]] = []
            numbers: list[list[int]] = []
            for shard, index in zip(left, await fetching.indexes(left, claim), strict=True):
                if index is not None and shard.any_held(index):
                    kept = shard.written.kept
                    starts, lengths = index.find(kept, shard.sharding, shard.path)
                    held = starts >= 0
                    ends = (starts + lengths)[held].tolist()
                    ranges = [(1, a, b) for a, b in zip(starts[held].tolist(), ends, strict=True)]
                    wanted.append((shard.key, index.version, ranges))
                    numbers.append(kept[held].tolist())
            changed: set[str] = set()
            found = await fetching.chunks(wanted) if wanted else []
            for (key, *_), its_numbers, pieces in zip(wanted, numbers, found, strict=True):
                if pieces is None:
                    changed.add(key)
                else:
                    existing[key] = dict(zip(its_numbers, pieces, strict=True))
                    self._received += sum(piece.size for piece in pieces)
            self._store.shard_indexes.drop(changed)
            left = [shard for shard in left if shard.key in changed]
        raise ShardError(f"{left[0].path} was replaced each of {ATTEMPTS} times that it was read")

    async def _make(self, maker: Maker, shard: ShardWrite, existing: dict[int, Bytes]) -> Content:
        """Make a shard, in many threads if it is large."""
        content, parts, value = await self._jobs.in_thread(maker.begin, shard, existing)
        chunks = sum(len(part.chunks) for part in parts)
        pieces = min(
            -(-chunks * shard.sharding.chunk_nbytes // GROUP_BYTES), _PIECES * self._jobs.threads
        )
        step = max(1, -(-chunks // max(1, pieces)))
        made = await self._jobs.in_threads(
            [
                partial(
                    self._collect, maker, shard, part.between(begin, begin + step), value, existing
                )
                for part in parts
                for begin in range(0, len(part.chunks), step)
            ]
        )
        for values in made:
            content.put(values)
        return content

    async def _send(
        self, fetching: Fetching, shards: Sequence[ShardWrite], contents: Sequence[Content]
    ) -> None:
        """Store shards, all parts from where they lie, and delete those that hold nothing."""
        store = self._store
        values = [
            content.assemble(shard.sharding)
            for shard, content in zip(shards, contents, strict=True)
        ]
        full = [store.key_prefix + shard.key for shard in shards]
        empty = [key for key, parts in zip(full, values, strict=True) if not parts]
        owners: list[object] = [self._value.as_numpy_array()]
        for content in contents:
            owners += content.owners
        async with Pending(fetching.queue) as pending:
            if len(empty) < len(full):
                operation = fetching.connection.set_parts(
                    [key for key, parts in zip(full, values, strict=True) if parts],
                    [parts for parts in values if parts],
                    owners,
                    store.timeout,
                    fetching.queue.native,
                )
                pending.add(operation)
            if empty:
                native = fetching.queue.native
                pending.add(fetching.connection.delete(empty, store.timeout, native))
        pending.results()
        for shard, content, parts in zip(shards, contents, values, strict=True):
            self._direct += sum(len(boxes.chunks) for boxes in shard.written.sent)
            self._encode += content.made
            if parts:
                self._sent += int(content.lengths.sum()) + shard.sharding.index_nbytes

    # ---- in threads ----

    def _make_all(
        self, maker: Maker, shards: Sequence[ShardWrite], existing: dict[str, dict[int, Bytes]]
    ) -> list[Content]:
        contents = []
        for shard in shards:
            stored = existing.get(shard.key, {})
            content, parts, value = maker.begin(shard, stored)
            for part in parts:
                content.put(self._collect(maker, shard, part, value, stored))
            contents.append(content)
        return contents

    def _collect(
        self,
        maker: Maker,
        shard: ShardWrite,
        part: Boxes | Points,
        value: NDBuffer,
        existing: dict[int, Bytes],
    ) -> list[tuple[int, Bytes | None]]:
        made = []
        for each in maker.make(shard, part, value, existing):
            if self._jobs.stopping:
                break
            made.append(each)
        return made
