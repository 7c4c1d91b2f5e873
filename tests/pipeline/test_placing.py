from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ucxstore.base.native import core
from ucxstore.client.memory import describe
from ucxstore.pipeline import placing


@given(
    st.data(),
    st.lists(st.integers(1, 40), min_size=1, max_size=3),
    st.sampled_from(["u1", "f4", "V3", "c16"]),
    st.sampled_from(["C", "F"]),
    st.booleans(),
)
def test_values_come_to_their_place_and_nowhere_else(
    data: st.DataObject,
    counts: list[int],
    dtype: str,
    order: Literal["C", "F"],
    past_caches: bool,
) -> None:
    starts = [data.draw(st.integers(0, 5)) for _ in counts]
    ends = [data.draw(st.integers(0, 5)) for _ in counts]
    shape = [sum(lengths) for lengths in zip(starts, counts, ends, strict=True)]
    place = tuple(slice(at, at + n) for at, n in zip(starts, counts, strict=True))
    values = np.random.default_rng(0).integers(0, 255, np.zeros(counts, dtype).nbytes, np.uint8)
    array, expected = np.zeros(shape, dtype), np.zeros(shape, dtype)
    expected[place] = values.view(dtype).reshape(counts, order=order)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(placing, "LARGE_BYTES", 0 if past_caches else 1 << 60)
        patch.setattr(placing, "LEAST_ROW_BYTES", 0)
        placing.put(values, array[place], order, array_nbytes=array.nbytes)
    assert array.tobytes() == expected.tobytes()


def test_values_of_another_size_than_their_place_are_refused() -> None:
    out = np.zeros((4, 4), "u1")
    with pytest.raises(ValueError, match="not of their place's size"):
        core.place(np.ones(9, "u1"), describe(out[:2]))
    assert not out.any()
