"""Find the moves of scattered points, a few in each of many chunks, all at once: pure geometry.

`axes` and `runs` handle points, too, one chunk at a time, and join neighbours. For a chunk of ten
points that takes several times as long as moving them.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ucxstore.pipeline.geometry.axes import Grid
from ucxstore.pipeline.geometry.costs import is_less_in_runs
from ucxstore.pipeline.geometry.runs import Move, Offsets

# Points of a chunk, at the most. With more of them, some may be neighbours, which make longer runs.
MANY_POINTS = 64


def find_points(
    selections: Sequence[tuple[Any, Any]],
    chunk: Grid,
    array: Grid,
    itemsize: int,
    chunk_nbytes: int,
) -> list[Move] | None:
    """Return the moves of selections by coordinates.

    Parameters
    ----------
    selections : sequence
        For each chunk, zarr's selections in the chunk and in the array.
    chunk : Grid
        How the items of each chunk lie.
    array : Grid
        How the items of the array lie, which has one axis.
    itemsize, chunk_nbytes : int
        Bytes of an item and of a chunk.

    Returns
    -------
    list of Move or None
        A move for each chunk; ``None`` if the chunks have to be looked at one by one.
    """
    counts = [_count(selected, len(chunk.shape)) for selected, _ in selections]
    if not 0 < min(counts) <= max(counts) <= MANY_POINTS or len(array.shape) != 1:
        return None
    most = max(counts)
    if not is_less_in_runs(most * itemsize, itemsize, chunk_nbytes, 2 * most, most):
        return None
    sources: Offsets = np.zeros(sum(counts), np.int64)
    for axis, (length, stride) in enumerate(zip(chunk.shape, chunk.strides, strict=True)):
        indices = np.concatenate([selected[axis] for selected, _ in selections])
        if indices.min() < 0 or indices.max() >= length:
            return None
        sources += indices * stride
    targets = _targets([target for _, target in selections], counts, array.shape[0])
    if targets is None:
        return None
    targets *= array.strides[0]
    moves = []
    stop = 0
    for count in counts:
        start, stop = stop, stop + count
        moves.append(
            Move(
                (0, itemsize, [], [], sources[start:stop]),
                (0, itemsize, [], [], targets[start:stop]),
                count * itemsize,
            )
        )
    return moves


def _count(selected: Any, ndim: int) -> int:
    """Return how many points are selected of a chunk, or -1 if not by their coordinates."""
    if type(selected) is not tuple or len(selected) != ndim or ndim == 0:
        return -1
    shapes = {wanted.shape if _is_indices(wanted) else None for wanted in selected}
    return -1 if len(shapes) > 1 or None in shapes else len(selected[0])


def _is_indices(wanted: Any) -> bool:
    return type(wanted) is np.ndarray and wanted.ndim == 1 and wanted.dtype.kind == "i"


def _targets(selected: Sequence[Any], counts: Sequence[int], length: int) -> Offsets | None:
    """Return the array's indices of all points, if there is one for each and it is in bounds."""
    indices = []
    for wanted, count in zip(selected, counts, strict=True):
        if type(wanted) is tuple and len(wanted) == 1:
            (wanted,) = wanted
        if type(wanted) is slice:
            wanted = np.arange(*wanted.indices(length))
        if not _is_indices(wanted) or wanted.size != count:
            return None
        indices.append(wanted)
    joined = np.concatenate(indices).astype(np.int64, copy=False)
    return None if joined.min() < 0 or joined.max() >= length else joined
