"""Describe selected bytes as runs of contiguous bytes, for the native core: pure geometry."""

from collections.abc import Iterable, Sequence
from math import prod
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ucxstore.pipeline.geometry.axes import Axis, Indices, as_range
from ucxstore.pipeline.geometry.costs import is_less_in_runs

type Offsets = npt.NDArray[np.int64]

type Runs = tuple[int, int, list[int], list[int], Offsets | None]
"""What the native core takes: an offset, the bytes of a run, counts, strides in bytes, offsets.
The runs are in this order: for each of the offsets, for each index of the counts, the last axis
fastest.
"""


class Move(NamedTuple):
    """A move of bytes from a chunk to the array, in the same order at both ends.

    Parameters
    ----------
    source : tuple
        Runs from a chunk's start.
    target : tuple
        Runs from the array's first item.
    nbytes : int
        Bytes that move.
    """

    source: Runs
    target: Runs
    nbytes: int


def find_move(axes: Sequence[Axis], itemsize: int, chunk_nbytes: int) -> Move | None:
    """Return the move of a selection.

    Parameters
    ----------
    axes : sequence of Axis
        What is selected, outermost in the chunk first. At least one item is.
    itemsize, chunk_nbytes : int
        Bytes of an item and of the chunk.

    Returns
    -------
    Move or None
        ``None`` if it is less work to fetch the whole chunk.
    """
    # Axes whose indices are not evenly spaced come first: offsets do, too. So only these axes
    # become offsets, which are sent one by one.
    axes = sorted(axes, key=_is_even)
    source = _End([(axis.source, axis.source_stride) for axis in axes], itemsize)
    target = _End([(axis.target, axis.target_stride) for axis in axes], itemsize)
    nbytes = itemsize * prod([len(axis.source) for axis in axes])
    runs = nbytes // source.run + nbytes // target.run
    if not is_less_in_runs(nbytes, itemsize, chunk_nbytes, runs, source.count_offsets()):
        return None
    return Move(source.runs(), target.runs(), nbytes)


def runs_of(axes: Iterable[tuple[int, int]], itemsize: int, offset: int = 0) -> Runs:
    """Return a box as runs.

    Parameters
    ----------
    axes : iterable of (int, int)
        For each axis, outermost first, how many indices the box has, and bytes between them.
    itemsize : int
        Bytes of an item.
    offset : int
        Where the box starts.
    """
    end = _End([(range(count), stride) for count, stride in axes], itemsize)
    end.offset += offset
    return end.runs()


def run_nbytes(strides: Sequence[int], counts: Sequence[int], itemsize: int) -> int:
    """Return how many bytes of a box are contiguous, from its first item on."""
    return runs_of(zip(counts, strides, strict=True), itemsize)[1]


def all_runs(nbytes: int) -> Runs:
    """Return the runs of a whole value of so many bytes."""
    return 0, nbytes, [], [], None


def count_bytes(runs: Runs) -> int:
    """Return how many bytes some runs have."""
    _, run, counts, _, offsets = runs
    return run * prod(counts) * (1 if offsets is None else len(offsets))


def shifted(runs: Runs, nbytes: int) -> Runs:
    """Return the same runs, so many bytes further on."""
    offset, *rest = runs
    return (offset + nbytes, *rest)  # type: ignore[return-value]


def _is_even(axis: Axis) -> bool:
    return type(axis.source) is range and type(axis.target) is range


class _End:
    """One end of a move: indices and strides of its axes, of which the innermost make runs."""

    __slots__ = ("axes", "offset", "offset_axes", "run")

    def __init__(self, axes: list[tuple[Indices, int]], itemsize: int) -> None:
        self.offset, self.run = 0, itemsize
        self.axes: list[tuple[Indices, int]] = []
        for indices, stride in reversed(axes):
            if not self.axes:
                together = _together(indices, stride, self.run)
                if together > 1:
                    self.run *= together
                    indices = indices[::together]
                    if type(indices) is not range:
                        indices = as_range(indices)
            if len(indices) == 1:
                self.offset += int(indices[0]) * stride
            else:
                self.axes.append((indices, stride))
        self.axes.reverse()
        # How many axes, from the outermost on, are given as offsets instead of strides.
        self.offset_axes = 0
        for number, (indices, _) in enumerate(self.axes, 1):
            if type(indices) is not range:
                self.offset_axes = number

    def count_offsets(self) -> int:
        """Return how many offsets the runs have."""
        if self.offset_axes == 0:
            return 0
        return prod(len(indices) for indices, _ in self.axes[: self.offset_axes])

    def runs(self) -> Runs:
        """Return the runs."""
        offset = self.offset
        counts: list[int] = []
        strides: list[int] = []
        for indices, stride in self.axes[self.offset_axes :]:
            assert type(indices) is range
            offset += indices[0] * stride
            counts.append(len(indices))
            strides.append(indices.step * stride)
        offsets: Offsets | None = None
        for indices, stride in self.axes[: self.offset_axes]:
            if type(indices) is range:
                indices = np.arange(indices.start, indices.stop, indices.step)
            starts = indices * stride
            offsets = starts if offsets is None else np.add.outer(offsets, starts).reshape(-1)
        return offset, self.run, counts, strides, offsets


def _together(indices: Indices, stride: int, run: int) -> int:
    """Return how many indices make one run: the same number from the first index to the last."""
    if stride == 0 or run % stride != 0:
        return 1
    step = run // stride
    if type(indices) is range:
        return len(indices) if indices.step == step else 1
    if indices[1] - indices[0] != step:
        return 1
    ends = np.flatnonzero(indices[1:] - indices[:-1] != step) + 1
    return int(np.gcd.reduce(ends, initial=indices.size))
