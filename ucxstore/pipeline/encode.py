"""Write chunks that are encoded or written in part: encode some while others are being sent."""

from collections.abc import Sequence

from ucxstore.client.memory import Memory, describe
from ucxstore.client.requests import delete
from ucxstore.client.requests import set as set_values
from ucxstore.pipeline.access import ChunkAccess
from ucxstore.pipeline.batch import Batch, Group
from ucxstore.pipeline.budget import Claim
from ucxstore.pipeline.codecs.chain import Chain
from ucxstore.pipeline.codecs.compressors import Bytes
from ucxstore.pipeline.existing import read_encoded, read_raw
from ucxstore.pipeline.merge import Merger
from ucxstore.pipeline.scheduler import Scheduler


class Encoding:
    """A write of chunks from one array, by way of codecs or merges.

    Parameters
    ----------
    access, batch, chain
        The array of the batch is plain memory.
    """

    def __init__(self, access: ChunkAccess, batch: Batch, chain: Chain) -> None:
        self._access = access
        self._batch = batch
        self._read_existing = read_raw if chain.raw else read_encoded
        _, spec, *_ = batch.chunks[0]
        self._merger = Merger(chain, spec, batch.drop_axes)
        self._scheduler = Scheduler(access.budget)
        self._received = self._sent = 0

    async def write(self, groups: list[Group]) -> None:
        """Write all groups.

        When this returns or raises, even if it is cancelled, neither UCX nor a thread reads the
        array any more. If it raises, some of the chunks may have been written.
        """
        await self._scheduler.run(groups, self._write)
        self._access.counters.add(
            encode=sum(len(group.keys) for group in groups),
            bytes_read=self._received,
            staged_bytes=self._received,
            bytes_written=self._sent,
        )

    async def _write(self, group: Group, claim: Claim) -> None:
        stored: list[Bytes | None] = [None] * len(group.keys)
        if group.is_part:
            existing = await self._read_existing(self._access, group)
            self._received += existing.nbytes
            if existing.again:
                claim.release()  # nobody may wait for a claim while holding one
                for single in existing.again:
                    with await self._access.budget.claim(single.limit) as its_claim:
                        await self._write(single, its_claim)
                return
            stored = existing.stored
        values = await self._scheduler.in_thread(self._make_all, group.positions, stored)
        claim.resize(sum(value.size for value in values if value is not None))
        await self._send(group.keys, values)

    async def _send(self, keys: Sequence[str], values: Sequence[Bytes | None]) -> None:
        """Store values, each from its own memory, and delete the keys that have none."""
        full = self._access.full_keys(keys)
        empty = [key for key, value in zip(full, values, strict=True) if value is None]
        held = [(key, value) for key, value in zip(full, values, strict=True) if value is not None]
        async with self._access.channel.flight() as flight:
            if held:
                memory = [Memory(describe(value), value) for _, value in held]
                flight.start(set_values([key for key, _ in held], memory))
            if empty:
                flight.start(delete(empty))
        flight.results()
        self._sent += sum(value.size for _, value in held)

    # ---- in threads ----

    def _make_all(self, positions: Sequence[int], stored: list[Bytes | None]) -> list[Bytes | None]:
        """Make the bytes to store of each chunk; ``None`` if it is to be deleted."""
        made: list[Bytes | None] = []
        for index, position in enumerate(positions):
            if self._scheduler.stopping:
                break
            chunk = self._batch.chunks[position]
            existing, stored[index] = stored[index], None  # frees its memory after the merge
            try:
                made.append(self._merger.make(self._batch.values, chunk, existing))
            except Exception as error:
                path, *_ = chunk
                error.add_note(f"while writing {path}")
                raise
        return made
