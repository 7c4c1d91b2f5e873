"""Whatever array zarr's own strategies draw, ours reads and writes it as zarr's default does.

An array that is drawn gets a twin on the other side: one in memory, with zarr's pipeline, and one
in a `UcxStore`, with ours. Both go through the same steps, and all that is read and stored must be
the same bit by bit. How many examples are drawn is the Hypothesis profile's: tests/drawing.py.
"""

import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import hypothesis.extra.numpy as npst
import hypothesis.strategies as st
import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, given, note, reject, settings
from zarr.abc.codec import BytesBytesCodec
from zarr.codecs import ShardingCodec
from zarr.core.array import AsyncArray
from zarr.core.buffer import default_buffer_prototype
from zarr.core.codec_pipeline import BatchedCodecPipeline
from zarr.core.metadata import ArrayMetadata, ArrayV2Metadata
from zarr.core.sync import sync
from zarr.storage import MemoryStore, StorePath
from zarr.testing import strategies as zst

from tests.pipeline.arrays import store_of
from tests.pipeline.strategies import (
    Step,
    contents,
    delete_chunk,
    noise,
    outcome,
    read,
    strides,
    write,
)
from ucxstore import UcxStore, ZeroCopyCodecPipeline
from ucxstore.pipeline import read_plan, write_plan
from ucxstore.server import Server

pytestmark = pytest.mark.filterwarnings("ignore")  # zarr's, of dtypes that it may still change

DRAWN = settings(deadline=None, suppress_health_check=list(HealthCheck))
EVERYTHING = read("basic", Ellipsis)


@pytest.fixture(scope="module")
def keeper(memory_server: Server) -> Iterator[UcxStore]:
    """Keep the connection, and what zarr is to be configured as, between examples."""
    with UcxStore(memory_server.address) as store:
        sync(store.exists("key"))
        with zarr.config.set({"array.rectilinear_chunks": True}):
            yield store


# ---- arrays ----


class Pair:
    """An array in a `UcxStore`, and its twin in memory."""

    def __init__(self, ours: zarr.Array, model: zarr.Array) -> None:
        self.ours = ours
        self.model = model

    def __repr__(self) -> str:  # zarr's fails where a fill value's does
        metadata = self.model.metadata
        stored = metadata.to_buffer_dict(default_buffer_prototype())
        return "; ".join(f"{key}: {value.to_bytes().decode()}" for key, value in stored.items())


@st.composite
def arrays(draw: st.DrawFn, kind: str, keeper: UcxStore) -> Pair:
    """Draw an array, on either side where zarr's strategy lets us, and its twin."""
    few_names = {
        "paths": zst.paths(max_num_nodes=2),
        "array_names": zst.short_node_names,
        "attrs": st.none(),
    }
    stores = st.builds(fresh, st.just(keeper)) | st.builds(MemoryStore)
    match kind:
        case "any":
            drawn = draw(zst.arrays(stores=stores, **few_names))
        case "sharded":
            drawn = draw(zst.sharded_arrays())
        case "rectilinear":
            drawn = draw(zst.rectilinear_arrays())
            if draw(st.integers(0, 7)) == 7:  # these have hundreds of chunks
                _, drawn = draw(zst.complex_rectilinear_arrays(stores=stores, **few_names))
        case "blocks":
            drawn, _ = draw(zst.block_test_arrays())
        case "any dtype":
            drawn = draw(arrays_of_any_dtype())
    metadata = draw(st.sampled_from([drawn.metadata, uncompressed(drawn.metadata)]))
    model = twin(drawn, metadata, MemoryStore())
    ours = twin(drawn, metadata, fresh(keeper))
    assert type(model.async_array.codec_pipeline) is BatchedCodecPipeline
    assert type(ours.async_array.codec_pipeline) is ZeroCopyCodecPipeline
    assert outcome(EVERYTHING, ours) == outcome(EVERYTHING, drawn)
    assert_stored_alike(ours, model)
    return Pair(ours, model)


@st.composite
def arrays_of_any_dtype(draw: st.DrawFn) -> zarr.Array:
    """Draw an array of a dtype that zarr's other strategies leave out: foreign bytes, records."""
    shape = draw(npst.array_shapes(max_dims=3, max_side=6))
    chunks = draw(zst.chunk_shapes(shape=shape))
    zarr_format = draw(st.sampled_from([2, 3, 3]))
    shards = draw(st.none() | zst.shard_shapes(shape=shape, chunk_shape=chunks))
    dtype = draw(zst.zdtypes() | zst.structured_dtypes())
    compressors = draw(st.sampled_from([None, "auto"]))
    try:
        array = zarr.create_array(
            MemoryStore(),
            shape=shape,
            chunks=chunks,
            shards=shards if zarr_format == 3 else None,
            dtype=dtype,
            compressors=compressors,
            zarr_format=zarr_format,
        )
        repr(array.metadata)  # as Hypothesis does; numpy cannot print some dates without a unit
        return array
    except (TypeError, ValueError, OverflowError):  # not all of them exist in each format
        reject()


def fresh(keeper: UcxStore) -> UcxStore:
    return UcxStore(f"{keeper.address}/{uuid.uuid4().hex}")


def uncompressed(metadata: ArrayMetadata) -> ArrayMetadata:
    """Return what zarr's strategies hardly ever draw: chunks that are just their values."""
    if isinstance(metadata, ArrayV2Metadata):
        return replace(metadata, compressor=None)
    codecs = [codec for codec in metadata.codecs if not isinstance(codec, BytesBytesCodec)]
    return replace(metadata, codecs=codecs)


