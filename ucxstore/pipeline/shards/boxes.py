"""What a selection takes of a shard's inner chunks, many at once: pure geometry.

A basic selection cuts all inner chunks of a shard but those at its edges in the same way. So they
are taken together: numpy computes where they are, and a shard of thousands costs little more than
one of a few.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import compress, product
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from ucxstore.pipeline.geometry.runs import Part
from ucxstore.pipeline.shards.index import Ints, Sharding
from ucxstore.zarr_compat import ChunkProjection, Indexer, IntDimIndexer, SliceDimIndexer


@dataclass(frozen=True, slots=True)
class Boxes:
    """Inner chunks of which the same box is wanted.

    Parameters
    ----------
    chunks : numpy.ndarray
        Their numbers in the shard, in C order.
    selection : tuple
        What is wanted of each: a slice or an integer for each axis.
    counts : tuple of int
        The box's shape, without the axes of integers.
    places : numpy.ndarray
        Where each box starts in what is selected of the shard: as many columns as `counts`.
    whole : bool
        Whether the box is all of a chunk.
    """

    chunks: Ints
    selection: tuple[Any, ...]
    counts: tuple[int, ...]
    places: Ints
    whole: bool

    def __iter__(self) -> Iterator[tuple[int, Any, Any]]:
        """Yield each chunk's number, what is wanted of it, and where that goes."""
        for chunk, starts in zip(self.chunks.tolist(), self.places.tolist(), strict=True):
            place = tuple(slice(a, a + n) for a, n in zip(starts, self.counts, strict=True))
            yield chunk, self.selection, place

    def only(self, which: npt.NDArray[np.bool_]) -> Self:
        """Return some of them."""
        return replace(self, chunks=self.chunks[which], places=self.places[which])

    def between(self, begin: int, end: int) -> Self:
        """Return those from one to another, as they stand here."""
        return replace(self, chunks=self.chunks[begin:end], places=self.places[begin:end])

    def source(self, shape: Sequence[int], itemsize: int) -> Part:
        """Return where the box is in a C-order chunk of this shape."""
        offset, stride = 0, itemsize
        dims: list[tuple[int, int]] = []
        for length, wanted in zip(reversed(shape), reversed(self.selection), strict=True):
            if isinstance(wanted, slice):
                offset += wanted.start * stride
                dims.append((_count(wanted), wanted.step * stride))
            else:
                offset += wanted * stride
            stride *= length
        return offset, *_merge(dims, itemsize), None

    def target(self, strides: Sequence[int], itemsize: int) -> Part:
        """Return where the boxes go in memory of these strides, from its first item."""
        dims = list(zip(reversed(self.counts), reversed(strides), strict=True))
        return 0, *_merge(dims, itemsize), self.places @ np.array(strides, np.int64)


@dataclass(frozen=True, slots=True)
class Points:
    """Inner chunks of which anything is wanted, as zarr's indexers have it.

    Parameters
    ----------
    chunks : numpy.ndarray
        Their numbers in the shard, in C order.
    projections : list of ChunkProjection
        What is wanted of each, and where in what is selected of the shard that goes.
    """

    chunks: Ints
    projections: list[ChunkProjection]
    whole: ClassVar[bool] = False

    def __iter__(self) -> Iterator[tuple[int, Any, Any]]:
        """Yield each chunk's number, what is wanted of it, and where that goes."""
        for chunk, (_, selection, place, _) in zip(
            self.chunks.tolist(), self.projections, strict=True
        ):
            yield chunk, selection, place

    def only(self, which: npt.NDArray[np.bool_]) -> Self:
        """Return some of them."""
        return replace(
            self, chunks=self.chunks[which], projections=list(compress(self.projections, which))
        )

    def between(self, begin: int, end: int) -> Self:
        """Return those from one to another, as they stand here."""
        return replace(self, chunks=self.chunks[begin:end], projections=self.projections[begin:end])


def find_parts(indexer: Indexer, sharding: Sharding) -> list[Boxes] | list[Points]:
    """Return what a selection takes of a shard.

    Parameters
    ----------
    indexer : Indexer
        zarr's, of the selection in a shard.
    sharding : Sharding
    """
    axes: list[list[_Cut]] = []
    for axis in getattr(indexer, "dim_indexers", (None,)):
        # The exact classes: what another one selects is not known here.
        if type(axis) is not SliceDimIndexer and type(axis) is not IntDimIndexer:
            return [points_of(indexer, sharding)]
        alike: dict[Any, tuple[list[int], list[int]]] = {}
        for chunk, wanted, place, _ in axis:
            chunks, places = alike.setdefault(wanted, ([], []))
            chunks.append(chunk)
            places.append(place.start if isinstance(place, slice) else -1)
        axes.append([(key, np.array(a), np.array(b)) for key, (a, b) in alike.items()])
    return [_boxes(cuts, sharding) for cuts in product(*axes)]


def points_of(projections: Iterable[ChunkProjection], sharding: Sharding) -> Points:
    """Return what anything selects of a shard."""
    found, grid = list(projections), sharding.grid
    where = np.array([one.chunk_coords for one in found], np.int64).reshape(-1, len(grid))
    return Points(np.asarray(np.ravel_multi_index(tuple(where.T), grid)), found)


type _Cut = tuple[Any, Ints, Ints]
"""Along one axis: what is wanted of some chunks, their numbers, and where that goes."""


def _boxes(cuts: Sequence[_Cut], sharding: Sharding) -> Boxes:
    chunks = np.ravel_multi_index(np.ix_(*(numbers for _, numbers, _ in cuts)), sharding.grid)
    selection = tuple(wanted for wanted, _, _ in cuts)
    kept = [axis for axis, wanted in enumerate(selection) if isinstance(wanted, slice)]
    places = np.empty((*chunks.shape, len(kept)), np.int64)
    for column, axis in enumerate(kept):
        places[..., column] = cuts[axis][2].reshape((-1,) + (1,) * (len(cuts) - axis - 1))
    return Boxes(
        chunks.reshape(-1),
        selection,
        tuple(_count(selection[axis]) for axis in kept),
        places.reshape(chunks.size, len(kept)),
        tuple(map(_count, selection)) == sharding.spec.shape,
    )


def _count(wanted: Any) -> int:
    """Return how many items a slice or an integer selects."""
    return len(range(wanted.start, wanted.stop, wanted.step)) if isinstance(wanted, slice) else 1


def _merge(dims: Sequence[tuple[int, int]], run: int) -> tuple[int, list[int], list[int]]:
    """Return bytes in a run, and counts and strides of runs, from axes, the last one first."""
    counts: list[int] = []
    strides: list[int] = []
    for count, stride in dims:
        if count == 1:
            continue
        if not counts and stride == run:
            run *= count
        else:
            counts.insert(0, count)
            strides.insert(0, stride)
    return run, counts, strides
