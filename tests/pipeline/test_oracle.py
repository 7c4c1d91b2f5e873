"""Whatever is written and read, `UcxStore` and our pipeline do as zarr's default does in memory.

Both sides go through the same random steps; all that is read, and all that is stored, must be the
same bit by bit.
"""

import uuid
from collections.abc import Iterator
from typing import Any

import hypothesis.extra.numpy as npst
import hypothesis.strategies as st
import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, given, note, settings
from zarr.codecs import BytesCodec, ZstdCodec
from zarr.core.codec_pipeline import BatchedCodecPipeline
from zarr.core.sync import sync
from zarr.storage import MemoryStore

from tests.drawing import examples
from tests.pipeline.arrays import store_of
from tests.pipeline.strategies import (
    DTYPES,
    RUN_COSTS,
    Step,
    contents,
    delete_chunk,
    noise,
    outcome,
    read,
    selections,
    special,
    write,
)
from ucxstore import UcxStore, ZeroCopyCodecPipeline
from ucxstore.pipeline.geometry import costs

pytestmark = pytest.mark.filterwarnings("ignore")  # zarr's, of dtypes that it may still change


@st.composite
def array_options(draw: st.DrawFn) -> dict[str, Any]:
    """Draw what ``zarr.create_array`` takes."""
    least = draw(st.sampled_from([3, 3, 3, 1, 0]))
    shape = draw(npst.array_shapes(min_dims=0, max_dims=4, min_side=least, max_side=9))
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    zarr_format = draw(st.sampled_from([2, 3]))
    chunks = tuple(draw(st.integers(1, side + 2)) for side in shape)
    options: dict[str, Any] = {
        "shape": shape,
        "dtype": dtype,
        "chunks": chunks,
        "zarr_format": zarr_format,
        "fill_value": draw(
            st.none() | special(dtype) | special(dtype) | npst.from_dtype(dtype, allow_nan=True)
        ),
        "compressors": draw(st.sampled_from([None, None, None, "auto"])),
        "config": {"write_empty_chunks": draw(st.booleans())},
    }
    order = draw(st.sampled_from("CF"))
    if zarr_format == 2:
        options["order"] = order
        return options
    options["config"]["order"] = order
    match draw(st.sampled_from(["plain", "plain", "endian", "shards", "rectilinear"])):
        case "endian" if dtype.itemsize > 1 and dtype.kind in "iufcU":
            options["serializer"] = BytesCodec(endian=draw(st.sampled_from(["little", "big"])))
        case "shards" if shape:
            options["shards"] = tuple(c * draw(st.integers(1, 3)) for c in chunks)
            options["compressors"] = draw(st.sampled_from([None, ZstdCodec()]))
        case "rectilinear" if shape and min(shape) > 0:
            options["chunks"] = [_edges(draw, side) for side in shape]
    return options


def _edges(draw: st.DrawFn, side: int) -> list[int]:
    cuts = sorted(draw(st.sets(st.integers(1, side - 1), max_size=3))) if side > 1 else []
    return [b - a for a, b in zip([0, *cuts], [*cuts, side], strict=True)]


@pytest.fixture(scope="module")
def keeper(any_address: str) -> Iterator[UcxStore]:
    """Keep the connection between examples."""
    with UcxStore(any_address) as store:
        sync(store.exists("key"))
        yield store


@given(data=st.data())
@settings(
    max_examples=examples(400),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_it_does_as_zarr_does(keeper: UcxStore, data: st.DataObject) -> None:
    options = data.draw(array_options(), label="array")
    model = outcome_of_creation(MemoryStore(), options)
    ours = outcome_of_creation(UcxStore(f"{keeper.address}/{uuid.uuid4().hex}"), options)
    if not isinstance(model, zarr.Array):
        assert ours == model
        return
    assert type(model.async_array.codec_pipeline) is BatchedCodecPipeline
    assert type(ours.async_array.codec_pipeline) is ZeroCopyCodecPipeline

    with pytest.MonkeyPatch.context() as patch:
        if data.draw(st.booleans(), label="short rows too"):
            patch.setattr(costs, "SHORT_RUN_BYTES", 0)
        patch.setattr(costs, "RUN", data.draw(RUN_COSTS, label="cost of a run"))
        if data.draw(st.booleans(), label="starts full"):
            outcome(fill_up := write("basic", Ellipsis, noise(model.dtype, model.shape, 1)), ours)
            outcome(fill_up, model)
        for _ in range(data.draw(st.integers(1, 5), label="how many steps")):
            change = data.draw(changes(model), label="change")
            changed = outcome(change, model)
            assert outcome(change, ours) == changed
            if changed is not None:
                return  # zarr raised, and goes on writing the chunks that are not to blame
            look = data.draw(reads(model), label="read")
            assert outcome(look, ours) == outcome(look, model)
            assert contents(ours) == contents(model)
        everything = read("basic", Ellipsis)
        assert outcome(everything, ours) == outcome(everything, model)
    note(f"{store_of(ours).stats()}")


def outcome_of_creation(store: MemoryStore | UcxStore, options: dict[str, Any]) -> Any:
    with zarr.config.set({"array.rectilinear_chunks": True}):
        try:
            return zarr.create_array(store, **options)
        except Exception as error:  # both sides must fail alike
            return type(error)


def changes(array: zarr.Array) -> st.SearchStrategy[Step]:
    return st.one_of(writes(array), writes(array), writes(array), deletions(array))


def reads(array: zarr.Array) -> st.SearchStrategy[Step]:
    return selections(array.shape).map(lambda chosen: read(*chosen))


@st.composite
def writes(draw: st.DrawFn, array: zarr.Array) -> Step:
    kind, selection = draw(selections(array.shape))
    shape = np.shape(outcome_value(read(kind, selection), array))
    dtype = array.dtype
    values = npst.from_dtype(dtype, allow_nan=True)
    seed = draw(st.integers(0, 1000))
    match draw(
        st.sampled_from(["noise", "noise", "array", "scalar", "fill", "order", "dtype", "short"])
    ):
        case "noise":
            value = noise(dtype, shape, seed)
        case "array":
            value = draw(npst.arrays(dtype, shape, elements=values))
        case "scalar":
            return write(kind, selection, draw(values))
        case "fill":
            default = array.metadata.dtype.default_scalar()
            fill = default if array.fill_value is None else array.fill_value
            value = np.full(shape, fill, dtype)
        case "order":
            value = np.asfortranarray(noise(dtype, shape, seed))
        case "dtype":
            value = noise(dtype.newbyteorder(), shape, seed)
        case "short":  # to be spread over the selection, or refused
            value = noise(dtype, tuple(min(n, draw(st.sampled_from([1, n]))) for n in shape), seed)
    return write(kind, selection, value)


def outcome_value(step: Step, array: zarr.Array) -> Any:
    try:
        return step(array)
    except Exception:  # a selection that is out of bounds, say
        return np.zeros(())


@st.composite
def deletions(draw: st.DrawFn, array: zarr.Array) -> Step:
    keys = sorted(key for key in contents(array) if "zarr.json" not in key and ".z" not in key)
    return delete_chunk(draw(st.sampled_from(keys)) if keys else "c/none")
