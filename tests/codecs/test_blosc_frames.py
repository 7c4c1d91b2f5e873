"""Blosc values, split: each frame is a value that blosc itself decodes to its part."""

import struct

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numcodecs.blosc import Blosc

from ucxstore.codecs.blosc_frames import PREFIX_BYTES, split


def encoded(values: np.ndarray, **options: object) -> np.ndarray:
    return np.frombuffer(Blosc(**options).encode(values), np.uint8)


def decoded(value: np.ndarray, nbytes: int, most: int) -> np.ndarray:
    """Decode by frames, and see that they have it all, in their order."""
    out = np.zeros(nbytes, np.uint8)
    last = 0
    for frame in split(value[:PREFIX_BYTES], value.size, nbytes, most):
        assert frame.first == last
        last = frame.last
        part = np.frombuffer(frame.head + value[frame.start : frame.stop].tobytes(), np.uint8)
        assert part.size == frame.limit
        Blosc().decode(part, out[frame.first : frame.last])
    assert last == nbytes
    return out


@given(
    st.integers(1, 40_000),
    st.sampled_from(["u1", "<i2", "<f4", "<f8", "S3", "S17"]),
    st.sampled_from(["lz4", "lz4hc", "zstd", "zlib", "blosclz"]),
    st.sampled_from([Blosc.NOSHUFFLE, Blosc.SHUFFLE, Blosc.BITSHUFFLE]),
    st.sampled_from([256, 1000, 4096, 20_000]),
    st.integers(1, 50_000),
)
def test_frames_decode_to_the_values(
    count: int, dtype: str, name: str, shuffle: int, block: int, most: int
) -> None:
    values = (np.arange(count) // 7 % 251).astype(dtype)
    value = encoded(values, cname=name, clevel=5, shuffle=shuffle, blocksize=block)
    assume(split(value[:PREFIX_BYTES], value.size, values.nbytes, most))
    assert decoded(value, values.nbytes, most).tobytes() == values.tobytes()


def test_frames_are_of_the_wanted_size() -> None:
    values = np.arange(1_000_000) // 7
    value = encoded(values, blocksize=65536)
    frames = split(value, value.size, values.nbytes, 1 << 20)
    assert len(frames) == -(-values.nbytes // (1 << 20))
    assert {frame.last - frame.first for frame in frames[:-1]} == {1 << 20}
    assert decoded(value, values.nbytes, 1 << 20).tobytes() == values.tobytes()


VALUES = np.arange(100_000) // 7
VALUE = encoded(VALUES, blocksize=65536)


def with_field(index: int, number: int) -> np.ndarray:
    fields = list(struct.unpack("<BBBBIII", VALUE[:16].tobytes()))
    fields[index] = number
    return np.concatenate([np.frombuffer(struct.pack("<BBBBIII", *fields), np.uint8), VALUE[16:]])


def in_other_order() -> np.ndarray:
    value = VALUE.copy()
    value[16:24] = np.roll(value[16:24], 4)
    return value


@pytest.mark.parametrize(
    "value",
    [
        VALUE[:15],
        VALUE[:20],
        with_field(0, 3),
        with_field(2, 2),
        with_field(4, VALUES.nbytes + 8),
        with_field(5, 0),
        with_field(5, 1),
        with_field(5, VALUES.nbytes + 1),
        with_field(6, VALUE.size - 1),
        in_other_order(),
        encoded(np.random.default_rng(0).bytes(100_000), clevel=0),
    ],
    ids=[
        "header",
        "offsets",
        "version",
        "copied",
        "other-size",
        "no-block",
        "many-blocks",
        "large-block",
        "cut-off",
        "order",
        "uncompressed",
    ],
)
def test_what_is_not_split(value: np.ndarray) -> None:
    assert split(value[:PREFIX_BYTES], VALUE.size, VALUES.nbytes, 1 << 18) == []
    assert split(VALUE[:PREFIX_BYTES], VALUE.size, VALUES.nbytes, 1 << 18) != []
