"""The boxes that basic selections are made of: pure geometry."""

from collections.abc import Sequence
from typing import Any

type Box = tuple[list[int], list[int], list[int], tuple[int, ...]]
"""Starts in the chunk, starts in the array, counts, and the axes that the array lacks."""


def find_box(chunk_selection: Any, out_selection: Any) -> Box | None:
    """Return the box that a basic selection takes from a chunk to the array.

    Parameters
    ----------
    chunk_selection, out_selection : object
        As zarr gives them. Only tuples of slices and integers can be a box; the types are checked
        one by one, as a selection by arrays has slices in it too.

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


def run_bytes(strides: Sequence[int], counts: Sequence[int], itemsize: int) -> int:
    """Return how many bytes of a box lie together, from its first item on.

    Parameters
    ----------
    strides : sequence of int
        Bytes from one index of an axis to the next.
    counts : sequence of int
        The box's shape.
    itemsize : int
        Bytes an item.
    """
    run = itemsize
    for stride, count in zip(reversed(strides), reversed(counts), strict=True):
        if count != 1:
            if stride != run:
                break
            run *= count
    return run
