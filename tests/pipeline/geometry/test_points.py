"""Points of many chunks, looked at together: the same places as one chunk at a time."""

from typing import Any

import numpy as np
import pytest
from zarr.core.chunk_grids import ChunkGrid, FixedDimension
from zarr.core.indexing import CoordinateIndexer

from ucxstore.pipeline.geometry.axes import Grid, find_axes, grid_of
from ucxstore.pipeline.geometry.points import MANY_POINTS, find_points
from ucxstore.pipeline.geometry.runs import Runs, find_move

CHUNK = (50, 40)
SHAPE = (500, 400)
ITEMSIZE = 4
NBYTES = ITEMSIZE * 50 * 40

type Selections = list[tuple[Any, Any]]


def selections(count: int, *, ascending: bool = False) -> Selections:
    """Return what zarr selects of each chunk for random points."""
    rng = np.random.default_rng(count)
    at = [rng.integers(-side, side, count) for side in SHAPE]
    if ascending:
        at = [np.sort(at[0] % SHAPE[0]), np.zeros(count, int)]
    grid = ChunkGrid(
        dimensions=tuple(
            FixedDimension(size=size, extent=extent)
            for size, extent in zip(CHUNK, SHAPE, strict=True)
        )
    )
    return [(one[1], one[2]) for one in CoordinateIndexer(tuple(at), SHAPE, grid)]


def places(part: Runs) -> list[int]:
    """Return where a part's items begin, of runs of whole items."""
    offset, run, counts, strides, offsets = part
    found = np.array([offset]) if offsets is None else offset + offsets
    for count, stride in zip(counts, strides, strict=True):
        found = np.add.outer(found, stride * np.arange(count)).reshape(-1)
    return np.add.outer(found, np.arange(0, run, ITEMSIZE)).reshape(-1).tolist()


@pytest.mark.parametrize("ascending", [False, True])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("stride", [4, 12, -4])
def test_they_are_where_they_are_chunk_by_chunk(order: Any, stride: int, ascending: bool) -> None:
    wanted = selections(200, ascending=ascending)
    chunk, array = grid_of(CHUNK, ITEMSIZE, order), Grid((200,), (stride,))
    moves = find_points(wanted, chunk, array, ITEMSIZE, NBYTES)
    assert moves is not None
    for move, (selected, target) in zip(moves, wanted, strict=True):
        axes = find_axes(selected, target, (), chunk, array)
        assert axes is not None
        other = find_move(axes, ITEMSIZE, 1 << 30)
        assert other is not None
        assert move.nbytes == other.nbytes
        ours = zip(places(move.source), places(move.target), strict=True)
        assert set(ours) == set(zip(places(other.source), places(other.target), strict=True))


CORNER = (np.array([49]), np.array([39]))


@pytest.mark.parametrize(
    ("selected", "target"),
    [
        ((np.array([50]), np.array([0])), slice(0, 1)),
        ((np.array([0]), np.array([-1])), slice(0, 1)),
        ((np.array([0]),), slice(0, 1)),
        ((np.array([0]), np.array([0, 1])), slice(0, 1)),
        ((np.array([[0]]), np.array([[0]])), slice(0, 1)),
        ((np.array([True]), np.array([False])), slice(0, 1)),
        ((slice(0, 1), np.array([0])), slice(0, 1)),
        ((np.array([], int), np.array([], int)), slice(0, 0)),
        (CORNER, slice(0, 2)),
        (CORNER, slice(10, 11)),
        (CORNER, np.array([10])),
        (CORNER, np.array([-1])),
        (CORNER, np.array([True])),
        (CORNER, (slice(0, 1), slice(0, 1))),
    ],
)
def test_what_is_not_looked_at_together(selected: Any, target: Any) -> None:
    chunk, array = grid_of(CHUNK, ITEMSIZE, "C"), Grid((10,), (4,))
    assert find_points([(selected, target)], chunk, array, ITEMSIZE, NBYTES) is None
    assert find_points([(CORNER, slice(9, 10))], chunk, array, ITEMSIZE, NBYTES) is not None
    both = [(CORNER, slice(9, 10)), (selected, target)]
    assert find_points(both, chunk, array, ITEMSIZE, NBYTES) is None


def test_many_points_or_small_chunks_are_not_looked_at_together() -> None:
    chunk, array = grid_of(CHUNK, ITEMSIZE, "C"), Grid((MANY_POINTS + 1,), (4,))
    many = tuple(np.zeros(MANY_POINTS + 1, int) for _ in CHUNK)
    target = slice(0, MANY_POINTS + 1)
    assert find_points([(many, target)], chunk, array, ITEMSIZE, 1 << 20) is None
    assert find_points([(CORNER, slice(0, 1))] * 3, chunk, Grid((9, 9), (4, 4)), 4, NBYTES) is None
