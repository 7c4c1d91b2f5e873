"""Decoders for what comes from outside: none puts out more bytes than it may, or executes any.

Most libraries decode to the end of what they are given, and a few bytes may unfold to gigabytes.
"""

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Callable
from typing import Any

import numcodecs
import numpy as np
from zarr.codecs import CastValue, Crc32cCodec, GzipCodec, ScaleOffset, TransposeCodec
from zarr.codecs import numcodecs as wrapped

from ucxstore.base.zarr_compat import ArraySpec
from ucxstore.codecs.buffers import allocate
from ucxstore.codecs.compressors import Bytes, Compressor, compressor_of

type Bounded = Callable[[Bytes, ArraySpec, int], Bytes]
"""Decodes a chunk's bytes, given its spec, into so many at the most; else raises `ValueError`."""

_CHECKSUMS = {
    wrapped.Adler32,
    wrapped.CRC32,
    wrapped.CRC32C,
    wrapped.Fletcher32,
    wrapped.JenkinsLookup3,
}

# numcodecs' filters, by their names: those that put out as many items as they take.
_FILTERS = {
    "adler32",
    "astype",
    "bitround",
    "crc32",
    "crc32c",
    "delta",
    "fixedscaleoffset",
    "fletcher32",
    "jenkins_lookup3",
    "packbits",
    "quantize",
    "shuffle",
}

_ZARR_FILTERS = {CastValue, ScaleOffset, TransposeCodec}

# Where a filter's configuration has a dtype: a wide one would unfold each item.
_DTYPES = ("dtype", "astype", "encode_dtype", "decode_dtype")
_NUMBERS = "biufcmM"

# Memory to decode LZMA in, beside what that puts out: as its largest preset needs.
_LZMA_BYTES = 96 << 20


def bounded_of(codec: object) -> Bounded | None:
    """Return the decoder of one of zarr's or numcodecs' codecs from bytes to bytes.

    ``None`` where it cannot be bounded. Only the exact classes count, as a subclass may do
    something else.
    """
    compressor = compressor_of(codec)
    if compressor is not None:
        return _announced(compressor)
    kind = type(codec)
    if kind is Crc32cCodec:
        return _by_zarr(codec)
    if kind in _CHECKSUMS or kind is wrapped.Shuffle:
        return _by_numcodecs(codec._codec)  # type: ignore[attr-defined]
    if kind is GzipCodec:
        return _read_by(lambda data: gzip.GzipFile(fileobj=data))
    if kind in {wrapped.GZip, wrapped.Zlib, wrapped.BZ2, wrapped.LZMA}:
        codec = codec._codec  # type: ignore[attr-defined]
        kind = type(codec)
    if kind is numcodecs.GZip:
        return _read_by(lambda data: gzip.GzipFile(fileobj=data))
    if kind is numcodecs.BZ2:
        return _read_by(bz2.BZ2File)
    if kind is numcodecs.LZMA:
        return _unpack if codec.format != lzma.FORMAT_RAW else None  # type: ignore[attr-defined]
    return _inflate if kind is numcodecs.Zlib else None


def is_filter(codec: object) -> bool:
    """Tell whether a codec from arrays to arrays puts out no more items than it takes."""
    inner: Any = getattr(codec, "_codec", codec)  # of zarr's wrappers
    if not isinstance(inner, numcodecs.abc.Codec):
        return type(codec) in _ZARR_FILTERS
    config = inner.get_config()
    dtypes = [np.dtype(config[name]) for name in _DTYPES if config.get(name) is not None]
    return config["id"] in _FILTERS and all(dtype.kind in _NUMBERS for dtype in dtypes)


def _announced(compressor: Compressor) -> Bounded:
    """Decode what has its size in a header."""

    def decode(data: Bytes, spec: ArraySpec, most: int) -> Bytes:
        nbytes = compressor.announced(data)
        if not 0 <= nbytes <= most:
            raise ValueError(f"its header does not announce up to {most} bytes")
        compressor.check(data)
        values = allocate(nbytes)
        compressor.decode(data, values)
        return values

    return decode


def _read_by(open_file: Callable[[io.BytesIO], Any]) -> Bounded:
    """Decode what a file of the standard library reads."""

    def decode(data: Bytes, spec: ArraySpec, most: int) -> Bytes:
        with open_file(io.BytesIO(data)) as file:
            return _checked(file.read(most + 1), most)

    return decode


def _inflate(data: Bytes, spec: ArraySpec, most: int) -> Bytes:
    stream = zlib.decompressobj()
    values = stream.decompress(data, most + 1)
    if not stream.eof and len(values) <= most:
        raise ValueError("it is cut off")
    return _checked(values, most)


def _unpack(data: Bytes, spec: ArraySpec, most: int) -> Bytes:
    # Its header says how much memory it takes besides.
    stream = lzma.LZMADecompressor(memlimit=_LZMA_BYTES)
    values = stream.decompress(data.tobytes(), most + 1)
    if (not stream.eof and len(values) <= most) or stream.unused_data:
        raise ValueError("it is cut off, or several")
    return _checked(values, most)


def _checked(values: bytes, most: int) -> Bytes:
    if len(values) > most:
        raise ValueError(f"it unfolds to more than {most} bytes")
    return np.frombuffer(values, np.uint8)


def _by_zarr(codec: Any) -> Bounded:
    def decode(data: Bytes, spec: ArraySpec, most: int) -> Bytes:
        found: Bytes = codec._decode_sync(
            spec.prototype.buffer.from_array_like(data), spec
        ).as_numpy_array()
        return found

    return decode


def _by_numcodecs(codec: Any) -> Bounded:
    def decode(data: Bytes, spec: ArraySpec, most: int) -> Bytes:
        return np.frombuffer(codec.decode(data), np.uint8)

    return decode
