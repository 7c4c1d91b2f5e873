from typing import Any

import numpy as np
import pytest
import zarr
from zarr.codecs import BytesCodec, Crc32cCodec, GzipCodec, ShardingCodec, TransposeCodec, ZstdCodec
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync
from zarr.storage import MemoryStore

from tests.pipeline.planning import spec_of
from ucxstore import ChunkSizeError, ShardError
from ucxstore.codecs.chain import Chain
from ucxstore.codecs.classify import LeftToZarr, Sharded, classify
from ucxstore.pipeline.indexes.index import MISSING, ShardIndex, Sharding

NONE = 2**64 - 1


class Mine(ShardingCodec):
    pass


def sharding_of(codec: ShardingCodec | None = None, dtype: Any = "f4") -> Sharding | None:
    spec = spec_of((4, 6), dtype)
    codec = codec or ShardingCodec(chunk_shape=(2, 3))
    kind = classify((codec.evolve_from_array_spec(spec),), spec)
    return Sharding.of(kind, spec) if isinstance(kind, Sharded) else None


def index_of(entries: Any, size: int, **options: Any) -> tuple[ShardIndex, Sharding]:
    sharding = sharding_of(
        ShardingCodec(chunk_shape=(2, 3), index_codecs=[BytesCodec()], **options)
    )
    assert sharding is not None
    data = np.array(entries, "<u8").view("u1").reshape(-1)
    return ShardIndex.decode(data, size, 7, sharding), sharding


def test_what_is_known_of_a_sharding() -> None:
    sharding = sharding_of()
    assert sharding is not None
    assert (sharding.grid, sharding.count, sharding.chunk_nbytes) == ((2, 2), 4, 24)
    assert sharding.index_nbytes == 4 * 16 + 4
    assert sharding.index_ranges == [(3, 68, 0)]
    assert sharding.chain.raw
    assert sharding.coordinates(3) == (1, 1)
    start = sharding_of(ShardingCodec(chunk_shape=(2, 3), index_location="start"))
    assert start is not None
    assert start.index_ranges == [(1, 0, 68)]
    assert start.index_form != sharding.index_form


@pytest.mark.parametrize(
    ("codecs", "raw"),
    [
        ([BytesCodec()], True),
        ([BytesCodec(endian="big")], False),
        ([BytesCodec(), ZstdCodec()], False),
        ([BytesCodec(), Crc32cCodec()], False),
        ([TransposeCodec(order=(1, 0)), BytesCodec(), GzipCodec()], False),
    ],
)
def test_inner_codecs_that_are_known(codecs: Any, raw: bool) -> None:
    sharding = sharding_of(ShardingCodec(chunk_shape=(2, 3), codecs=codecs))
    assert sharding is not None
    assert sharding.chain.raw is raw


@pytest.mark.parametrize(
    "codec",
    [
        Mine(chunk_shape=(2, 3)),
        ShardingCodec(chunk_shape=(2, 3), codecs=[ShardingCodec(chunk_shape=(1, 1))]),
        ShardingCodec(
            chunk_shape=(2, 3), index_codecs=[TransposeCodec(order=(2, 1, 0)), BytesCodec()]
        ),
        ShardingCodec(
            chunk_shape=(2, 3), index_codecs=[BytesCodec(), Crc32cCodec(), Crc32cCodec()]
        ),
    ],
)
def test_what_is_not_known(codec: ShardingCodec) -> None:
    assert sharding_of(codec) is None


def test_nothing_may_be_around_the_shards() -> None:
    spec = spec_of((4, 6))
    codec = ShardingCodec(chunk_shape=(2, 3))
    for codecs in (TransposeCodec(order=(0, 1)), codec), (codec, ZstdCodec()):
        assert isinstance(classify(codecs, spec), LeftToZarr)
    assert isinstance(classify((BytesCodec(),), spec), Chain)


def test_an_index_is_as_zarr_wrote_it() -> None:
    store = MemoryStore()
    array = zarr.create_array(
        store, shape=(4, 6), shards=(4, 6), chunks=(2, 3), dtype="f4", compressors=None
    )
    array[:2] = 1
    value = sync(store.get("c/0/0", default_buffer_prototype())).as_numpy_array()
    sharding = sharding_of()
    assert sharding is not None
    index = ShardIndex.decode(value[-68:], value.size, 7, sharding)
    assert index.version == 7
    assert index.offsets.tolist() == [0, 24, MISSING, MISSING]
    offsets, lengths = index.find(np.array([1, 2, 0]), sharding, "a")
    assert offsets.tolist() == [24, MISSING, 0]
    assert lengths.tolist()[::2] == [24, 24]
    assert index.nbytes == 2 * 4 * 8
    assert index.sound

    broken = value[-68:].copy()
    broken[3] ^= 1
    with pytest.raises(ValueError, match="checksum"):
        ShardIndex.decode(broken, value.size, 7, sharding)
    with pytest.raises(ValueError, match="too short to hold its index"):
        ShardIndex.decode(value[-67:], 67, 7, sharding)


@pytest.mark.parametrize(
    "entry",
    [
        (101, 24),
        (77, 24),
        (0, 101),
        (NONE - 1, 24),
        (NONE, 24),
        (24, NONE),
        (NONE - 23, 24),
        (2**63, 2**63),
        (101, 0),
    ],
)
def test_entries_outside_of_the_value(entry: tuple[int, int]) -> None:
    index, sharding = index_of([(0, 24), entry, (NONE, NONE), (76, 24)], 100)
    assert not index.sound
    assert index.find(np.array([3, 2, 0]), sharding, "a")[0].tolist() == [76, MISSING, 0]
    with pytest.raises(
        ShardError, match=r"^a: its index says that inner chunk \(0, 1\) is outside"
    ):
        index.find(np.array([0, 1]), sharding, "a")


def test_raw_inner_chunks_have_one_size() -> None:
    index, sharding = index_of([(0, 24), (24, 23), (0, 0), (76, 24)], 100)
    assert not index.sound
    with pytest.raises(ChunkSizeError, match=r"^a: inner chunk \(0, 1\) has 23 bytes, and not 24$"):
        index.find(np.array([0, 1]), sharding, "a")
    with pytest.raises(ChunkSizeError, match=r"inner chunk \(1, 0\) has 0 bytes"):
        index.find(np.array([2]), sharding, "a")
    index, sharding = index_of(
        [(0, 24), (24, 23), (0, 0), (76, 24)], 100, codecs=[BytesCodec(), ZstdCodec()]
    )
    assert index.find(np.arange(4), sharding, "a")[1].tolist() == [24, 23, 0, 24]
    assert index.sound
