"""Find the inner chunks that a selection takes of a shard, many at once: pure, no I/O.

A basic selection takes the same box of all inner chunks, except of those at its edges. So inner
chunks are handled together: numpy computes where they are, and thousands of them take little longer
than a few.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import compress, product
from math import prod
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from ucxstore.base.zarr_compat import ChunkProjection, Indexer, IntDimIndexer, SliceDimIndexer
from ucxstore.pipeline.geometry.axes import Grid, find_axes, grid_of
from ucxstore.pipeline.geometry.costs import MOST_OFFSETS, is_less_in_runs
from ucxstore.pipeline.geometry.runs import Move, Runs, find_move, runs_of, shifted
from ucxstore.pipeline.indexes.index import Ints, Sharding

type Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Boxes:
    """Inner chunks of which the same box is wanted.

    Parameters
    ----------
    chunks : numpy.ndarray
        Their numbers in the shard, in C order.
    selection : tuple
        The selection in each: a slice or an integer for each axis.
    counts : tuple of int
        The box's shape, without the axes of integers.
    starts : numpy.ndarray
        Where each box starts in the selected part of the shard: as many columns as `counts`.
    whole : bool
        Whether the box is all of a chunk.
    """

    chunks: Ints
    selection: tuple[Any, ...]
    counts: tuple[int, ...]
    starts: Ints
    whole: bool

    def __iter__(self) -> Iterator[tuple[int, Any, Any]]:
        """Yield each chunk's number, what is wanted of it, and where that goes."""
        for chunk, starts in zip(self.chunks.tolist(), self.starts.tolist(), strict=True):
            target = tuple(slice(a, a + n) for a, n in zip(starts, self.counts, strict=True))
            yield chunk, self.selection, target

    def only(self, which: Mask | slice) -> Self:
        """Return some of them."""
        return replace(self, chunks=self.chunks[which], starts=self.starts[which])

    def source(self, shape: Sequence[int], itemsize: int) -> Runs:
        """Return the runs of the box in a chunk of this shape, in C order."""
        offset = 0
        axes: list[tuple[int, int]] = []
        strides = grid_of(shape, itemsize, "C").strides
        for stride, wanted in zip(strides, self.selection, strict=True):
            if isinstance(wanted, slice):
                offset += wanted.start * stride
                axes.append((_count(wanted), wanted.step * stride))
            else:
                offset += wanted * stride
        return runs_of(axes, itemsize, offset)

    def target(self, strides: Sequence[int], itemsize: int) -> Runs:
        """Return the runs of all boxes in memory of these strides, from its first item on."""
        box = runs_of(zip(self.counts, strides, strict=True), itemsize)
        return *box[:4], self.starts @ np.array(strides, np.int64)

    def split_moves(
        self, sharding: Sharding, target: Grid
    ) -> "tuple[BoxMoves | None, Boxes | None]":
        """Return the moves of inner chunks that are more work to fetch whole, and all others.

        Parameters
        ----------
        sharding : Sharding
            Its inner chunks are raw.
        target : Grid
            How the selected part of the shard lies in memory.
        """
        itemsize = sharding.itemsize
        source = self.source(sharding.spec.shape, itemsize)
        boxes = self.target(target.strides, itemsize)
        nbytes = prod(self.counts) * itemsize
        runs = nbytes // source[1] + nbytes // boxes[1]
        if is_less_in_runs(nbytes, itemsize, sharding.chunk_nbytes, runs):
            return BoxMoves(self, Move(source, boxes, nbytes)), None
        return None, self


@dataclass(frozen=True, slots=True)
class Points:
    """Inner chunks with any other selections, as zarr's indexers make them.

    Parameters
    ----------
    chunks : numpy.ndarray
        Their numbers in the shard, in C order.
    projections : list of ChunkProjection
        The selections in each, and in the selected part of the shard.
    """

    chunks: Ints
    projections: list[ChunkProjection]
    whole: ClassVar[bool] = False

    def __iter__(self) -> Iterator[tuple[int, Any, Any]]:
        """Yield each chunk's number, what is wanted of it, and where that goes."""
        for chunk, (_, selection, target, _) in zip(
            self.chunks.tolist(), self.projections, strict=True
        ):
            yield chunk, selection, target

    def only(self, which: Mask | slice) -> Self:
        """Return some of them."""
        if isinstance(which, slice):
            projections = self.projections[which]
        else:
            projections = list(compress(self.projections, which))
        return replace(self, chunks=self.chunks[which], projections=projections)

    def split_moves(
        self, sharding: Sharding, target: Grid
    ) -> "tuple[PointMoves | None, Points | None]":
        """Return moves, and the inner chunks to fetch whole; see `Boxes.split_moves`."""
        itemsize = sharding.itemsize
        chunk = grid_of(sharding.spec.shape, itemsize, "C")
        found: list[Move | None] = []
        for _, chunk_selection, out_selection in self:
            axes = find_axes(chunk_selection, out_selection, (), chunk, target)
            found.append(None if axes is None else find_move(axes, itemsize, sharding.chunk_nbytes))
        which = np.array([move is not None for move in found])
        moves = [move for move in found if move is not None]
        return (
            PointMoves(self.only(which), moves) if moves else None,
            self.only(~which) if len(moves) < len(found) else None,
        )


