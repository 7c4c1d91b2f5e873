"""What a box leaves of a chunk: pure geometry."""

from collections.abc import Sequence
from math import prod

import numpy as np
import numpy.typing as npt

type Part = tuple[int, int, list[int], list[int], npt.NDArray[np.int64] | None]
"""Bytes of a value, as the native core takes them: an offset; a run of bytes; how often it comes
along each axis; by how many bytes it moves there; and, for several such boxes, their offsets."""


def whole(nbytes: int) -> Part:
    """Return all of a chunk."""
    return 0, nbytes, [], [], None


def part_nbytes(part: Part) -> int:
    """Return how many bytes a part has."""
    _, run, counts, _, offsets = part
    return run * prod(counts) * (1 if offsets is None else len(offsets))


def moved(part: Part, nbytes: int) -> Part:
    """Return the same part of a chunk that lies so many bytes further on."""
    offset, *rest = part
    return (offset + nbytes, *rest)  # type: ignore[return-value]


def holes(
    shape: Sequence[int], starts: Sequence[int], counts: Sequence[int], itemsize: int
) -> list[Part]:
    """Return what a box leaves of a chunk, in at most two parts more than there are axes.

    They are: all before the box, all behind it, and for each axis the gaps between what the box
    has of one index and of the next, each a single run.

    Parameters
    ----------
    shape : sequence of int
        The chunk's, in C order.
    starts, counts : sequence of int
        The box, which is not empty.
    itemsize : int
        Bytes an item.
    """
    strides = [itemsize * prod(shape[axis + 1 :]) for axis in range(len(shape))]
    first = sum(start * stride for start, stride in zip(starts, strides, strict=True))
    parts: list[Part] = [(0, first, [], [], None)]
    extent = itemsize  # from the box's first byte to its last, of the axes further in
    gaps: list[Part] = []
    for axis in reversed(range(len(shape))):
        count, stride = counts[axis], strides[axis]
        repeats = [*counts[:axis], count - 1]
        if prod(repeats):
            kept = [k for k, repeat in enumerate(repeats) if repeat > 1]
            gaps.append(
                (
                    first + extent,
                    stride - extent,
                    [repeats[k] for k in kept],
                    [strides[k] for k in kept],
                    None,
                )
            )
        extent += (count - 1) * stride
    behind = first + extent
    parts += [*gaps, (behind, itemsize * prod(shape) - behind, [], [], None)]
    return [part for part in parts if part[1]]
