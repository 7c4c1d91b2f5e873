"""Find the indices that a selection takes along each axis of chunk and array: pure geometry.

zarr's indexers give slices, integers, index arrays and masks. Only the items that they select count
here. A selection that numpy might understand in another way is refused.
"""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

type Indices = range | npt.NDArray[np.intp]
"""Indices along an axis; a range wherever they ascend in even steps."""

type Order = Literal["C", "F"]

# Indices along the axes, and which of the axes have an integer.
type _Found = tuple[list[Indices], list[int]]

# Indices and stride in the array of an axis that a selection drops, and of one that the array lacks
# by mistake. The latter fits no axis of a chunk.
_DROPPED: tuple[Indices, int] = (range(1), 0)
_NONE: tuple[Indices, int] = (range(0), 0)


class Grid(NamedTuple):
    """How items lie in memory.

    Parameters
    ----------
    shape : sequence of int
    strides : sequence of int
        Bytes from one index of an axis to the next.
    order : {"C", "F"}
        Which axis is the innermost: the last or the first.
    """

    shape: Sequence[int]
    strides: Sequence[int]
    order: Order = "C"


class Axis(NamedTuple):
    """The selected indices of an axis.

    Parameters
    ----------
    source, target : range or ndarray
        Indices in the chunk and in the array: the same number in both, and within bounds.
    source_stride, target_stride : int
        Bytes from one index to the next; 0 for an axis that the array lacks.
    """

    source: Indices
    source_stride: int
    target: Indices
    target_stride: int


def grid_of(shape: Sequence[int], itemsize: int, order: Order) -> Grid:
    """Return the grid of a contiguous array."""
    strides = [itemsize] * len(shape)
    axes = range(len(shape)) if order == "F" else range(len(shape) - 1, -1, -1)
    stride = itemsize
    for axis in axes:
        strides[axis] = stride
        stride *= shape[axis]
    return Grid(shape, strides, order)


def find_axes(
    chunk_selection: Any,
    out_selection: Any,
    drop_axes: Sequence[int],
    chunk: Grid,
    out: Grid,
) -> list[Axis] | None:
    """Return the axes of a selection.

    Parameters
    ----------
    chunk_selection, out_selection : object
        As zarr gives them.
    drop_axes : sequence of int
        Axes of the chunk that the array lacks, beside those of integers.
    chunk, out : Grid
        How the items of the chunk and of the array lie.

    Returns
    -------
    list of Axis or None
        The axes of the chunk, outermost first, or a single one for a selection of points.
        ``None`` if nothing is selected, something is out of bounds, or the selection is made
        neither of independent axes nor of points.
    """
    if type(out_selection) is not tuple:
        out_selection = (out_selection,)
    if type(chunk_selection) is not tuple or len(chunk_selection) != len(chunk.shape):
        return None
    along = _along_axes(out_selection, out.shape)
    if along is None or along[1]:
        return None
    targets = along[0]
    strides = chunk.strides
    if len(strides) > 1 and all(type(s) is np.ndarray and s.ndim == 1 for s in chunk_selection):
        along, strides = _points(chunk_selection, chunk), [min(strides)]
    else:
        along = _along_axes(chunk_selection, chunk.shape)
    if along is None:
        return None
    sources, integers = along
    if integers and drop_axes:  # drop_axes would count only the axes without integers
        return None
    dropped = integers or drop_axes
    kept = iter(zip(targets, out.strides, strict=True))
    axes = []
    for number, source in enumerate(sources):
        target, target_stride = _DROPPED if number in dropped else next(kept, _NONE)
        if len(source) != len(target):
            return None
        axes.append(Axis(source, strides[number], target, target_stride))
    if next(kept, None) is not None:
        return None
    return axes if chunk.order == "C" else axes[::-1]


def as_range(indices: npt.NDArray[np.intp]) -> Indices:
    """Return indices as a range if they ascend in even steps."""
    first = int(indices[0])
    if indices.size == 1:
        return range(first, first + 1)
    step = int(indices[1]) - first
    end = first + step * indices.size
    if step <= 0 or int(indices[-1]) != end - step:
        return indices
    if indices.size > 2 and not (indices[1:] - indices[:-1] == step).all():
        return indices
    return range(first, end, step)


def _along_axes(selection: tuple[Any, ...], shape: Sequence[int]) -> _Found | None:
    """Return the indices along each axis, if the axes are selected independently."""
    if len(selection) != len(shape):
        return None
    kinds = list(map(type, selection))
    arrays = kinds.count(np.ndarray)
    found: list[Indices] = []
    integers = []
    for axis, (kind, wanted, length) in enumerate(zip(kinds, selection, shape, strict=True)):
        if kind is slice:
            steps = range(*wanted.indices(length))
            if not steps or steps.step < 0:
                return None
            found.append(steps)
        elif kind is np.ndarray:
            if arrays > 1:  # several arrays are independent only if numpy.ix_ has made them
                if arrays != len(shape) or wanted.ndim != arrays:
                    return None
                if wanted.size != wanted.shape[axis]:
                    return None
                wanted = wanted.reshape(-1)
            indices = _within(wanted, length)
            if indices is None:
                return None
            found.append(indices)
        elif kind is int or issubclass(kind, np.integer):
            if arrays or not 0 <= wanted < length:  # beside arrays, numpy broadcasts an integer
                return None
            found.append(range(wanted, wanted + 1))
            integers.append(axis)
        else:
            return None
    return found, integers


def _within(wanted: npt.NDArray[Any], length: int) -> Indices | None:
    """Return the indices of an index array or a mask, if they are within bounds."""
    if wanted.ndim != 1:
        return None
    if wanted.dtype == np.bool_:
        if wanted.size != length:
            return None
        wanted = np.flatnonzero(wanted)
    if wanted.size == 0 or wanted.dtype != np.intp:
        return None
    indices = as_range(wanted)
    if type(indices) is range:
        low, high = indices[0], indices[-1]
    else:
        low, high = int(wanted.min()), int(wanted.max())
    return indices if low >= 0 and high < length else None


def _points(selection: tuple[Any, ...], chunk: Grid) -> _Found | None:
    """Return the offsets of points, in items from the chunk's start."""
    if len({wanted.size for wanted in selection}) != 1 or selection[0].size == 0:
        return None
    if any(wanted.dtype != np.intp for wanted in selection):
        return None
    try:
        offsets = np.ravel_multi_index(selection, tuple(chunk.shape), order=chunk.order)
    except ValueError:  # out of bounds, or negative
        return None
    return [as_range(offsets)], []
