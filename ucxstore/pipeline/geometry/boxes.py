"""Find the box of a basic selection, and the runs of a chunk around a box: pure geometry."""

from collections.abc import Sequence
from math import prod
from typing import Any

from ucxstore.pipeline.geometry.axes import grid_of
from ucxstore.pipeline.geometry.runs import Runs, all_runs, runs_of, shifted

type Box = tuple[list[int], list[int], list[int], tuple[int, ...]]
"""Starts in the chunk, starts in the array, counts, and the axes that the array lacks."""


def find_box(chunk_selection: Any, out_selection: Any) -> Box | None:
    """Return the box that a basic selection takes from a chunk to the array.

    Parameters
    ----------
    chunk_selection, out_selection : object
        As zarr gives them. Only tuples of slices and integers can be a box. All types are checked,
        since a selection by arrays may have slices, too.

    Returns
    -------
    Box or None
        ``None`` if the selection is no box.
    """
    if type(chunk_selection) is not tuple or type(out_selection) is not tuple:
        return None
    starts: list[int] = []
    targets: list[int] = []
    counts: list[int] = []
    dropped: tuple[int, ...] = ()
    kept = iter(out_selection)
    for wanted in chunk_selection:
        kind = type(wanted)
        if kind is slice:
            target = next(kept, None)
            if type(target) is not slice:
                return None
            start = wanted.start
            count = wanted.stop - start
            step = wanted.step
            if step != 1 and step is not None:
                count = -(-count // step)
                if count != 1:
                    return None
            first = target.start
            if type(count) is not int or count < 1 or target.stop - first != count:
                return None
            if target.step is not None and target.step != 1:
                return None
            starts.append(start)
            targets.append(first)
            counts.append(count)
        elif kind is int:
            dropped += (len(counts),)
            starts.append(wanted)
            targets.append(0)
            counts.append(1)
        else:
            return None
    if next(kept, None) is not None:
        return None
    if not counts:  # a 0-d array, as one of a single item
        return [0], [0], [1], (0,)
    return starts, targets, counts, dropped


def runs_around(
    shape: Sequence[int], starts: Sequence[int], counts: Sequence[int], itemsize: int
) -> list[Runs]:
    """Return all of a chunk except a box, in at most two boxes more than there are axes.

    These are the bytes before the box, the bytes behind it, and for each axis the gaps between the
    box's bytes at one index and at the next. Each gap is a single run.

    Parameters
    ----------
    shape : sequence of int
        The chunk's, in C order.
    starts, counts : sequence of int
        The box, which is not empty.
    itemsize : int
        Bytes of an item.
    """
    strides = grid_of(shape, itemsize, "C").strides
    first = sum(start * stride for start, stride in zip(starts, strides, strict=True))
    extent = itemsize  # from the box's first byte to its last, of the axes further in
    gaps: list[Runs] = []
    for axis in reversed(range(len(shape))):
        count, stride = counts[axis], strides[axis]
        repeats = [*counts[:axis], count - 1]
        if stride > extent and 0 not in repeats:
            outer = zip(repeats, strides[: axis + 1], strict=True)
            gaps.append(runs_of(outer, stride - extent, first + extent))
        extent += (count - 1) * stride
    behind = first + extent
    ends = all_runs(first), shifted(all_runs(itemsize * prod(shape) - behind), behind)
    return [runs for runs in (ends[0], *gaps, ends[1]) if runs[1]]
