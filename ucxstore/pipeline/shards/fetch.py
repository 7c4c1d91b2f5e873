"""Fetch the indexes of shards, from the cache or from the server."""

from collections.abc import Sequence
from contextlib import nullcontext

from ucxstore.base.errors import ShardError
from ucxstore.client.requests import get
from ucxstore.codecs.compressors import Bytes
from ucxstore.pipeline.access import ChunkAccess
from ucxstore.pipeline.budget import Claim
from ucxstore.pipeline.indexes.index import ShardIndex
from ucxstore.pipeline.shards.shard import Shard

# How often a shard is read that others replace meanwhile. Each attempt takes two requests, and each
# replacement takes another client the time to send the whole shard.
ATTEMPTS = 10


async def fetch_indexes(
    access: ChunkAccess, shards: Sequence[Shard], claim: Claim | None = None
) -> list[ShardIndex | None]:
    """Return the indexes of shards, ``None`` for those that the store does not hold.

    A cached index may be out of date, which the next request finds out by its version. If it says
    that the shard holds nothing of what is read, there is no next request. Such an index is fetched
    again.

    Parameters
    ----------
    access : ChunkAccess
    shards : sequence of Shard
    claim : Claim, optional
        A claim that includes their bytes, if the caller has one.
    """
    cache = access.shard_indexes
    indexes = [cache.get(shard.key, shard.sharding.index_form) for shard in shards]
    unknown = [
        position
        for position, (shard, index) in enumerate(zip(shards, indexes, strict=True))
        if index is None or not shard.holds_any(index)
    ]
    if not unknown:
        return indexes
    asked = [shards[position] for position in unknown]
    nbytes = sum(shard.sharding.index_nbytes for shard in asked)
    with nullcontext() if claim is not None else await access.budget.claim(nbytes):
        read = 0
        keys = access.full_keys(shard.key for shard in asked)
        found = await access.channel.ask(
            get(keys, [shard.sharding.index_ranges for shard in asked])
        )
        for position, shard, value in zip(unknown, asked, found, strict=True):
            indexes[position] = index = None if value is None else _decode(shard, *value)
            if value is not None and index is not None:
                read += value[0].size
                if index.sound:  # else it might be used after the shard has been repaired
                    cache.put(shard.key, shard.sharding.index_form, index)
    access.counters.add(bytes_read=read, staged_bytes=read)
    return indexes


def replaced_too_often(shard: Shard) -> ShardError:
    """Return the error to raise after the last attempt."""
    return ShardError(f"{shard.path} was replaced each of {ATTEMPTS} times that it was read")


def _decode(shard: Shard, data: Bytes, size: int, version: int) -> ShardIndex:
    try:
        return ShardIndex.decode(data, size, version, shard.sharding)
    except Exception as error:
        error.add_note(f"while reading the index of {shard.path}")
        raise
