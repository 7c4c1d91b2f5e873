"""Whatever is in shards, they are read and written bit by bit as zarr's default pipeline does it.

What is read was written by zarr's own pipeline, into memory, and then copied to the server as it
is stored. What is written goes through the same random steps on both sides.
"""

import uuid
from typing import Any

import hypothesis.extra.numpy as npst
import hypothesis.strategies as st
import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, event, given, note, settings
from zarr.codecs import (
    BloscCodec,
    BytesCodec,
    Crc32cCodec,
    GzipCodec,
    ShardingCodec,
    TransposeCodec,
    ZstdCodec,
)
from zarr.core.buffer import cpu
from zarr.core.codec_pipeline import BatchedCodecPipeline
from zarr.core.sync import sync
from zarr.storage import MemoryStore

from tests.drawing import examples
from tests.pipeline.arrays import store_of
from tests.pipeline.strategies import (
    DTYPES,
    contents,
    noise,
    outcome,
    read,
    selections,
    special,
    write,
)
from tests.pipeline.test_oracle import changes
from ucxstore import UcxStore, ZeroCopyCodecPipeline
from ucxstore.pipeline import batch as batch_module
from ucxstore.pipeline import read_plan
from ucxstore.pipeline.access import access_to
from ucxstore.pipeline.geometry import costs
from ucxstore.pipeline.shards import boxes as shard_boxes
from ucxstore.pipeline.shards import read as shards
from ucxstore.pipeline.shards import write as shard_writes
from ucxstore.pipeline.shards import write_plan as shard_write_plan

pytestmark = pytest.mark.filterwarnings("ignore")  # zarr's, of dtypes that it may still change


@st.composite
def shardings(draw: st.DrawFn, inner: tuple[int, ...], dtype: np.dtype) -> ShardingCodec:
    endian = "little"
    if dtype.itemsize > 1 and dtype.kind in "iufcU":
        endian = draw(st.sampled_from(["little", "little", "big"]))
    plain = BytesCodec(endian=endian)
    crossed = TransposeCodec(order=tuple(reversed(range(len(inner)))))
    codecs = [
        *[[plain]] * 6,
        [plain, ZstdCodec()],
        [plain, BloscCodec(cname="lz4", typesize=dtype.itemsize)],
        [plain, GzipCodec()],
        [plain, Crc32cCodec()],
        [plain, ZstdCodec(), Crc32cCodec()],
        [crossed, plain],
        [crossed, plain, ZstdCodec()],
    ]
    return ShardingCodec(
        chunk_shape=inner,
        codecs=draw(st.sampled_from(codecs)),
        index_codecs=draw(st.sampled_from([[BytesCodec()], [BytesCodec(), Crc32cCodec()]])),
        index_location=draw(st.sampled_from(["start", "end"])),
        subchunk_write_order=draw(st.sampled_from(["morton", "lexicographic", "colexicographic"])),
    )


