from typing import Any

import numcodecs
import numpy as np
import pytest
import zarr.codecs
from zarr.codecs import numcodecs as wrapped

from ucxstore.codecs.compressors import Bytes, compressor_of

DATA = np.arange(1000, dtype="f4")

CODECS = [
    numcodecs.Zstd(),
    numcodecs.Zstd(level=-5, checksum=True),
    numcodecs.Blosc(),
    numcodecs.Blosc(cname="zstd", shuffle=0),
    numcodecs.Blosc(clevel=0),
    numcodecs.LZ4(),
]


def encoded(codec: numcodecs.abc.Codec, data: np.ndarray) -> Bytes:
    return np.frombuffer(codec.encode(data), "u1")


@pytest.mark.parametrize("codec", CODECS, ids=repr)
@pytest.mark.parametrize("size", [1, 63, 64, 65, 1000, 20_000, 70_000])
def test_a_value_tells_its_size(codec: numcodecs.abc.Codec, size: int) -> None:
    compressor = compressor_of(codec)
    assert compressor is not None
    data = np.random.default_rng(0).integers(0, 99, size, "u1")
    value = encoded(codec, data)
    compressor.check(value)
    assert compressor.holds(value, size)
    assert not compressor.holds(value, size + 1)
    assert not compressor.holds(value, size - 1)
    out = np.zeros(size, "u1")
    compressor.decode(value, out)
    np.testing.assert_array_equal(out, data)


@pytest.mark.parametrize("codec", CODECS, ids=repr)
def test_what_is_no_value_holds_nothing(codec: numcodecs.abc.Codec) -> None:
    compressor = compressor_of(codec)
    assert compressor is not None
    for length in range(6):
        assert not compressor.holds(encoded(codec, DATA)[:length], length)
        assert not compressor.holds(np.zeros(length, "u1"), length)


def test_a_frame_that_begins_as_a_chunk_does_and_goes_on_raises() -> None:
    compressor = compressor_of(numcodecs.Zstd())
    assert compressor is not None
    twice = np.concatenate([encoded(numcodecs.Zstd(), DATA)] * 2)
    assert compressor.holds(twice, DATA.nbytes)
    with pytest.raises(ValueError, match="too small"):
        compressor.decode(twice, np.zeros(DATA.nbytes, "u1"))
    assert not compressor.holds(twice, 2 * DATA.nbytes)  # zarr itself can do that


def test_a_blosc_value_that_is_cut_off_is_refused() -> None:
    compressor = compressor_of(numcodecs.Blosc())
    assert compressor is not None
    value = encoded(numcodecs.Blosc(), DATA)
    for length in (0, 15, 16, value.size - 1):
        with pytest.raises(RuntimeError, match="cut off after"):
            compressor.check(value[:length])


@pytest.mark.filterwarnings("ignore:Numcodecs codecs")
def test_which_are_known() -> None:
    for codec in zarr.codecs.ZstdCodec(), zarr.codecs.BloscCodec(), wrapped.LZ4(), wrapped.Zstd():
        assert compressor_of(codec) is not None
    codec: Any  # type: ignore[no-redef]
    for codec in zarr.codecs.GzipCodec(), zarr.codecs.Crc32cCodec(), wrapped.Zlib(), None:  # type: ignore[assignment]
        assert compressor_of(codec) is None

    class Mine(numcodecs.Zstd):
        pass

    assert compressor_of(Mine()) is None
