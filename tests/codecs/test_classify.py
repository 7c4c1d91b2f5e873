"""What codecs and dtypes mean for chunks: raw, encoded, sharded, or left to zarr."""

from typing import Any

import numpy as np
import pytest
from zarr.abc.codec import Codec
from zarr.codecs import BytesCodec, Crc32cCodec, ShardingCodec, ZstdCodec
from zarr.codecs._v2 import V2Codec

from tests.pipeline.planning import RAW, V2_RAW, chain_of, spec_of
from ucxstore.codecs.chain import Chain
from ucxstore.codecs.classify import LeftToZarr, Sharded, classify


@pytest.mark.parametrize(
    ("codecs", "dtype"),
    [
        ((BytesCodec(endian="big"),), "<f4"),
        ((BytesCodec(endian="little"),), ">f4"),
        ((BytesCodec(endian="big"),), [("a", "<f4"), ("b", "u1")]),
        ((BytesCodec(), ZstdCodec()), "f4"),
        ((V2Codec(filters=None, compressor=object()),), "f4"),
        ((V2Codec(filters=(object(),), compressor=None),), "f4"),
        ((), "f4"),
    ],
)
def test_codecs_that_change_bytes(codecs: tuple[Codec, ...], dtype: Any) -> None:
    kind = classify(codecs, spec_of((20,), dtype))
    assert isinstance(kind, LeftToZarr) or (isinstance(kind, Chain) and not kind.raw)


@pytest.mark.parametrize(
    ("codecs", "dtype"),
    [
        ((BytesCodec(endian="big"),), ">f4"),
        ((BytesCodec(endian=None),), "u1"),
        ((BytesCodec(endian=None),), "S7"),
        (RAW, "U3"),
        (RAW, "M8[ns]"),
        (RAW, "c16"),
        (RAW, "?"),
        (RAW, [("a", "<f4"), ("b", "u1")]),
        (V2_RAW, ">i2"),
        (V2_RAW, "S5"),
    ],
)
def test_all_other_dtypes_are_raw(codecs: tuple[Codec, ...], dtype: Any) -> None:
    chain = chain_of(codecs, spec_of((20,), dtype))
    assert chain.raw
    assert chain.dtype == np.dtype(dtype)


def test_a_subclass_of_a_codec_is_left_to_zarr() -> None:
    class Odd(BytesCodec):
        pass

    assert isinstance(classify((Odd(),), spec_of((20,))), LeftToZarr)


def test_which_chains_are_known() -> None:
    spec = spec_of((100,))
    assert chain_of((BytesCodec(),), spec).raw
    assert not chain_of((BytesCodec(endian="big"),), spec).raw
    assert isinstance(classify((ShardingCodec(chunk_shape=(10,)),), spec), Sharded)

    class Mine(ZstdCodec):
        pass

    assert isinstance(classify((BytesCodec(), Mine()), spec), LeftToZarr)


@pytest.mark.parametrize(
    ("codecs", "straight", "outer"),
    [
        ((ZstdCodec(),), True, 0),
        ((ZstdCodec(), Crc32cCodec()), True, 1),
        ((Crc32cCodec(), ZstdCodec()), False, 2),
    ],
)
def test_what_writes_into_given_memory(codecs: Any, straight: bool, outer: int) -> None:
    chain = chain_of((BytesCodec(), *codecs), spec_of((100,)))
    assert (chain.compressor is not None) == straight
    assert len(chain.outer) == outer
    assert chain.values_nbytes(spec_of((7,))) == 28
