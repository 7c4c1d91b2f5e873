"""Whether stored bytes are a chunk's values as they lie in memory: pure, no I/O."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np
from zarr.abc.codec import Codec
from zarr.codecs.bytes import BytesCodec

from ucxstore.zarr_compat import ArraySpec, HasEndianness, Struct, V2Codec


class RawChunks(NamedTuple):
    """How raw chunks lie in the store: with which dtype, byte order included, and which order."""

    dtype: np.dtype[Any]
    order: Literal["C", "F"]


def raw_chunks(codecs: Sequence[Codec], spec: ArraySpec) -> RawChunks | None:
    """Tell how chunks are stored, if that is how an array of their dtype holds them.

    Parameters
    ----------
    codecs : sequence of Codec
        All codecs of the array, evolved.
    spec : ArraySpec
        A chunk's. Format 2 stores chunks in its order; format 3 in C order always.

    Returns
    -------
    RawChunks or None
        ``None`` where a codec has something to do: another byte order, a compressor, a filter,
        values of variable length.
    """
    if len(codecs) != 1:
        return None
    codec = codecs[0]
    dtype = spec.dtype.to_native_dtype()
    if dtype.hasobject or dtype.itemsize == 0:
        return None
    # The exact classes: what a subclass does to the bytes is not known here.
    if type(codec) is BytesCodec:
        return RawChunks(dtype, "C") if stored_dtype(codec, spec, dtype) == dtype else None
    if type(codec) is V2Codec and codec.compressor is None and not codec.filters:
        return RawChunks(dtype, spec.order)
    return None


def stored_dtype(codec: BytesCodec, spec: ArraySpec, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype that `BytesCodec` takes stored bytes for."""
    if isinstance(spec.dtype, HasEndianness):
        return replace(spec.dtype, endianness=codec.endian).to_native_dtype()  # type: ignore[call-arg]
    if isinstance(spec.dtype, Struct) and codec.endian is not None:
        return dtype.newbyteorder(codec.endian)
    return dtype
