import hypothesis.strategies as st
import numpy as np
from hypothesis import given
from numpy.lib.stride_tricks import as_strided

from ucxstore.pipeline.geometry.boxes import runs_around
from ucxstore.pipeline.geometry.runs import Runs, all_runs, count_bytes, shifted


def covered(parts: list[Runs], nbytes: int) -> np.ndarray:
    """Count how often each byte of a chunk is in one of the parts."""
    found = np.zeros(nbytes, "u1")
    for offset, run, counts, strides, offsets in parts:
        assert offsets is None
        assert run > 0
        view = as_strided(found[offset:], (*counts, run), (*strides, 1))
        assert offset + sum((c - 1) * s for c, s in zip(counts, strides, strict=True)) + run <= (
            nbytes
        )
        view += 1
    return found


@st.composite
def boxes(draw: st.DrawFn) -> tuple[list[int], list[int], list[int]]:
    shape = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    starts = [draw(st.integers(0, side - 1)) for side in shape]
    counts = [draw(st.integers(1, s - a)) for s, a in zip(shape, starts, strict=True)]
    return shape, starts, counts


@given(box=boxes(), itemsize=st.integers(1, 3))
def test_they_are_what_the_box_is_not(
    box: tuple[list[int], list[int], list[int]], itemsize: int
) -> None:
    shape, starts, counts = box
    nbytes = itemsize * int(np.prod(shape))
    parts = runs_around(shape, starts, counts, itemsize)
    inside = np.zeros((*shape, itemsize), "u1")
    inside[tuple(slice(a, a + n) for a, n in zip(starts, counts, strict=True))] = 1
    np.testing.assert_array_equal(covered(parts, nbytes), 1 - inside.reshape(-1))
    assert sum(map(count_bytes, parts)) == nbytes - inside.sum()
    assert len(parts) <= 2 + len(shape)


def test_few_parts_are_left() -> None:
    assert runs_around([10, 10], [0, 0], [10, 10], 4) == []
    assert runs_around([10, 10], [0, 0], [4, 10], 4) == [(160, 240, [], [], None)]
    assert runs_around([10, 10], [4, 0], [6, 10], 4) == [(0, 160, [], [], None)]
    assert runs_around([10, 10], [0, 3], [10, 2], 4) == [
        (0, 12, [], [], None),
        (20, 32, [9], [40], None),
        (380, 20, [], [], None),
    ]


def test_parts_of_a_chunk_further_on() -> None:
    assert shifted(all_runs(40), 7) == (7, 40, [], [], None)
    assert shifted((5, 2, [3], [4], None), 10) == (15, 2, [3], [4], None)
