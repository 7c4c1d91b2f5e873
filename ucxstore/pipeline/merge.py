"""How what is written becomes whole chunks, as zarr's own pipelines make them of it."""

from typing import Any, Literal

import numpy as np

from ucxstore.pipeline.buffers import allocate
from ucxstore.pipeline.compressors import Bytes
from ucxstore.pipeline.plan import Item
from ucxstore.zarr_compat import ArraySpec, NDBuffer, fill_value_or_default


def merged(
    value: NDBuffer, item: Item, drop_axes: tuple[int, ...], existing: NDBuffer | None
) -> NDBuffer:
    """Return a chunk as it is after a write.

    The same as zarr's ``_merge_chunk_array``, which would copy `existing` before it writes to it.

    Parameters
    ----------
    value : NDBuffer
        What is written, by all of the batch.
    item : tuple
        What zarr gives for the chunk.
    drop_axes : tuple of int
        As zarr gives them.
    existing : NDBuffer or None
        The chunk as it is until now, which is written to; ``None`` if it is not there, or all that
        is in the array is written.

    Returns
    -------
    NDBuffer
        A part of `value`, if that is all of the chunk; it must not be written to.
    """
    _, spec, chunk_selection, out_selection, is_complete = item
    if is_complete and value.shape != ():
        selected = value[out_selection]
        if selected.shape == spec.shape:  # not so at the array's edge
            return selected
    chunk = filled(spec) if existing is None else existing
    if chunk_selection == () or value.shape == ():
        part = value
    else:
        part = value[out_selection]
        if drop_axes:
            part = part[tuple(None if a in drop_axes else slice(None) for a in range(spec.ndim))]
    chunk[chunk_selection] = part
    return chunk


def filled(spec: ArraySpec) -> NDBuffer:
    """Return a chunk that holds nothing but the fill value."""
    dtype = spec.dtype.to_native_dtype()
    chunk = chunk_in(allocate(spec_nbytes(spec)), spec, dtype, spec.order)
    np.copyto(chunk.as_numpy_array(), fill_value_or_default(spec), casting="unsafe")
    return chunk


def chunk_in(
    memory: Bytes, spec: ArraySpec, dtype: np.dtype[Any], order: Literal["C", "F"]
) -> NDBuffer:
    """Return the chunk that some bytes are."""
    # Not np.ndarray(), which takes the unit from times without one.
    array = memory.view(dtype).reshape(spec.shape, order=order)
    return spec.prototype.nd_buffer.from_ndarray_like(array)


def in_one_piece(chunk: NDBuffer, spec: ArraySpec, order: Literal["C", "F"]) -> NDBuffer:
    """Return a chunk whose values lie together in this order, a copy if they don't yet.

    Codecs would make that copy themselves, but in new memory, which is faulted in page by page.
    """
    array = chunk.as_numpy_array()
    if array.flags.c_contiguous if order == "C" else array.flags.f_contiguous:
        return chunk
    copy = chunk_in(allocate(array.nbytes), spec, array.dtype, order)
    np.copyto(copy.as_numpy_array(), array)
    return copy


def spec_nbytes(spec: ArraySpec) -> int:
    """Return the bytes of a chunk's values."""
    nbytes: int = spec.dtype.to_native_dtype().itemsize
    for length in spec.shape:
        nbytes *= length
    return nbytes
