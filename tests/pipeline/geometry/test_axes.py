"""Selections of independent axes, selections of points, and all others are told apart."""

from typing import Any

import numpy as np
import pytest

from ucxstore.pipeline.geometry.axes import Axis, Grid, as_range, find_axes, grid_of

SHAPE = (6, 5, 4)
CHUNK = grid_of(SHAPE, 2, "C")
OUT = Grid((6, 5, 4), (40, 8, 2))
ALL = slice(None)


def test_slices_and_integers() -> None:
    chunk = (slice(1, 6, 2), 3, slice(0, 4))
    assert find_axes(chunk, (slice(0, 3), slice(0, 4)), (), CHUNK, Grid((3, 4), (8, 2))) == [
        Axis(range(1, 6, 2), 40, range(3), 8),
        Axis(range(3, 4), 8, range(1), 0),
        Axis(range(4), 2, range(4), 2),
    ]


def test_fortran_order_turns_the_axes_round() -> None:
    grid = grid_of((6, 5), 2, "F")
    axes = find_axes((ALL, ALL), (ALL, ALL), (), grid, Grid((6, 5), (2, 12)))
    assert axes == [Axis(range(5), 12, range(5), 12), Axis(range(6), 2, range(6), 2)]


def test_integers_of_numpy() -> None:
    chunk = (np.int64(1), slice(np.int64(0), np.int64(2)), 3)
    axes = find_axes(chunk, (slice(np.int64(0), np.int64(2)),), (), CHUNK, Grid((2,), (2,)))
    assert axes is not None
    assert [axis.source for axis in axes] == [range(1, 2), range(2), range(3, 4)]


@pytest.mark.parametrize(
    ("indices", "found"),
    [
        ([3], range(3, 4)),
        ([3, 5], range(3, 7, 2)),
        ([3, 2, 1], None),  # a server reads forwards
        ([3, 3], None),
        ([3, 4, 6], None),
        ([1, 2, 4, 4], None),
    ],
)
def test_ranges(indices: list[int], found: range | None) -> None:
    array = np.array(indices)
    assert as_range(array) is array if found is None else as_range(array) == found


SOME = np.array([0, 2, 3])
FLAT = Grid((3,), (2,))
MASK = np.array([True, False, True, True, False, False])


