"""Write chunks that are encoded or written in part: encode some while others are being sent.

What stays of a chunk that is written in part is read first.
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from ucxstore.client.memory import Memory, describe
from ucxstore.client.requests import ANY_VERSION, CHANGED, MISSING, READ, delete, get
from ucxstore.client.requests import set as set_values
from ucxstore.codecs.buffers import allocate
from ucxstore.codecs.chain import Chain
from ucxstore.codecs.compressors import Bytes
from ucxstore.pipeline.access import ChunkAccess
from ucxstore.pipeline.batch import Batch, Group, RunBatch
from ucxstore.pipeline.budget import Claim
from ucxstore.pipeline.geometry.runs import count_bytes, shifted
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
        self._read_existing = _read_raw if chain.raw else _read_encoded
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


class _Existing(NamedTuple):
    """The stored chunks of a group.

    Parameters
    ----------
    stored : list of Bytes or None
        The stored bytes of each chunk, for `Chain.load`; ``None`` if it is missing.
    nbytes : int
        How many bytes were received.
    again : list of Group
        Groups of one chunk to read instead, if `stored` cannot be used.
    """

    stored: list[Bytes | None]
    nbytes: int
    again: list[Group]


async def _read_encoded(access: ChunkAccess, group: Group) -> _Existing:
    """Fetch the whole values of encoded chunks, as far as the group's limit allows."""
    found = await access.channel.ask(get(access.full_keys(group.keys), group.ranges))
    stored = [None if value is None else value[0] for value in found]
    sizes = [0 if value is None else value[1] for value in found]
    nbytes = sum(value.size for value in stored if value is not None)
    again: list[Group] = []
    if nbytes < sum(sizes):  # some are cut off
        out = group.limit // len(group.keys)
        again = [group.alone(index, size + out) for index, size in enumerate(sizes)]
    return _Existing(stored, nbytes, again)


async def _read_raw(access: ChunkAccess, group: Group) -> _Existing:
    """Read the runs of raw chunks that are not written, straight into new buffers for them."""
    versions: list[int | None] = [ANY_VERSION] * len(group.keys)
    if any(len(runs) > 1 for runs in group.runs):
        # All runs of a chunk must be of one value, so they are read by its version.
        keys = access.full_keys(group.keys)
        heads = await access.channel.ask(get(keys, [[(1, 0, 0)]] * len(keys)))
        versions = [None if head is None else head[2] for head in heads]
    memory = allocate(group.nbytes)
    starts = list(accumulate(group.sizes, initial=0))
    batch = RunBatch()
    for chunk, (chunk_runs, version) in enumerate(zip(group.runs, versions, strict=True)):
        for runs in chunk_runs if version is not None else ():
            batch.positions.append(chunk)
            batch.keys.append(group.keys[chunk])
            batch.sources.append(runs)
            batch.targets.append(shifted(runs, starts[chunk]))
            batch.sizes.append(group.sizes[chunk])
            batch.versions.append(version or ANY_VERSION)
            batch.nbytes.append(count_bytes(runs))
    out = Memory(describe(memory), memory)
    statuses = await access.channel.ask(batch.request(access, out))
    pairs = list(zip(batch.nbytes, statuses, strict=True))
    received = sum(nbytes for nbytes, status in pairs if status == READ)
    if CHANGED in statuses:
        again = [group.alone(index, size) for index, size in enumerate(group.sizes)]
        return _Existing([], received, again)
    missing = {chunk for chunk, version in enumerate(versions) if version is None}
    missing |= {
        chunk for chunk, status in zip(batch.positions, statuses, strict=True) if status == MISSING
    }
    stored = [
        None if chunk in missing else memory[start:end]
        for chunk, (start, end) in enumerate(pairwise(starts))
    ]
    return _Existing(stored, received, [])
