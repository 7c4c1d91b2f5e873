"""Buffers for chunks, from recycled memory."""

from math import prod
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ucxstore.base.zarr_compat import ArraySpec, NDBuffer, fill_value_or_default
from ucxstore.codecs.compressors import Bytes


def allocate(nbytes: int) -> Bytes:
    """Return memory, not initialised, whose pages may be there already."""
    from ucxstore.base.native import core  # not before it is needed

    memory: Bytes = core.allocate(nbytes)
    return memory


def contiguous_bytes(array: npt.NDArray[Any], nbytes: int, order: str) -> Bytes | None:
    """Return the `nbytes` bytes of an array that is contiguous in this order; else ``None``."""
    if order == "F":
        array = array.T
    if array.nbytes != nbytes or not array.flags.c_contiguous:
        return None
    return array.reshape(-1).view(np.uint8)


def chunk_in(
    memory: Bytes, spec: ArraySpec, dtype: np.dtype[Any], order: Literal["C", "F"]
) -> NDBuffer:
    """Return memory as a chunk."""
    # Not np.ndarray(), which takes the unit from times without one.
    array = memory.view(dtype).reshape(spec.shape, order=order)
    return spec.prototype.nd_buffer.from_ndarray_like(array)


def filled_chunk(spec: ArraySpec) -> NDBuffer:
    """Return a chunk that holds only the fill value."""
    dtype = spec.dtype.to_native_dtype()
    chunk = chunk_in(allocate(chunk_nbytes(spec)), spec, dtype, spec.order)
    np.copyto(chunk.as_numpy_array(), fill_value_or_default(spec), casting="unsafe")
    return chunk


def contiguous_chunk(chunk: NDBuffer, spec: ArraySpec, order: Literal["C", "F"]) -> NDBuffer:
    """Return a chunk that is contiguous in this order, a copy if it is not yet.

    Codecs would make that copy themselves, but in new memory, whose pages have to be faulted in.
    """
    array = chunk.as_numpy_array()
    if array.flags.c_contiguous if order == "C" else array.flags.f_contiguous:
        return chunk
    copy = chunk_in(allocate(array.nbytes), spec, array.dtype, order)
    np.copyto(copy.as_numpy_array(), array)
    return copy


def chunk_nbytes(spec: ArraySpec) -> int:
    """Return the bytes of a chunk's values."""
    itemsize: int = spec.dtype.to_native_dtype().itemsize
    return itemsize * prod(spec.shape)
