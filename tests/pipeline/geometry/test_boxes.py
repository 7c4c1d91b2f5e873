import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from ucxstore.pipeline.geometry.boxes import find_box
from ucxstore.pipeline.geometry.runs import run_nbytes


def test_slices_make_a_box() -> None:
    chunk = (slice(2, 5, 1), slice(0, 4, 1))
    assert find_box(chunk, (slice(10, 13), slice(0, 4))) == ([2, 0], [10, 0], [3, 4], ())


def test_integers_drop_axes() -> None:
    chunk = (7, slice(0, 4, 1), 3)
    assert find_box(chunk, (slice(8, 12),)) == ([7, 0, 3], [0, 8, 0], [1, 4, 1], (0, 2))


def test_a_scalar_is_one_item() -> None:
    assert find_box((), ()) == ([0], [0], [1], (0,))


def test_a_step_over_one_item_is_none() -> None:
    assert find_box((slice(1, 4, 3),), (slice(0, 1),)) == ([1], [0], [1], ())


def test_no_step_at_all() -> None:
    assert find_box((slice(0, 2),), (slice(0, 2, 1),)) == ([0], [0], [2], ())


@pytest.mark.parametrize(
    ("chunk", "out"),
    [
        ((slice(0, 4, 2),), (slice(0, 2),)),
        ((slice(0, 4, 1),), (slice(0, 8, 2),)),
        ((slice(0, 4, 1),), (slice(0, 3),)),
        ((slice(0, 0, 1),), (slice(0, 0),)),
        ((np.array([0, 1]),), (slice(0, 2),)),
        ((slice(0, 2, 1),), (np.array([0, 1]),)),
        ((slice(0, 2, 1),), slice(0, 2)),
        ((slice(0, 2, 1),), np.array([0, 1])),
        (np.array([0, 1]), (slice(0, 2),)),
        (slice(0, 2), (slice(0, 2),)),
        ((slice(0, 2, 1),), ()),
        ((3,), (slice(0, 1),)),
        ((slice(0, 2, 1),), (slice(0, 2), slice(0, 2))),
        ((np.int64(3),), ()),
        ((True,), ()),
        ((None,), ()),
        ((Ellipsis,), (slice(0, 2),)),
        ((slice(np.int64(0), np.int64(2), 1),), (slice(0, 2),)),
    ],
)
def test_all_else_is_no_box(chunk: object, out: object) -> None:
    assert find_box(chunk, out) is None


@st.composite
def boxes(draw: st.DrawFn) -> tuple[np.ndarray, list[int]]:
    """Draw an array and the shape of a box in it."""
    ndim = draw(st.integers(1, 3))
    counts = [draw(st.integers(1, 4)) for _ in range(ndim)]
    shape = [n + draw(st.integers(0, 2)) for n in counts]
    axes = draw(st.permutations(range(ndim)))
    array = np.zeros([shape[axis] for axis in axes], "u2").transpose(np.argsort(axes))
    return array, counts


@given(boxes())
def test_runs_are_contiguous(case: tuple[np.ndarray, list[int]]) -> None:
    array, counts = case
    run = run_nbytes(array.strides, counts, array.itemsize)
    places = sum(
        index * stride for index, stride in zip(np.indices(counts), array.strides, strict=True)
    )
    # The longest run of items that are neighbours, from the first item on.
    breaks = np.flatnonzero(np.diff(places.ravel()) != array.itemsize)
    items = breaks[0] + 1 if breaks.size else np.prod(counts)
    assert run == items * array.itemsize