@pytest.mark.parametrize(
    ("chunk", "out", "drop_axes", "grid"),
    [
        # out of bounds, or counted from the end
        ((np.array([0, 6, 3]), 0, 0), (ALL,), (), FLAT),
        ((np.array([0, -1, 3]), ALL, ALL), (slice(0, 3), ALL, ALL), (), OUT),
        ((np.array([0, 9, 3]), ALL, ALL), (slice(0, 3), ALL, ALL), (), OUT),
        ((SOME, ALL, ALL), (np.array([0, 6, 3]), ALL, ALL), (), OUT),
        ((SOME, ALL, ALL), (np.array([0, -1, 3]), ALL, ALL), (), OUT),
        ((SOME, SOME, np.array([0, 4, 0])), ALL, (), FLAT),
        ((SOME, SOME, -SOME), ALL, (), FLAT),
        ((6, ALL, ALL), (ALL, ALL), (), Grid((5, 4), (8, 2))),
        ((-1, ALL, ALL), (ALL, ALL), (), Grid((5, 4), (8, 2))),
        # other lengths, which numpy spreads or refuses
        ((slice(0, 1), ALL, ALL), (ALL, ALL, ALL), (), OUT),
        ((ALL, ALL, ALL), (slice(0, 3), ALL, ALL), (), OUT),
        ((SOME, SOME, SOME[:1]), ALL, (), FLAT),
        ((MASK[:5], ALL, ALL), (slice(0, 3), ALL, ALL), (), OUT),
        ((slice(3, 3), ALL, ALL), (slice(0, 0), ALL, ALL), (), OUT),
        ((slice(5, None, -1), ALL, ALL), (ALL, ALL, ALL), (), OUT),
        ((SOME[:0], ALL, ALL), (slice(0, 0), ALL, ALL), (), OUT),
        # arrays that belong together, or bring axes of their own
        ((SOME, ALL, SOME), (slice(0, 3), ALL), (), Grid((3, 5), (10, 2))),
        ((SOME, 1, ALL), (slice(0, 3), ALL), (), Grid((3, 4), (8, 2))),
        ((SOME.reshape(1, 3), ALL, ALL), (slice(0, 3), ALL, ALL), (), OUT),
        (np.ix_(SOME, SOME, SOME)[::-1], (slice(0, 3),) * 3, (), OUT),
        ((ALL, ALL, ALL), (SOME, SOME, ALL), (), OUT),
        # axes that do not fit
        ((ALL, ALL, 1), (ALL, ALL, ALL), (), OUT),
        ((ALL, ALL, 1), (ALL, ALL, 1), (), OUT),
        ((ALL, ALL), (ALL, ALL, ALL), (), OUT),
        ((ALL, slice(0, 2), ALL), (ALL, ALL), (1,), Grid((6, 4), (8, 2))),
        ((1, slice(0, 1), ALL), (ALL,), (1,), Grid((4,), (2,))),
        # other kinds
        ((SOME.astype("i4"), ALL, ALL), (slice(0, 3), ALL, ALL), (), OUT),
        (([0, 2, 3], ALL, ALL), (slice(0, 3), ALL, ALL), (), OUT),
        ((True, ALL, ALL), (slice(0, 1), ALL, ALL), (), OUT),
        ((None, ALL, ALL), (slice(0, 1), ALL, ALL), (), OUT),
        ((Ellipsis, ALL, ALL), (ALL, ALL, ALL), (), OUT),
        ((SOME, SOME, SOME.astype("u8")), ALL, (), FLAT),
        (ALL, (ALL, ALL, ALL), (), OUT),
    ],
)
def test_what_is_none(chunk: Any, out: Any, drop_axes: Any, grid: Grid) -> None:
    assert find_axes(chunk, out, drop_axes, CHUNK, grid) is None


@pytest.mark.parametrize(
    ("chunk", "out", "drop_axes", "grid"),
    [
        ((MASK, ALL, ALL), (slice(0, 3), ALL, ALL), (), OUT),
        ((ALL, ALL, SOME), (ALL, ALL, SOME[::-1]), (), OUT),
        ((SOME, SOME, SOME), SOME[::-1], (), Grid((4,), (2,))),
        ((SOME, SOME, SOME), (SOME[::-1],), (), Grid((4,), (2,))),
        (np.ix_(SOME, SOME, SOME), np.ix_(SOME, SOME, SOME), (), OUT),
        (np.ix_(SOME, [1], SOME), np.ix_(SOME, SOME), (1,), Grid((4, 4), (8, 2))),
        (np.ix_(SOME, [1], SOME), (slice(0, 3), slice(1, 4)), (1,), Grid((4, 4), (8, 2))),
    ],
)
def test_what_is_one(chunk: Any, out: Any, drop_axes: Any, grid: Grid) -> None:
    """The same items as numpy selects; `test_read_plan` has many more."""
    axes = find_axes(chunk, out, drop_axes, CHUNK, grid)
    assert axes is not None
    source = np.arange(2 * np.prod(SHAPE)).reshape(*SHAPE, 2)[..., 0]  # each item's own place
    target = np.full(grid.shape, -1)
    selected = source[chunk]
    target[out] = selected.squeeze(drop_axes) if drop_axes else selected
    found = np.full(grid.shape, -1).ravel()
    froms = tos = np.zeros(1, int)
    for axis in axes:
        froms = np.add.outer(froms, np.array(axis.source) * axis.source_stride).ravel()
        tos = np.add.outer(tos, np.array(axis.target) * axis.target_stride).ravel()
    found[tos // 2] = froms
    np.testing.assert_array_equal(found.reshape(grid.shape), target)
