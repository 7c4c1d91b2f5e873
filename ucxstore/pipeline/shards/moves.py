"""Raw inner chunks of which bytes move straight to their places: pure geometry."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import compress
from math import prod

import numpy as np
import numpy.typing as npt

from ucxstore.pipeline.geometry.axes import Grid, find_axes, grid_of
from ucxstore.pipeline.geometry.costs import MOST_OFFSETS, is_less_in_runs
from ucxstore.pipeline.geometry.runs import Move, Part, find_move
from ucxstore.pipeline.shards.boxes import Boxes, Points
from ucxstore.pipeline.shards.index import Ints, Sharding

type Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class BoxMoves:
    """Boxes that move.

    Parameters
    ----------
    part : Boxes
    source : tuple
        Where the box is in an inner chunk.
    target : tuple
        Where all boxes go, by their offsets.
    nbytes : int
        Of one box.
    """

    part: Boxes
    source: Part
    target: Part
    nbytes: int

    def moves(self, starts: Ints, held: Mask) -> Iterator[Move]:
        """Yield what moves from a shard, all that are held together.

        Parameters
        ----------
        starts : numpy.ndarray
            Where in the shard inner chunks start.
        held : numpy.ndarray
            Which of them it holds.
        """
        places = self.target[-1]
        assert places is not None
        if not held.all():
            starts, places = starts[held], places[held]
        for begin in range(0, len(starts), MOST_OFFSETS):
            some = slice(begin, begin + MOST_OFFSETS)
            yield Move(
                (*self.source[:4], starts[some]),
                (*self.target[:4], places[some]),
                self.nbytes * len(starts[some]),
            )


@dataclass(frozen=True, slots=True)
class PointMoves:
    """Anything else that moves.

    Parameters
    ----------
    part : Points
    each : list of Move
        From the start of each inner chunk.
    """

    part: Points
    each: list[Move]

    def moves(self, starts: Ints, held: Mask) -> Iterator[Move]:
        """Yield what moves from a shard; see `BoxMoves.moves`."""
        for (source, target, nbytes), start in compress(
            zip(self.each, starts.tolist(), strict=True), held
        ):
            yield Move((source[0] + start, *source[1:]), target, nbytes)


def find_moves(
    part: Boxes | Points, sharding: Sharding, target: Grid
) -> tuple[BoxMoves | PointMoves | None, Boxes | Points | None]:
    """Find inner chunks of which it is less work to move what is wanted than to fetch all.

    Parameters
    ----------
    part : Boxes or Points
        Of raw inner chunks.
    sharding : Sharding
    target : Grid
        How what is selected of a shard lies in memory.

    Returns
    -------
    BoxMoves or PointMoves or None
    Boxes or Points or None
        Those that remain.
    """
    shape, itemsize = sharding.spec.shape, sharding.itemsize
    if isinstance(part, Boxes):
        from_, to = part.source(shape, itemsize), part.target(target.strides, itemsize)
        nbytes = prod(part.counts) * itemsize
        runs = nbytes // from_[1] + nbytes // to[1]
        if is_less_in_runs(nbytes, itemsize, sharding.chunk_nbytes, runs):
            return BoxMoves(part, from_, to, nbytes), None
        return None, part
    chunk = grid_of(shape, itemsize, "C")
    found: list[Move | None] = []
    for _, selection, place in part:
        axes = find_axes(selection, place, (), chunk, target)
        found.append(None if axes is None else find_move(axes, itemsize, sharding.chunk_nbytes))
    which = np.array([move is not None for move in found])
    moves = [move for move in found if move is not None]
    return (
        PointMoves(part.only(which), moves) if moves else None,
        part.only(~which) if len(moves) < len(found) else None,
    )
