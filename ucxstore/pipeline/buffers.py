"""Memory of our own that chunks are received in, decoded in or put together in."""

from math import prod
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ucxstore.client.memory import describe
from ucxstore.pipeline.compressors import Bytes
from ucxstore.zarr_compat import ArraySpec, NDBuffer, fill_value_or_default

# An array that no core's caches hold: see `put`. The native core draws the line here, too.
_LARGE_BYTES = 8 << 20
_LEAST_ROW_BYTES = 512  # most of a shorter one is its ends, which are written as usual


def allocate(nbytes: int) -> Bytes:
    """Return memory, not initialised, whose pages may be there already."""
    from ucxstore._native import core  # not before it is needed

    memory: Bytes = core.allocate(nbytes)
    return memory


def put(
    values: Bytes, target: npt.NDArray[Any], order: Literal["C", "F"], *, array_nbytes: int
) -> None:
    """Copy the values of a chunk to where they belong in an array.

    Into a large array they go past the caches: nobody reads them there soon, and what the codec
    reads next stays in them.

    Parameters
    ----------
    values : array of uint8
        As many bytes as the target has, in this order.
    target : ndarray
        A view of an array that may receive.
    array_nbytes : int
        The bytes of all of the array.
    """
    row = target.shape[-1] * target.itemsize if target.ndim else 0
    if (
        array_nbytes >= _LARGE_BYTES
        and row >= _LEAST_ROW_BYTES
        and order == "C"
        and target.strides[-1] == target.itemsize
    ):
        from ucxstore._native import core

        core.place(values, describe(target))
    else:
        np.copyto(target, values.view(target.dtype).reshape(target.shape, order=order))


def contiguous_bytes(array: npt.NDArray[Any], nbytes: int, order: str) -> Bytes | None:
    """Return the bytes of an array, if they are so many and lie together in this order."""
    if order == "F":
        array = array.T
    if array.nbytes != nbytes or not array.flags.c_contiguous:
        return None
    return array.reshape(-1).view(np.uint8)


def chunk_in(
    memory: Bytes, spec: ArraySpec, dtype: np.dtype[Any], order: Literal["C", "F"]
) -> NDBuffer:
    """Return the chunk that some bytes are."""
    # Not np.ndarray(), which takes the unit from times without one.
    array = memory.view(dtype).reshape(spec.shape, order=order)
    return spec.prototype.nd_buffer.from_ndarray_like(array)


def filled_chunk(spec: ArraySpec) -> NDBuffer:
    """Return a chunk that holds nothing but the fill value."""
    dtype = spec.dtype.to_native_dtype()
    chunk = chunk_in(allocate(chunk_nbytes(spec)), spec, dtype, spec.order)
    np.copyto(chunk.as_numpy_array(), fill_value_or_default(spec), casting="unsafe")
    return chunk


def contiguous_chunk(chunk: NDBuffer, spec: ArraySpec, order: Literal["C", "F"]) -> NDBuffer:
    """Return a chunk whose values lie together in this order, a copy if they don't yet.

    Codecs would make that copy themselves, but in new memory, which is faulted in page by page.
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
