"""Whatever the codecs, a read of encoded chunks is bit by bit what zarr's default pipeline reads.

The arrays are written by zarr through `UcxStore`, and then copied, as they are stored, to memory.
"""

import uuid
from typing import Any

import hypothesis.extra.numpy as npst
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, event, given, note, settings

from tests.drawing import examples
from tests.pipeline.arrays import store_of
from tests.pipeline.codecs import draw_codecs
from tests.pipeline.strategies import (
    DTYPES,
    assert_reads_into,
    outcome,
    read,
    selections,
    special,
    stored,
)
from ucxstore import UcxStore
from ucxstore.pipeline import read_plan
from ucxstore.pipeline.access import access_to

pytestmark = pytest.mark.filterwarnings("ignore")  # zarr's, of codecs that are not in its standard


@st.composite
def array_options(draw: st.DrawFn) -> dict[str, Any]:
    """Draw what ``zarr.create_array`` takes for arrays that are not raw."""
    shape = draw(npst.array_shapes(min_dims=0, max_dims=4, max_side=9))
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    options: dict[str, Any] = {
        "shape": shape,
        "dtype": dtype,
        "chunks": tuple(draw(st.sampled_from([s, s, draw(st.integers(1, s + 2))])) for s in shape),
        "zarr_format": draw(st.sampled_from([2, 3, 3])),
        "fill_value": draw(st.none() | special(dtype) | npst.from_dtype(dtype, allow_nan=True)),
        "config": {"write_empty_chunks": True},
    }
    draw_codecs(draw, options)
    return options


@given(data=st.data())
@settings(
    max_examples=examples(400),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_it_reads_as_zarr_reads(reader: UcxStore, data: st.DataObject) -> None:
    options = data.draw(array_options(), label="array")
    store = UcxStore(f"{reader.address}/{uuid.uuid4().hex}")
    ours, model = stored(data, store, options, [1, 5000, 20_000, 1 << 28])
    with pytest.MonkeyPatch.context() as patch:
        size = data.draw(st.sampled_from([1, 500, read_plan.GROUP_BYTES]), label="group")
        patch.setattr(read_plan, "GROUP_BYTES", size)
        everything = read("basic", Ellipsis)
        assert outcome(everything, ours) == outcome(everything, model)
        for _ in range(3):
            kind, selection = data.draw(selections(ours.shape), label="selection")
            look = read(kind, selection)
            assert outcome(look, ours) == outcome(look, model)
        assert_reads_into(data, ours, model)
    stats = store_of(ours).stats()
    assert stats["decode"] + stats["decoded"] > 0
    assert stats["direct"] == stats["fallback"] == 0
    assert access_to(store_of(ours)).budget.in_use == 0
    note(f"{stats}")
    event(f"decoded at the server: {stats['decoded'] > 0}")
    event(f"in place: {stats['decode_in_place'] > 0}")
