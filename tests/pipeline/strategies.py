"""What the oracles draw: dtypes, values, selections; and how they compare the result of a step."""

import math
from collections.abc import Callable
from typing import Any

import hypothesis.extra.numpy as npst
import hypothesis.strategies as st
import numpy as np
import zarr
from zarr.core.buffer import cpu, default_buffer_prototype
from zarr.core.codec_pipeline import BatchedCodecPipeline
from zarr.core.sync import sync
from zarr.storage import MemoryStore
from zarr.testing.strategies import basic_indices, orthogonal_indices

from ucxstore import UcxStore, ZeroCopyCodecPipeline
from ucxstore.pipeline.geometry import costs

DTYPES = [
    *("?", "i1", "u1", "<i2", "<u4", "<i8", "<f2", "<f4", "<f8", "<c8", "<c16"),
    *(">i2", ">f4", ">c16", "S3", "<U2", "<M8[ns]", "<m8[s]"),
    [("a", "<i4"), ("b", "<f8"), ("c", "S3")],
]


# The cost of a run in the planner: nothing, so that all goes in parts; the usual; so much that
# nothing does.
RUN_COSTS = st.sampled_from([0.0, costs.RUN, 1e9])


def special(dtype: np.dtype) -> st.SearchStrategy[Any]:
    """Draw values that compare in a special way with the fill value, such as NaN and -0.0."""
    texts = {"f": ["nan", "-0.0", "0"], "c": ["nan", "-0.0", "0"], "m": ["NaT"], "M": ["NaT"]}
    scalars = [np.array(text).astype(dtype)[()] for text in texts.get(dtype.kind, [])]
    return st.sampled_from(scalars or [np.zeros((), dtype)[()]])


def noise(dtype: np.dtype, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Return an array with hardly any equal items; in Hypothesis' own arrays most are equal."""
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


@st.composite
def indices(draw: st.DrawFn, side: int) -> Any:
    """Draw what selects items of one axis: one or more of them, in many an order."""
    start = draw(st.integers(0, side - 1))
    numbers = st.integers(-side, side - 1)
    match draw(st.sampled_from(["integer", "slice", "some", "some", "sorted", "runs", "mask"])):
        case "integer":
            return draw(numbers)
        case "slice":
            return slice(start, None, draw(st.sampled_from([None, 1, 2, 3])))
        case "some":
            return draw(st.lists(numbers, min_size=1, max_size=6))
        case "sorted":
            return sorted(draw(st.sets(st.integers(0, side - 1), min_size=1)))
        case "runs":  # which do not all go the same way
            return [*range(start, side), *range(draw(st.integers(0, side)))]
        case "mask":
            mask = draw(npst.arrays(bool, side))
            mask[start] = True
            return mask
    raise AssertionError


@st.composite
def points(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    """Draw an index array an axis, all of the same length: a walk with some leaps, mostly."""
    count = draw(st.integers(1, 12))
    arrays = []
    for side in shape:
        walk = np.arange(count) * draw(st.sampled_from([0, 1, 1, 2, -1])) % side
        leaps = draw(npst.arrays(bool, count, elements=st.integers(0, 3).map(lambda n: n == 0)))
        far = draw(npst.arrays(np.intp, count, elements=st.integers(-side, side - 1)))
        arrays.append(np.where(leaps, far, walk))
    return tuple(arrays)


type Step = Callable[[zarr.Array], Any]


@st.composite
def selections(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[str, Any]:
    """Draw a way to select, and what it selects."""
    kinds = ["basic", "basic", "all"]
    if shape and min(shape) > 0:
        kinds += ["strides", "strides", "strides", "orthogonal", "coordinate", "mask", "block"]
        kinds += ["outer", "outer", "points", "points"]
    kind = draw(st.sampled_from(kinds))
    match kind:
        case "all":
            return "basic", Ellipsis
        case "basic":
            return kind, draw(basic_indices(shape=shape, allow_newaxis=False))
        case "strides":
            return "basic", draw(strides(shape))
        case "outer":
            return "orthogonal", tuple(draw(indices(side)) for side in shape)
        case "points":
            return "coordinate", draw(points(shape))
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
    # For texts and objects, an array's memory has only pointers.
    values = result.tolist() if result.dtype.kind in "OT" else result.tobytes()
    return result.dtype, result.shape, values, result.flags.f_contiguous


def contents(array: zarr.Array) -> dict[str, bytes]:
    async def collect() -> dict[str, bytes]:
        found = array.store._get_many(
            [(key, default_buffer_prototype(), None) async for key in array.store.list()]
        )
        return {key: value.to_bytes() async for key, value in found if value is not None}

    return sync(collect())


def assert_reads_into(data: st.DataObject, ours: zarr.Array, model: zarr.Array) -> None:
    """Compare what both read into memory of the user's, of any layout and another byte order."""
    layout = data.draw(st.sampled_from(["C", "F", "swapped", "strided", "backwards"]))
    results = []
    for array in ours, model:
        dtype = array.dtype.newbyteorder() if layout == "swapped" else array.dtype
        out = np.zeros(
            tuple(2 * side for side in array.shape), dtype, "F" if layout == "F" else "C"
        )
        steps = {"strided": 2, "backwards": -1}.get(layout, 1)
        part = tuple(
            slice(None, 2 * side, 2)
            if steps == 2
            else slice(side - 1, None, -1)
            if steps < 0
            else slice(side)
            for side in array.shape
        )
        view = out[(*part, ...)]
        array.get_basic_selection(out=cpu.NDBuffer.from_ndarray_like(view))
        results.append(out.tobytes())
        assert math.prod(view.shape) == math.prod(array.shape)
    assert results[0] == results[1]


def stored(
    data: st.DataObject, store: UcxStore, options: dict[str, Any], budgets: list[int]
) -> tuple[zarr.Array, zarr.Array]:
    """Return an array of ours, of whose chunks some are missing, and zarr's of the same values.

    Both are opened anew: ours strictly, with one of the budgets.
    """
    budget = data.draw(st.sampled_from(budgets), label="budget")
    with zarr.config.set({"array.rectilinear_chunks": True}):
        ours = zarr.create_array(store, **options)
        ours[...] = noise(ours.dtype, ours.shape, 1)
        keys = sorted(key for key in contents(ours) if "zarr.json" not in key and ".z" not in key)
        for key in data.draw(st.sets(st.sampled_from(keys), max_size=2), label="missing"):
            store.delete_sync(key)
        held = {key: cpu.Buffer.from_bytes(value) for key, value in contents(ours).items()}
        model = zarr.open_array(MemoryStore(held, read_only=True), mode="r")
        ours = zarr.open_array(UcxStore(str(store), strict=True, buffer_budget=budget), mode="r")
    assert type(model.async_array.codec_pipeline) is BatchedCodecPipeline
    assert type(ours.async_array.codec_pipeline) is ZeroCopyCodecPipeline
    return ours, model