def twin(drawn: zarr.Array, metadata: ArrayMetadata, store: MemoryStore | UcxStore) -> zarr.Array:
    """Make an array of the same values in another store, through that store's pipeline."""
    # Not everything that is drawn of codecs is stored, so an opened array lacks some of it.
    path = StorePath(store, drawn.path)
    array = zarr.Array(AsyncArray(metadata, path, drawn.async_array.config))
    if len(contents(drawn)) > 1:
        array[...] = drawn[...]
    return array


def assert_stored_alike(ours: zarr.Array, model: zarr.Array) -> None:
    mine, others = contents(ours), contents(model)
    if "unordered" in write_orders(getattr(model.metadata, "codecs", ())):
        assert mine.keys() == others.keys()
    else:
        assert mine == others


def write_orders(codecs: Any) -> set[str]:
    shards = [codec for codec in codecs if isinstance(codec, ShardingCodec)]
    inner = [write_orders(codec.codecs) for codec in shards]
    return set().union({codec.subchunk_write_order for codec in shards}, *inner)


def values(array: zarr.Array, shape: tuple[int, ...], seed: int) -> np.ndarray:
    dtype = array.dtype
    if dtype.kind not in "OT":
        return noise(dtype, shape, seed)
    texts = np.random.default_rng(seed).integers(0, 99, shape).astype(str)
    text: Any = np.vectorize(lambda item: f"é{item}", otypes=["O"])
    result = text(texts) if texts.size else texts.astype("O")
    if "bytes" in type(array.metadata.dtype).__name__.lower():
        result = np.vectorize(str.encode, otypes=["O"])(result) if texts.size else result
    return result.astype(dtype)


# ---- steps ----


@st.composite
def selections(draw: st.DrawFn, array: zarr.Array) -> tuple[str, Any]:
    """Draw a way to select, and what it selects, mostly as zarr's own tests do."""
    shape = array.shape
    kinds = ["basic", "basic", "all"]
    if shape and min(shape) > 0:
        kinds += ["strides", "strides", "orthogonal", "orthogonal", "coordinate", "mask", "block"]
    kind = draw(st.sampled_from(kinds))
    match kind:
        case "all":
            return "basic", Ellipsis
        case "basic":
            return kind, draw(zst.basic_indices(shape=shape))
        case "strides":
            return "basic", draw(strides(shape))
        case "orthogonal":
            return kind, draw(zst.orthogonal_indices(shape=shape))[0]
        case "coordinate":
            return kind, draw(npst.integer_array_indices(shape))
        case "mask":
            return kind, draw(npst.arrays(bool, shape))
        case "block":
            return kind, draw(zst.block_indices(chunk_sizes=array.write_chunk_sizes))[0]
    raise AssertionError(kind)


@st.composite
def changes(draw: st.DrawFn, array: zarr.Array) -> Step:
    """Draw something that changes what is stored."""
    kinds = ["noise", "noise", "scalar", "fill", "delete"]
    keys = sorted(contents(array))
    kind = draw(st.sampled_from(kinds if keys else ["full"]))
    if kind == "full":
        return write("basic", Ellipsis, values(array, array.shape, draw(st.integers(0, 1000))))
    if kind == "delete":
        return delete_chunk(draw(st.sampled_from(keys)))
    way, selection = draw(selections(array))
    seed = draw(st.integers(0, 1000))
    if kind == "scalar":
        return write(way, selection, values(array, (1,), seed)[0])
    try:
        shape = np.shape(read(way, selection)(array))
    except Exception:  # of a chunk that is missing where none may be
        shape = ()
    if kind == "fill" and array.fill_value is not None:
        return write(way, selection, array.fill_value)
    return write(way, selection, values(array, shape, seed))


CONFIGS = st.fixed_dictionaries(
    {"order": st.sampled_from("CF"), "write_empty_chunks": st.booleans()},
    optional={"read_missing_chunks": st.booleans()},
)


def assert_alike(data: st.DataObject, pair: Pair) -> None:
    config = data.draw(CONFIGS, label="config")
    ours, model = pair.ours.with_config(config), pair.model.with_config(config)
    assert outcome(EVERYTHING, ours) == outcome(EVERYTHING, model)
    for _ in range(data.draw(st.integers(1, 4), label="how many steps")):
        for chosen in data.draw(st.lists(selections(model), min_size=1, max_size=6), label="reads"):
            look = read(*chosen)
            assert outcome(look, ours) == outcome(look, model)
        change = data.draw(changes(model), label="change")
        changed = outcome(change, model)
        assert outcome(change, ours) == changed
        if changed is not None:
            return  # zarr raised, and goes on writing the chunks that are not to blame
        assert_stored_alike(ours, model)
        assert outcome(EVERYTHING, ours) == outcome(EVERYTHING, model)
    note(f"{store_of(ours).stats()}")


# ---- tests ----


@pytest.mark.parametrize("kind", ["any", "sharded", "rectilinear", "blocks", "any dtype"])
@DRAWN
@given(data=st.data())
def test_it_does_as_zarr_does(keeper: UcxStore, kind: str, data: st.DataObject) -> None:
    # What is drawn is small, and would be one group if groups were not small, too.
    size = data.draw(st.sampled_from([1, read_plan.GROUP_BYTES]), label="group")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(read_plan, "GROUP_BYTES", size)
        patch.setattr(write_plan, "GROUP_BYTES", size)
        assert_alike(data, data.draw(arrays(kind, keeper), label="array"))