@st.composite
def array_options(draw: st.DrawFn) -> dict[str, Any]:
    """Draw what ``zarr.create_array`` takes for arrays in shards."""
    shape = draw(npst.array_shapes(min_dims=1, max_dims=3, max_side=11))
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    inner = tuple(draw(st.integers(1, min(side, 4))) for side in shape)
    grid = tuple(draw(st.integers(1, 4)) for _ in shape)
    chunks: Any = tuple(n * g for n, g in zip(inner, grid, strict=True))
    if draw(st.integers(0, 3)) == 0:  # shards of many sizes
        chunks = [
            [n * draw(st.integers(1, 3)) for _ in range(-(-side // n))]
            for n, side in zip(inner, shape, strict=True)
        ]
        shape = tuple(sum(edges) for edges in chunks)
    return {
        "shape": shape,
        "dtype": dtype,
        "chunks": chunks,
        "serializer": draw(shardings(inner, dtype)),
        "compressors": None,
        "filters": None,
        "fill_value": draw(st.none() | special(dtype) | npst.from_dtype(dtype, allow_nan=True)),
        "config": {
            "write_empty_chunks": draw(st.booleans()),
            "order": draw(st.sampled_from("CCCF")),
        },
    }


@given(data=st.data())
@settings(
    max_examples=examples(300),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_it_reads_as_zarr_reads(reader: UcxStore, data: st.DataObject) -> None:
    options = data.draw(array_options(), label="array")
    address = f"{reader.address}/{uuid.uuid4().hex}"
    with zarr.config.set({"array.rectilinear_chunks": True}):
        model = zarr.create_array(MemoryStore(), **options)
        model[...] = noise(model.dtype, model.shape, 1)
        for _ in range(data.draw(st.integers(0, 2), label="how much is empty")):
            emptied = data.draw(selections(model.shape), label="empty")
            outcome(write(*emptied, model.fill_value), model)
        keys = sorted(key for key in contents(model) if "zarr.json" not in key)
        if keys:
            for key in data.draw(st.sets(st.sampled_from(keys), max_size=2), label="missing"):
                sync(model.store.delete(key))
        held = {key: cpu.Buffer.from_bytes(value) for key, value in contents(model).items()}
        copy = UcxStore(address)
        for key, value in held.items():
            copy.set_sync(key, value)
        # Both opened, as what was made may have a byte order that its metadata does not keep.
        model = zarr.open_array(
            MemoryStore(held, read_only=True), mode="r", config=options["config"]
        )
        ours = zarr.open_array(
            UcxStore(
                address,
                strict=True,
                buffer_budget=data.draw(st.sampled_from([1, 5000, 1 << 28]), label="budget"),
            ),
            mode="r",
            config=options["config"],
        )
    assert type(model.async_array.codec_pipeline) is BatchedCodecPipeline
    assert type(ours.async_array.codec_pipeline) is ZeroCopyCodecPipeline
    with pytest.MonkeyPatch.context() as patch:
        size = data.draw(st.sampled_from([1, 500, read_plan.GROUP_BYTES]), label="group")
        patch.setattr(read_plan, "GROUP_BYTES", size)
        if data.draw(st.booleans(), label="short runs too"):
            patch.setattr(costs, "RUN", 0.0)
        if data.draw(st.booleans(), label="few at once"):
            patch.setattr(shard_boxes, "MOST_OFFSETS", 2)
            patch.setattr(batch_module, "MOST_RANGES", 2)
            patch.setattr(shards, "ROUND_BYTES", 300)
        everything = read("basic", Ellipsis)
        assert outcome(everything, ours) == outcome(everything, model)
        for _ in range(4):
            kind, selection = data.draw(selections(ours.shape), label="selection")
            look = read(kind, selection)
            assert outcome(look, ours) == outcome(look, model)
    stats = store_of(ours).stats()
    assert stats["fallback"] == 0
    assert stats["direct"] + stats["decode"] + stats["decoded"] > 0
    assert access_to(store_of(ours)).budget.in_use == 0
    note(f"{stats}")
    event(f"direct: {stats['direct'] > 0}, decoded: {stats['decode'] > 0}")
    event(f"decoded at the server: {stats['decoded'] > 0}")
    event(f"in place: {stats['decode_in_place'] > 0}")


@given(data=st.data())
@settings(
    max_examples=examples(300),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_it_writes_as_zarr_writes(keeper: UcxStore, data: st.DataObject) -> None:
    options = data.draw(array_options(), label="array")
    budget = data.draw(st.sampled_from([1, 5000, 1 << 28]), label="budget")
    address = f"{keeper.address}/{uuid.uuid4().hex}"
    with zarr.config.set({"array.rectilinear_chunks": True}):
        model = zarr.create_array(MemoryStore(), **options)
        store = UcxStore(address, buffer_budget=budget, strict=True)
        ours = zarr.create_array(store, **options)
    assert type(model.async_array.codec_pipeline) is BatchedCodecPipeline
    assert type(ours.async_array.codec_pipeline) is ZeroCopyCodecPipeline
    with pytest.MonkeyPatch.context() as patch:
        if data.draw(st.booleans(), label="short rows too"):
            patch.setattr(costs, "SHORT_RUN_BYTES", 0)
        size = data.draw(st.sampled_from([1, 500, shard_write_plan.GROUP_BYTES]), label="group")  # type: ignore[attr-defined]
        patch.setattr(shard_write_plan, "GROUP_BYTES", size)
        patch.setattr(shard_writes, "GROUP_BYTES", size)
        for _ in range(data.draw(st.integers(1, 4), label="how many steps")):
            change = data.draw(changes(model), label="change")
            changed = outcome(change, model)
            assert outcome(change, ours) == changed
            if changed is not None:
                return  # zarr raised, and goes on writing the chunks that are not to blame
            assert contents(ours) == contents(model)
            if data.draw(st.booleans(), label="read, so that indexes are known"):
                look = read(*data.draw(selections(ours.shape), label="selection"))
                assert outcome(look, ours) == outcome(look, model)
    stats = store_of(ours).stats()
    assert stats["fallback"] == 0
    assert access_to(store_of(ours)).budget.in_use == 0
    note(f"{stats}")
    event(f"direct: {stats['direct'] > 0}, encoded: {stats['encode'] > 0}")
