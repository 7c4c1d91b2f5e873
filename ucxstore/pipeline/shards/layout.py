"""Lay out the inner chunks of a new shard, and make its index: pure, no I/O."""

from functools import lru_cache

import numpy as np
from zarr.codecs import ShardingCodec
from zarr.codecs.sharding import SubchunkWriteOrder, _ShardIndex

from ucxstore.pipeline.codecs.compressors import Bytes
from ucxstore.pipeline.indexes.index import Ints, Sharding


def lay_out(sharding: Sharding, lengths: Ints) -> tuple[Ints, Bytes]:
    """Order inner chunks as zarr does, and make the index of them.

    Parameters
    ----------
    sharding : Sharding
    lengths : numpy.ndarray
        Bytes of each inner chunk, in C order; 0 for those that are not stored.

    Returns
    -------
    numpy.ndarray
        The numbers of those that are stored, in the order in which they lie.
    numpy.ndarray
        The index, encoded.
    """
    codec = sharding.codec
    order = _order(codec.subchunk_write_order, sharding.grid)
    held = order[lengths[order] > 0]
    ends = np.cumsum(lengths[held])
    if codec.index_location == "start":
        ends += sharding.index_nbytes
    index = _ShardIndex.create_empty(sharding.grid)
    entries = index.offsets_and_lengths.reshape(-1, 2)
    entries[held, 0] = ends - lengths[held]
    entries[held, 1] = lengths[held]
    return held, codec._encode_shard_index_sync(index).as_numpy_array()


@lru_cache(maxsize=16)
def _order(name: SubchunkWriteOrder, grid: tuple[int, ...]) -> Ints:
    """Return the numbers of inner chunks in zarr's order. Slow for many, so it is cached."""
    any_codec = ShardingCodec(chunk_shape=grid)
    coordinates = list(any_codec._subchunk_order_iter(grid, name))
    where = np.array(coordinates, np.int64).reshape(-1, len(grid))
    order = np.asarray(np.ravel_multi_index(tuple(where.T), grid))
    order.flags.writeable = False
    return order
