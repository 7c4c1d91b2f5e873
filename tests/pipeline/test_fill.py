from typing import Any

import hypothesis.extra.numpy as npst
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from zarr.core.array_spec import ArrayConfig, ArraySpec
from zarr.core.buffer import cpu, default_buffer_prototype
from zarr.core.chunk_utils import chunk_is_empty
from zarr.core.dtype import get_data_type_from_native_dtype
from zarr.testing.strategies import dtypes

from ucxstore.pipeline import fill as fill_module
from ucxstore.pipeline.fill import FillTest, blocks


def spec_of(chunk: np.ndarray, fill_value: Any) -> ArraySpec:
    return ArraySpec(
        shape=chunk.shape,
        dtype=get_data_type_from_native_dtype(chunk.dtype),
        fill_value=fill_value,
        config=ArrayConfig.from_dict({"write_empty_chunks": False}),
        prototype=default_buffer_prototype(),
    )


def is_empty(chunk: np.ndarray, spec: ArraySpec) -> bool:
    """Ask as the plan asks."""
    return FillTest(spec).holds(chunk, [0] * chunk.ndim, chunk.shape)


@st.composite
def chunks(draw: st.DrawFn) -> tuple[np.ndarray, Any]:
    dtype = draw(dtypes())
    fill_value = draw(st.none() | npst.from_dtype(dtype))
    other = draw(npst.from_dtype(dtype))
    shape = draw(npst.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=9))
    default = get_data_type_from_native_dtype(dtype).default_scalar()
    chunk = np.full(shape, default if fill_value is None else fill_value, dtype)
    # All, none, one or some of the items differ.
    mask = draw(npst.arrays(bool, shape, elements=st.booleans()) | st.just(np.zeros(shape, bool)))
    chunk[mask] = other
    if draw(st.booleans()):
        chunk = np.asfortranarray(chunk)
    steps = draw(st.sampled_from([1, 2, -1]))
    return chunk[::steps], fill_value


@given(chunks())
def test_it_agrees_with_zarr(case: tuple[np.ndarray, Any]) -> None:
    chunk, fill_value = case
    spec = spec_of(chunk, fill_value)
    expected = chunk_is_empty(cpu.NDBuffer.from_ndarray_like(chunk), spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fill_module, "BLOCK_ITEMS", 4)  # so that small chunks have many blocks
        assert is_empty(chunk, spec) == expected


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c8", "c16", "M8[ns]", "m8[s]"])
@pytest.mark.parametrize("fill_value", ["0", "-0.0", "nan"])
@pytest.mark.parametrize("value", ["0", "-0.0", "nan", "1"])
def test_zeros_and_nans(dtype: str, fill_value: str, value: str) -> None:
    def scalar(text: str) -> Any:
        if dtype[0] in "mM":
            return np.array({"nan": "NaT"}.get(text, int(float(text))), dtype)[()]
        return np.dtype(dtype).type(float(text))

    if dtype[0] in "mM" and "nan" in {fill_value, value}:
        nat = np.array("NaT", dtype)[()]
        fill, item = (nat if v == "nan" else scalar(v) for v in (fill_value, value))
    else:
        fill, item = scalar(fill_value), scalar(value)
    chunk = np.full((5, 7), item, dtype)
    spec = spec_of(chunk, fill)
    expected = chunk_is_empty(cpu.NDBuffer.from_ndarray_like(chunk), spec)
    assert is_empty(chunk, spec) == expected


def test_structured_items() -> None:
    dtype = np.dtype([("a", "<i4"), ("b", "<f8")])
    chunk = np.zeros((3, 4), dtype)
    assert is_empty(chunk, spec_of(chunk, np.zeros((), dtype)[()]))
    chunk[2, 3] = (0, 1.0)
    assert not is_empty(chunk, spec_of(chunk, np.zeros((), dtype)[()]))


@given(
    npst.array_shapes(min_dims=1, max_dims=4, max_side=7),
    st.integers(1, 50),
    st.permutations(range(4)),
)
def test_blocks_are_views_that_make_up_the_array(
    shape: tuple[int, ...], items: int, axes: list[int]
) -> None:
    array = np.arange(np.prod(shape)).reshape(shape)
    array = array.transpose([axis for axis in axes if axis < array.ndim])
    parts = list(blocks(array, items))
    assert all(part.size <= items and np.shares_memory(part, array) for part in parts)
    assert np.concatenate([part.ravel() for part in parts]).tolist() == array.ravel().tolist()


def test_a_large_chunk_takes_little_memory() -> None:
    import tracemalloc

    chunk = np.full((2000, 2500), np.nan, "f4")
    spec = spec_of(chunk, np.float32("nan"))
    tracemalloc.start()
    try:
        assert is_empty(chunk, spec)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 0.05 * chunk.nbytes