@dataclass(frozen=True, slots=True)
class BoxMoves:
    """Moves of boxes of raw inner chunks.

    Parameters
    ----------
    chunks : Boxes
    each : Move
        The move of one box. Its target has the offsets of all boxes.
    """

    chunks: Boxes
    each: Move

    def moves(self, starts: Ints, held: Mask) -> Iterator[Move]:
        """Yield the moves from a shard, each of as many inner chunks as a request takes.

        Parameters
        ----------
        starts : numpy.ndarray
            The offsets of the inner chunks in the shard.
        held : numpy.ndarray
            Which of them the shard holds.
        """
        source, target, nbytes = self.each
        offsets = target[-1]
        assert offsets is not None
        if not held.all():
            starts, offsets = starts[held], offsets[held]
        for begin in range(0, len(starts), MOST_OFFSETS):
            some = slice(begin, begin + MOST_OFFSETS)
            yield Move(
                (*source[:4], starts[some]),
                (*target[:4], offsets[some]),
                nbytes * len(starts[some]),
            )

    def each_from_its_start(self, held: Mask) -> Iterator[Move]:
        """Yield the move of each inner chunk that is held, counted from the chunk's own start."""
        source, target, nbytes = self.each
        offset, *rest, offsets = target
        assert offsets is not None
        for more in offsets[held].tolist():
            yield Move(source, (offset + more, *rest, None), nbytes)


@dataclass(frozen=True, slots=True)
class PointMoves:
    """Moves of any other selections of raw inner chunks.

    Parameters
    ----------
    chunks : Points
    each : list of Move
        A move for each inner chunk. Its source counts from the start of that.
    """

    chunks: Points
    each: list[Move]

    def moves(self, starts: Ints, held: Mask) -> Iterator[Move]:
        """Yield the moves from a shard; see `BoxMoves.moves`."""
        for (source, target, nbytes), start in compress(
            zip(self.each, starts.tolist(), strict=True), held
        ):
            yield Move(shifted(source, start), target, nbytes)

    def each_from_its_start(self, held: Mask) -> Iterator[Move]:
        """Yield the moves of inner chunks that are held; see `BoxMoves.each_from_its_start`."""
        yield from compress(self.each, held)


def find_inner_chunks(indexer: Indexer, sharding: Sharding) -> list[Boxes] | list[Points]:
    """Return the inner chunks that a selection takes of a shard.

    Parameters
    ----------
    indexer : Indexer
        zarr's indexer of the selection in the shard.
    sharding : Sharding
    """
    axes: list[list[_Cut]] = []
    for axis in getattr(indexer, "dim_indexers", (None,)):
        # Only the exact classes: a subclass may select something else.
        if type(axis) is not SliceDimIndexer and type(axis) is not IntDimIndexer:
            return [points_of(indexer, sharding)]
        alike: dict[Any, tuple[list[int], list[int]]] = {}
        for chunk, wanted, target, _ in axis:
            chunks, starts = alike.setdefault(wanted, ([], []))
            chunks.append(chunk)
            starts.append(target.start if isinstance(target, slice) else -1)
        axes.append([(key, np.array(a), np.array(b)) for key, (a, b) in alike.items()])
    return [_boxes(cuts, sharding) for cuts in product(*axes)]


def points_of(projections: Iterable[ChunkProjection], sharding: Sharding) -> Points:
    """Return the inner chunks of a shard that zarr's projections select."""
    found, grid = list(projections), sharding.grid
    where = np.array([one.chunk_coords for one in found], np.int64).reshape(-1, len(grid))
    return Points(np.asarray(np.ravel_multi_index(tuple(where.T), grid)), found)


type _Cut = tuple[Any, Ints, Ints]
"""Along one axis: the selection that some chunks share, their numbers, and where each goes."""


def _boxes(cuts: Sequence[_Cut], sharding: Sharding) -> Boxes:
    chunks = np.ravel_multi_index(np.ix_(*(numbers for _, numbers, _ in cuts)), sharding.grid)
    selection = tuple(wanted for wanted, _, _ in cuts)
    kept = [axis for axis, wanted in enumerate(selection) if isinstance(wanted, slice)]
    starts = np.empty((*chunks.shape, len(kept)), np.int64)
    for column, axis in enumerate(kept):
        starts[..., column] = cuts[axis][2].reshape((-1,) + (1,) * (len(cuts) - axis - 1))
    return Boxes(
        chunks.reshape(-1),
        selection,
        tuple(_count(selection[axis]) for axis in kept),
        starts.reshape(chunks.size, len(kept)),
        tuple(map(_count, selection)) == sharding.spec.shape,
    )


def _count(wanted: Any) -> int:
    """Return how many items a slice or an integer selects."""
    return len(range(wanted.start, wanted.stop, wanted.step)) if isinstance(wanted, slice) else 1
