"""Whatever is written, by whatever codecs, the values that are stored are zarr's byte by byte."""

import uuid
from typing import Any

import hypothesis.extra.numpy as npst
import hypothesis.strategies as st
import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, event, given, note, settings
from zarr.core.codec_pipeline import BatchedCodecPipeline
from zarr.storage import MemoryStore

from tests.drawing import examples
from tests.pipeline.arrays import store_of
from tests.pipeline.codecs import draw_codecs
from tests.pipeline.strategies import DTYPES, contents, noise, outcome, read, special, write
from tests.pipeline.test_oracle import changes
from ucxstore import UcxStore, ZeroCopyCodecPipeline
from ucxstore.pipeline import write_plan
from ucxstore.pipeline.access import access_to
from ucxstore.pipeline.geometry import costs

pytestmark = pytest.mark.filterwarnings("ignore")  # zarr's, of codecs that are not in its standard


@st.composite
def array_options(draw: st.DrawFn) -> dict[str, Any]:
    """Draw what ``zarr.create_array`` takes for arrays whose codecs are known here, or raw."""
    least = draw(st.sampled_from([3, 3, 1]))
    shape = draw(npst.array_shapes(min_dims=0, max_dims=4, min_side=least, max_side=9))
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    options: dict[str, Any] = {
        "shape": shape,
        "dtype": dtype,
        "chunks": tuple(draw(st.sampled_from([s, draw(st.integers(1, s + 2))])) for s in shape),
        "zarr_format": draw(st.sampled_from([2, 3, 3])),
        "fill_value": draw(st.none() | special(dtype) | npst.from_dtype(dtype, allow_nan=True)),
        "config": {"write_empty_chunks": draw(st.booleans())},
    }
    draw_codecs(draw, options, is_raw=draw(st.integers(0, 2)) == 0)
    return options


@given(data=st.data())
@settings(
    max_examples=examples(400),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_it_stores_what_zarr_stores(keeper: UcxStore, data: st.DataObject) -> None:
    options = data.draw(array_options(), label="array")
    budget = data.draw(st.sampled_from([1, 5000, 20_000, 1 << 28]), label="budget")
    address = f"{keeper.address}/{uuid.uuid4().hex}"
    with zarr.config.set({"array.rectilinear_chunks": True}):
        model = zarr.create_array(MemoryStore(), **options)
        ours = zarr.create_array(UcxStore(address, strict=True, buffer_budget=budget), **options)
    assert type(model.async_array.codec_pipeline) is BatchedCodecPipeline
    assert type(ours.async_array.codec_pipeline) is ZeroCopyCodecPipeline
    with pytest.MonkeyPatch.context() as patch:
        size = data.draw(st.sampled_from([1, 500, write_plan.GROUP_BYTES]), label="group")
        patch.setattr(write_plan, "GROUP_BYTES", size)
        if data.draw(st.booleans(), label="short rows too"):
            patch.setattr(costs, "SHORT_RUN_BYTES", 0)
        elif data.draw(st.booleans(), label="few rows are many"):
            patch.setattr(costs, "MANY_RUNS", 1)
        if data.draw(st.booleans(), label="starts full"):
            fill_up = write("basic", Ellipsis, noise(model.dtype, model.shape, 1))
            assert outcome(fill_up, ours) == outcome(fill_up, model)
        merged = False
        for _ in range(data.draw(st.integers(1, 5), label="how many steps")):
            change = data.draw(changes(model), label="change")
            changed = outcome(change, model)
            before = store_of(ours).stats()["bytes_read"]
            assert outcome(change, ours) == changed
            merged = merged or store_of(ours).stats()["bytes_read"] > before
            assert access_to(store_of(ours)).budget.in_use == 0
            if changed is not None:
                return  # zarr raised, and goes on writing the chunks that are not to blame
            assert contents(ours) == contents(model)
    with zarr.config.set({"array.rectilinear_chunks": True}):
        opened = [zarr.open_array(store, mode="r") for store in (model.store, UcxStore(address))]
    theirs, again = (outcome(read("basic", Ellipsis), array) for array in opened)
    assert again == theirs
    stats = store_of(ours).stats()
    assert stats["fallback"] == 0
    note(f"{stats}")
    event(f"encoded here: {stats['encode'] > 0}, merged: {merged}")
