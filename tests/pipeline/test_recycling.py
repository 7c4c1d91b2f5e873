"""The buffer class with recycled memory, which zarr then uses for every store of a process."""

import numpy as np
import pytest
import zarr
from zarr.abc.codec import ArrayBytesCodec
from zarr.codecs import BytesCodec, ShardingCodec
from zarr.core.buffer import cpu, default_buffer_prototype, gpu
from zarr.core.buffer.cpu import numpy_buffer_prototype
from zarr.storage import MemoryStore

from ucxstore.pipeline.recycling import NDBUFFER, RecyclingNDBuffer


@pytest.fixture(autouse=True)
def recycling() -> object:
    with zarr.config.set({"ndbuffer": NDBUFFER}):
        yield


def test_the_prototype_is_still_the_default_one() -> None:
    default = default_buffer_prototype()
    assert default.nd_buffer is RecyclingNDBuffer
    assert default == numpy_buffer_prototype()
    assert numpy_buffer_prototype() == default
    assert len({RecyclingNDBuffer, cpu.NDBuffer}) == 1
    assert RecyclingNDBuffer != gpu.NDBuffer
    assert RecyclingNDBuffer != cpu.Buffer


def test_nested_shards_in_other_stores() -> None:
    """zarr refuses prototypes that are not the default one within shards."""
    inner: list[ArrayBytesCodec] = [ShardingCodec(chunk_shape=(2,), codecs=[BytesCodec()])]
    array = zarr.create_array(
        MemoryStore(),
        shape=(8,),
        chunks=(8,),
        dtype="i4",
        filters=None,
        compressors=None,
        serializer=ShardingCodec(chunk_shape=(4,), codecs=inner),
    )
    array[:] = np.arange(8)
    np.testing.assert_array_equal(array[1:5], np.arange(8)[1:5])
