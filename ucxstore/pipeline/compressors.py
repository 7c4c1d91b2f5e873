"""The compressors that can write what they decode into given memory: pure, no I/O.

numcodecs checks the memory's size only downwards: a value that holds less than a chunk would leave
the rest of it as it was. It does not check either that a blosc value is as long as its header says,
and reads beyond its end. So headers are looked at here first.
"""

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

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


class Compressor(NamedTuple):
    """What is to know of a compressor.

    Parameters
    ----------
    decode : callable
        Decodes its first argument into its second, all of it: contiguous, writable bytes.
    holds : callable
        Tells whether a value, decoded, either has exactly so many bytes or raises.
    check : callable
        Raises if a value must not even be given to its decoder.
    """

    decode: Callable[[Bytes, Bytes], object]
    holds: Callable[[Bytes, int], bool]
    check: Callable[[Bytes], None]


def compressor_of(codec: object) -> Compressor | None:
    """Return what is to know of one of zarr's codecs, or of numcodecs'.

    Of the exact classes only: what a subclass does is not known here.
    """
    kind = type(codec)
    if kind in {wrapped.Blosc, wrapped.LZ4, wrapped.Zstd}:
        kind = type(codec._codec)  # type: ignore[attr-defined]  # others can be registered
    return _COMPRESSORS.get(kind)


def is_blosc(compressor: Compressor) -> bool:
    """Tell whether values of a compressor are blosc's."""
    return compressor is _BLOSC


def _blosc_holds(data: Bytes, nbytes: int) -> bool:
    return data.size >= _BLOSC_HEADER.size and _BLOSC_HEADER.unpack_from(data)[4] == nbytes


def _check_blosc(data: Bytes) -> None:
    if data.size < _BLOSC_HEADER.size or _BLOSC_HEADER.unpack_from(data)[6] > data.size:
        # The exception that numcodecs raises where it notices.
        raise RuntimeError(f"error during blosc decompression: cut off after {data.size} bytes")


def _lz4_holds(data: Bytes, nbytes: int) -> bool:
    return data.size >= _LZ4_HEADER.size and _LZ4_HEADER.unpack_from(data) == (nbytes,)


def _zstd_holds(data: Bytes, nbytes: int) -> bool:
    """See RFC 8878, 3.1.1: a magic number, a descriptor, and in most frames the size.

    numcodecs refuses more frames than fit, and without a size anything but an exact fit.
    """
    header = data[:18].tobytes()
    if len(header) < 6 or int.from_bytes(header[:4], "little") != _ZSTD_MAGIC:
        return False
    descriptor = header[4]
    single = descriptor >> 5 & 1
    start = 5 + (1 - single) + (0, 1, 2, 4)[descriptor & 3]
    length = (single, 2, 4, 8)[descriptor >> 6]
    if length == 0:
        return True
    size = int.from_bytes(header[start : start + length], "little")
    return size + (256 if length == 2 else 0) == nbytes


def _unchecked(data: Bytes) -> None:
    """Accept all: the decoder itself stays within the value."""


def _decoder(codec: Any) -> Callable[[Bytes, Bytes], object]:
    # Everything that decoding needs is in the value: any codec object of a class does it.
    decode: Callable[[Bytes, Bytes], object] = codec.decode
    return decode


_BLOSC = Compressor(_decoder(Blosc()), _blosc_holds, _check_blosc)
_LZ4 = Compressor(_decoder(LZ4()), _lz4_holds, _unchecked)
_ZSTD = Compressor(_decoder(Zstd()), _zstd_holds, _unchecked)

_COMPRESSORS: dict[type, Compressor] = {
    BloscCodec: _BLOSC,
    Blosc: _BLOSC,
    LZ4: _LZ4,
    ZstdCodec: _ZSTD,
    Zstd: _ZSTD,
}
