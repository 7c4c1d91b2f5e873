"""What both oracles draw: dtypes, values, selections; and how they look at what came of a step."""

from collections.abc import Callable
from typing import Any

import hypothesis.extra.numpy as npst
import hypothesis.strategies as st
import numpy as np
import zarr
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync
from zarr.testing.strategies import basic_indices, orthogonal_indices

DTYPES = [
    *("?", "i1", "u1", "<i2", "<u4", "<i8", "<f2", "<f4", "<f8", "<c8", "<c16"),
    *(">i2", ">f4", ">c16", "S3", "<U2", "<M8[ns]", "<m8[s]"),
    [("a", "<i4"), ("b", "<f8"), ("c", "S3")],
]


def special(dtype: np.dtype) -> st.SearchStrategy[Any]:
    """Draw what counts in its own way when chunks are compared with the fill value."""
    texts = {"f": ["nan", "-0.0", "0"], "c": ["nan", "-0.0", "0"], "m": ["NaT"], "M": ["NaT"]}
    scalars = [np.array(text).astype(dtype)[()] for text in texts.get(dtype.kind, [])]
    return st.sampled_from(scalars or [np.zeros((), dtype)[()]])


def noise(dtype: np.dtype, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Return an array in which hardly two items are equal, as Hypothesis' own mostly are."""
    rng = np.random.default_rng(seed)
    if dtype.names is not None:
        array = np.empty(shape, dtype)
        for name in dtype.names:
            array[name] = noise(dtype[name], shape, seed)
        return array
    match dtype.kind:
        case "b":
            return rng.integers(0, 2, shape).astype(dtype)
        case "U":
            letters = rng.integers(ord("a"), ord("z"), (*shape, dtype.itemsize // 4), "u4")
            return letters.view(dtype.newbyteorder("=")).reshape(shape).astype(dtype)
        case _:
            data = rng.integers(1, 256, (*shape, dtype.itemsize), "u1")
            return data.view(dtype).reshape(shape)


@st.composite
def strides(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[slice | int, ...]:
    """Draw a basic selection with integers and steps, which is hardly ever empty."""
    selection: list[slice | int] = []
    for side in shape:
        start = draw(st.integers(-side, side - 1))
        stop = draw(st.none() | st.integers(1, 2 * side))
        step = draw(st.sampled_from([1, 1, 2, 3]))
        selection.append(draw(st.sampled_from([start, slice(start, stop, step)])))
    return tuple(selection)


type Step = Callable[[zarr.Array], Any]


@st.composite
def selections(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[str, Any]:
    """Draw a way to select, and what it selects."""
    kinds = ["basic", "basic", "all"]
    if shape and min(shape) > 0:
        kinds += ["strides", "strides", "strides", "orthogonal", "coordinate", "mask", "block"]
    kind = draw(st.sampled_from(kinds))
    match kind:
        case "all":
            return "basic", Ellipsis
        case "basic":
            return kind, draw(basic_indices(shape=shape, allow_newaxis=False))
        case "strides":
            return "basic", draw(strides(shape))
        case "orthogonal":
            return kind, draw(orthogonal_indices(shape=shape))[0]
        case "coordinate":
            return kind, draw(npst.integer_array_indices(shape))
        case "mask":
            return kind, draw(npst.arrays(bool, shape))
        case "block":
            return kind, tuple(draw(st.integers(0, 1)) for _ in shape)
    raise AssertionError(kind)


def read(kind: str, selection: Any) -> Step:
    def step(array: zarr.Array) -> Any:
        return getattr(array, f"get_{kind}_selection")(selection)

    return step


def write(kind: str, selection: Any, value: Any) -> Step:
    def step(array: zarr.Array) -> Any:
        return getattr(array, f"set_{kind}_selection")(selection, value)

    return step


def delete_chunk(key: str) -> Step:
    return lambda array: sync(array.store.delete(key))


def outcome(step: Step, array: zarr.Array) -> Any:
    """Return all there is to compare of what a step did."""
    try:
        result = step(array)
    except Exception as error:  # both sides must fail alike
        return type(error)
    if result is None:
        return None
    result = np.asarray(result)
    # Of texts and objects, an array's memory has only where they are.
    values = result.tolist() if result.dtype.kind in "OT" else result.tobytes()
    return result.dtype, result.shape, values, result.flags.f_contiguous


def contents(array: zarr.Array) -> dict[str, bytes]:
    async def collect() -> dict[str, bytes]:
        found = array.store._get_many(
            [(key, default_buffer_prototype(), None) async for key in array.store.list()]
        )
        return {key: value.to_bytes() async for key, value in found if value is not None}

    return sync(collect())
