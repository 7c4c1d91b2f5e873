"""Whatever is selected of raw chunks, it is read bit by bit as zarr's default pipeline reads it.

The arrays are written by zarr through `UcxStore`, and then copied, as they are stored, to memory.
"""

import uuid
from typing import Any

import hypothesis.extra.numpy as npst
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, event, given, settings
from zarr.codecs import BytesCodec

from tests.drawing import examples
from tests.pipeline.arrays import store_of
from tests.pipeline.strategies import (
    DTYPES,
    RUN_COSTS,
    assert_reads_into,
    outcome,
    read,
    selections,
    special,
    stored,
)
from ucxstore import UcxStore
from ucxstore.pipeline import array_chunks as pipeline
from ucxstore.pipeline.access import access_to
from ucxstore.pipeline.geometry import costs

pytestmark = pytest.mark.filterwarnings("ignore")  # zarr's, of dtypes that it may still change


@st.composite
def array_options(draw: st.DrawFn) -> dict[str, Any]:
    """Draw what ``zarr.create_array`` takes for arrays whose values are stored as they are."""
    least = draw(st.sampled_from([1, 4]))
    shape = draw(npst.array_shapes(min_dims=0, max_dims=4, min_side=least, max_side=9))
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    options: dict[str, Any] = {
        "shape": shape,
        "dtype": dtype,
        "chunks": tuple(draw(st.sampled_from([s, draw(st.integers(1, s + 2))])) for s in shape),
        "zarr_format": draw(st.sampled_from([2, 3, 3])),
        "fill_value": draw(st.none() | special(dtype) | npst.from_dtype(dtype, allow_nan=True)),
        "compressors": None,
        "config": {"write_empty_chunks": True},
    }
    order = draw(st.sampled_from("CCF"))
    if options["zarr_format"] == 2:
        options["order"] = order
        return options
    options["config"]["order"] = order
    if dtype.itemsize > 1 and dtype.kind in "iufcUmM":
        endian = "big" if dtype.str.startswith(">") else "little"
        options["serializer"] = BytesCodec(endian=endian)
    if shape and draw(st.integers(0, 3)) == 0:
        options["chunks"] = [[side] if side < 3 else [2, side - 2] for side in shape]
    return options


@given(data=st.data())
@settings(
    max_examples=examples(400),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_it_reads_as_zarr_reads(keeper: UcxStore, data: st.DataObject) -> None:
    options = data.draw(array_options(), label="array")
    store = UcxStore(f"{keeper.address}/{uuid.uuid4().hex}")
    ours, model = stored(data, store, options, [1, 1000, 1 << 28])
    run = data.draw(RUN_COSTS, label="cost of a run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(costs, "RUN", run)
        at_once = data.draw(st.sampled_from([1, 3, 1024]), label="planned at once")
        patch.setattr(pipeline, "PLANNED_AT_ONCE", at_once)
        for _ in range(4):
            kind, selection = data.draw(selections(ours.shape), label="selection")
            look = read(kind, selection)
            assert outcome(look, ours) == outcome(look, model)
        stats = store_of(ours).stats()
        assert stats["staged_bytes" if run == 0 else "direct"] == 0 or run == costs.RUN
        event(f"direct: {stats['direct'] > 0}, decoded: {stats['decode'] > 0}")
        assert_reads_into(data, ours, model)
    stats = store_of(ours).stats()
    assert stats["direct"] + stats["decode"] > 0
    assert stats["fallback"] == 0
    assert access_to(store_of(ours)).budget.in_use == 0
