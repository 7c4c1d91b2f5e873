import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from ucxstore.boxes import find_box, row_bytes


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
def boxes(draw: st.DrawFn) -> tuple[tuple[int, ...], np.ndarray, tuple[int, ...]]:
    ndim = draw(st.integers(1, 3))
    shape = draw(st.tuples(*[st.integers(1, 4)] * ndim))
    counts = draw(st.tuples(*[st.integers(1, n) for n in shape]))
    margin = draw(st.tuples(*[st.integers(0, 2)] * ndim))
    big = np.zeros([n + m for n, m in zip(counts, margin, strict=True)], "u2")
    big = big.transpose(draw(st.permutations(range(ndim)))).copy().transpose()
    out = np.zeros([n + m for n, m in zip(counts, margin, strict=True)], "u2")
    return shape, out if draw(st.booleans()) else np.asfortranarray(out), counts


@given(boxes())
def test_rows_are_contiguous_on_both_sides(
    case: tuple[tuple[int, ...], np.ndarray, tuple[int, ...]],
) -> None:
    shape, out, counts = case
    chunk = np.zeros(shape, out.dtype)
    inside = tuple(slice(0, n) for n in counts)
    row = row_bytes(shape, out.strides, counts, out.itemsize)

    def addresses(array: np.ndarray) -> np.ndarray:
        offsets = np.zeros(counts, int)
        for axis, stride in enumerate(array.strides):
            offsets += np.indices(counts)[axis] * stride
        return offsets.ravel()

    # The longest run of items that are neighbours in both, from the first item on.
    steps = np.stack([np.diff(addresses(chunk[inside])), np.diff(addresses(out[inside]))])
    breaks = np.flatnonzero((steps != out.itemsize).any(axis=0))
    items = breaks[0] + 1 if breaks.size else np.prod(counts)
    assert row == items * out.itemsize
