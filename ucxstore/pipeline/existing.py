"""Read what is stored of chunks that are written in part."""

from itertools import accumulate, pairwise
from typing import NamedTuple

from ucxstore.client.memory import Memory, describe
from ucxstore.client.requests import ANY_VERSION, CHANGED, MISSING, READ, get
from ucxstore.pipeline.access import ChunkAccess
from ucxstore.pipeline.batch import Group, RunBatch
from ucxstore.pipeline.codecs.buffers import allocate
from ucxstore.pipeline.codecs.compressors import Bytes
from ucxstore.pipeline.geometry.runs import count_bytes, shifted


class Existing(NamedTuple):
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


async def read_encoded(access: ChunkAccess, group: Group) -> Existing:
    """Fetch the whole values of encoded chunks, as far as the group's limit allows."""
    found = await access.channel.ask(get(access.full_keys(group.keys), group.ranges))
    stored = [None if value is None else value[0] for value in found]
    sizes = [0 if value is None else value[1] for value in found]
    nbytes = sum(value.size for value in stored if value is not None)
    again: list[Group] = []
    if nbytes < sum(sizes):  # some are cut off
        out = group.limit // len(group.keys)
        again = [group.alone(index, size + out) for index, size in enumerate(sizes)]
    return Existing(stored, nbytes, again)


async def read_raw(access: ChunkAccess, group: Group) -> Existing:
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
        return Existing([], received, again)
    missing = {chunk for chunk, version in enumerate(versions) if version is None}
    missing |= {
        chunk for chunk, status in zip(batch.positions, statuses, strict=True) if status == MISSING
    }
    stored = [
        None if chunk in missing else memory[start:end]
        for chunk, (start, end) in enumerate(pairwise(starts))
    ]
    return Existing(stored, received, [])
