"""Compressors that can decode into given memory, and checks of their headers: pure, no I/O.

numcodecs raises if the memory is too small, but not if it is too large: then the rest would keep
its old bytes. It also trusts the length in a blosc header, and reads on beyond the value's end. So
headers are checked here first.
"""

import struct
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numcodecs.blosc import Blosc
from numcodecs.lz4 import LZ4
from numcodecs.zstd import Zstd
from zarr.codecs import BloscCodec, ZstdCodec
from zarr.codecs import numcodecs as wrapped

type Bytes = npt.NDArray[np.uint8]

_BLOSC_HEADER = struct.Struct("<BBBBIII")  # versions, flags, item size; sizes: all, block, encoded
_LZ4_HEADER = struct.Struct("<I")
_ZSTD_MAGIC = 0xFD2FB528

# What a header may announce in place of a size.
NOTHING, UNSAID = -1, -2


class Compressor(NamedTuple):
    """A compressor that can decode into given memory.

    Parameters
    ----------
    decode : callable
        Decodes its first argument into its second, which is contiguous and writable.
    announced : callable
        Returns how many bytes the header of a value announces; `NOTHING` where that is no header,
        and `UNSAID` where it does not say.
    check : callable
        Raises if the decoder would read beyond the value's end.
    """

    decode: Callable[[Bytes, Bytes], object]
    announced: Callable[[Bytes], int]
    check: Callable[[Bytes], None]

    def holds(self, data: Bytes, nbytes: int) -> bool:
        """Tell whether decoding a value either gives exactly so many bytes or raises."""
        return self.announced(data) in {nbytes, UNSAID}


def compressor_of(codec: object) -> Compressor | None:
    """Return the compressor of one of zarr's or numcodecs' codecs, or ``None``.

    Only the exact classes count, since a subclass may do something else.
    """
    kind = type(codec)
    if kind in {wrapped.Blosc, wrapped.LZ4, wrapped.Zstd}:
        kind = type(codec._codec)  # type: ignore[attr-defined]  # others can be registered
    return _COMPRESSORS.get(kind)


def is_blosc(compressor: Compressor) -> bool:
    """Tell whether values of a compressor are blosc's."""
    return compressor is _BLOSC


def _blosc_announced(data: Bytes) -> int:
    if data.size < _BLOSC_HEADER.size:
        return NOTHING
    nbytes: int = _BLOSC_HEADER.unpack_from(data)[4]
    return nbytes


def _check_blosc(data: Bytes) -> None:
    if data.size < _BLOSC_HEADER.size or _BLOSC_HEADER.unpack_from(data)[6] > data.size:
        # The exception that numcodecs raises where it notices.
        raise RuntimeError(f"error during blosc decompression: cut off after {data.size} bytes")


def _lz4_announced(data: Bytes) -> int:
    if data.size < _LZ4_HEADER.size:
        return NOTHING
    (nbytes,) = _LZ4_HEADER.unpack_from(data)
    return int(nbytes)


def _zstd_announced(data: Bytes) -> int:
    """Read the header: a magic number, a descriptor, and in most frames the size.

    See RFC 8878, 3.1.1. numcodecs raises if more frames follow than fit, and for a frame without a
    size unless it fits exactly.
    """
    header = data[:18].tobytes()
    if len(header) < 6 or int.from_bytes(header[:4], "little") != _ZSTD_MAGIC:
        return NOTHING
    descriptor = header[4]
    single = descriptor >> 5 & 1
    start = 5 + (1 - single) + (0, 1, 2, 4)[descriptor & 3]
    length = (single, 2, 4, 8)[descriptor >> 6]
    if length == 0:
        return UNSAID
    size = int.from_bytes(header[start : start + length], "little")
    return size + (256 if length == 2 else 0)


def _unchecked(data: Bytes) -> None:
    """Accept any value: the decoder itself does not read beyond its end."""


# Decoding needs only the value, so one codec object serves for all of its class.
_BLOSC = Compressor(Blosc().decode, _blosc_announced, _check_blosc)
_LZ4 = Compressor(LZ4().decode, _lz4_announced, _unchecked)
_ZSTD = Compressor(Zstd().decode, _zstd_announced, _unchecked)

_COMPRESSORS: dict[type, Compressor] = {
    BloscCodec: _BLOSC,
    Blosc: _BLOSC,
    LZ4: _LZ4,
    ZstdCodec: _ZSTD,
    Zstd: _ZSTD,
}
