"""Read shards: their indexes first, and then only the inner chunks that are wanted."""

from collections.abc import Sequence

from zarr.abc.codec import GetResult

from ucxstore.client.memory import Memory, describe
from ucxstore.client.requests import READ
from ucxstore.pipeline.access import ChunkAccess
from ucxstore.pipeline.batch import Batch, Group
from ucxstore.pipeline.decode import Decoding
from ucxstore.pipeline.shards.fetch import ATTEMPTS, fetch_indexes, replaced_too_often
from ucxstore.pipeline.shards.gather import Gathering
from ucxstore.pipeline.shards.read_plan import ShardRead, rounds

# Bytes of indexes, and of arrays beside the one that is read into, that a read has at once.
ROUND_BYTES = 16 << 20


class ShardReading:
    """A read of shards into one array.

    All that is read of a shard is of one version, even if other clients replace it meanwhile.

    Parameters
    ----------
    access, batch
        The array of the batch is plain memory, which does not overlap itself.
    decoded : ChunkAccess, optional
        Where inner chunks are read as servers decode them, the access to these.

    Attributes
    ----------
    missing : dict
        The results of shards that the store does not hold.
    """

    def __init__(
        self, access: ChunkAccess, batch: Batch, decoded: ChunkAccess | None = None
    ) -> None:
        self.missing: dict[int, GetResult] = {}
        self.access = access
        self.batch = batch
        self._decoded = decoded

    async def read(self, shards: Sequence[ShardRead]) -> None:
        """Read all shards.

        When this returns or raises, even if it is cancelled, nobody writes to the array any more.
        """
        for left in rounds(shards, ROUND_BYTES):
            for _ in range(ATTEMPTS):
                left = await self._try(left)
                if not left:
                    break
            else:
                raise replaced_too_often(left[0])

    async def _try(self, shards: list[ShardRead]) -> list[ShardRead]:
        """Read shards, and return those that were replaced in the meantime."""
        indexes = await fetch_indexes(self.access, shards)
        prefix = "" if self._decoded is None else self.access.key_prefix
        gathering = Gathering(self.batch.values, prefix)
        targets = [shard.target(self.batch.values) for shard in shards]
        for shard, index, target in zip(shards, indexes, targets, strict=True):
            gathering.add(shard, index, target)

        changed = {gathering.shards.get(key, key) for key in await self._read(gathering)}
        self.access.shard_indexes.drop(changed)
        direct = decode = 0
        for shard, index, target in zip(shards, indexes, targets, strict=True):
            if shard.key in changed:
                continue
            shard.finish(target, self.batch)
            if index is None:
                self.missing[shard.position] = GetResult(status="missing")
            direct += sum(len(moving.chunks.chunks) for moving in shard.wanted.direct)
            decode += sum(len(inner.chunks) for inner in shard.wanted.decode)
        if self._decoded is None:
            self.access.counters.add(direct=direct, decode=decode)
        else:
            self.access.counters.add(decoded=direct + decode)
        return [shard for shard in shards if shard.key in changed]

    async def _read(self, gathering: Gathering) -> set[str]:
        """Move and decode inner chunks; return the keys of those that have been replaced."""
        runs, access = gathering.runs, self._decoded or self.access
        changed: set[str] = set()
        async with access.channel.flight() as flight:
            if runs.keys:
                out = Memory(describe(gathering.out), gathering.owners)
                flight.start(runs.request(access, out))
            groups = gathering.groups()
            if groups:
                changed |= await self._decode(gathering, groups)
        read = 0
        for statuses in flight.results():
            for key, nbytes, status in zip(runs.keys, runs.nbytes, statuses, strict=True):
                if status == READ:
                    read += nbytes
                else:
                    changed.add(key)
        access.counters.add(bytes_read=read)
        return changed

    async def _decode(self, gathering: Gathering, groups: list[Group]) -> set[str]:
        name, *_ = gathering.chunks[0]
        batch = Batch(gathering.chunks, self.batch.values)
        access = self._decoded or self.access
        decoding = Decoding(access, batch, name.sharding.chain, gathering.targets)
        await decoding.read(groups)
        return decoding.changed
