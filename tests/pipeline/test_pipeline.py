"""Which way chunks go, and what holds on the way."""

import pickle
from typing import Any

import numpy as np
import pytest
import zarr
from zarr.core.array_spec import ArrayConfig, ArraySpec
from zarr.core.buffer import cpu, default_buffer_prototype
from zarr.core.codec_pipeline import BatchedCodecPipeline, FusedCodecPipeline
from zarr.core.sync import sync
from zarr.errors import ChunkNotFoundError
from zarr.storage import LoggingStore, MemoryStore, WrapperStore

from tests.backdoor import Backdoor
from tests.pipeline.arrays import NOISE as DATA
from tests.pipeline.arrays import RAW, counting, store_of
from tests.pipeline.indexing import indexer_of
from ucxstore import ChunkSizeError, FallbackError, UcxStore, ZeroCopyCodecPipeline
from ucxstore.pipeline.access import access_to
from ucxstore.server import Server

counted = counting("direct", "decode", "fallback", without="encode")


# ---- reads ----


@pytest.mark.parametrize(
    ("selection", "chunks"),
    [
        (np.s_[:], 16),
        (np.s_[10:600, 50:150], 4),
        (np.s_[5], 4),
        (np.s_[-1, 3], 1),
        (np.s_[299:301, :], 8),
        (np.s_[::1000, :], 4),
    ],
)
def test_boxes_go_direct(array: zarr.Array, selection: Any, chunks: int) -> None:
    before = store_of(array).stats()
    found = array[selection]
    np.testing.assert_array_equal(found, DATA[selection])
    assert counted(array, before) == (chunks, 0, 0)
    after = store_of(array).stats()
    assert after["bytes_read"] - before["bytes_read"] == np.asarray(found).nbytes
    assert after["staged_bytes"] == before["staged_bytes"]


@pytest.mark.parametrize(
    "options",
    [
        {"zarr_format": 2},
        {"zarr_format": 2, "order": "F"},
        {"dtype": ">f4", "zarr_format": 2},
        {"dtype": ">f4", "serializer": zarr.codecs.BytesCodec(endian="big")},
    ],
)
def test_what_is_raw_goes_direct(ucx_store: UcxStore, options: dict[str, Any]) -> None:
    array = zarr.create_array(ucx_store, **(RAW | options))
    array[:] = DATA.astype(array.dtype)
    before = ucx_store.stats()
    np.testing.assert_array_equal(array[:], DATA)
    assert counted(array, before) == (16, 0, 0)


def test_missing_chunks_are_filled(array: zarr.Array) -> None:
    store_of(array).delete_sync("a/c/1/2")
    store_of(array).delete_sync("a/c/3/0")
    expected = DATA.copy()
    expected[300:600, 200:300] = expected[900:, :100] = 0
    before = store_of(array).stats()
    np.testing.assert_array_equal(array[:], expected)
    assert counted(array, before) == (16, 0, 0)
    read = store_of(array).stats()["bytes_read"] - before["bytes_read"]
    assert read == DATA.nbytes - 4 * (300 * 100 + 100 * 100)


def test_missing_chunks_are_told_of(array: zarr.Array) -> None:
    store_of(array).delete_sync("a/c/1/2")
    strict = array.with_config({"read_missing_chunks": False})
    for selection in np.s_[:], np.s_[::10], np.s_[::2, ::2]:
        with pytest.raises(ChunkNotFoundError, match="c/1/2"):
            strict[selection]
        np.testing.assert_array_equal(strict[:300][selection], DATA[:300][selection])


def test_both_ways_in_one_read(array: zarr.Array) -> None:
    """A chunk of another store falls back, and lands where it belongs all the same."""
    other = zarr.create_array(MemoryStore(), **RAW)
    other[:] = -DATA
    spec = _spec_of(array)
    batch = []
    for coords, *rest in indexer_of(array):
        source = other if coords == (1, 1) else array
        batch.append((source.store_path / source.metadata.encode_chunk_key(coords), spec, *rest))
    out = cpu.NDBuffer.empty(DATA.shape, "f4")
    pipeline = array.async_array.codec_pipeline
    before = store_of(array).stats()
    results = sync(pipeline.read(iter(batch), out))
    assert [result["status"] for result in results] == ["present"] * 16
    expected = DATA.copy()
    expected[300:600, 100:200] *= -1
    np.testing.assert_array_equal(out.as_ndarray_like(), expected)
    assert counted(array, before) == (15, 0, 1)


def _spec_of(array: zarr.Array) -> ArraySpec:
    return ArraySpec(
        array.chunks,
        array.metadata.data_type,
        array.metadata.fill_value,
        ArrayConfig.from_dict({}),
        default_buffer_prototype(),
    )


@pytest.mark.parametrize(
    ("out", "expected"),
    [
        (np.zeros((1000, 400), "f4"), (16, 0, 0)),
        (np.zeros((2000, 500), "f4")[::2, 50:450], (16, 0, 0)),
        (np.zeros((1000, 400), "f8"), (0, 16, 0)),
        (np.zeros((1000, 400), ">f4"), (0, 16, 0)),
        (np.zeros((1000, 400), "f4", order="F"), (0, 16, 0)),
        (np.zeros((1000, 400), "f4").view(np.matrix), (0, 0, 16)),
    ],
)
def test_an_out_of_the_users(
    array: zarr.Array, out: np.ndarray, expected: tuple[int, int, int]
) -> None:
    before = store_of(array).stats()
    array.get_basic_selection(out=cpu.NDBuffer.from_ndarray_like(out))
    np.testing.assert_array_equal(np.asarray(out), DATA)
    assert counted(array, before) == expected


def test_a_stored_value_of_the_wrong_size(
    array: zarr.Array, backdoor: Backdoor, prefix: str
) -> None:
    for selection in np.s_[:], np.s_[::10], np.s_[::2, ::2]:
        for size in 100, 4 * 300 * 100 - 1, 4 * 300 * 100 + 1, 10**6:
            backdoor.set(f"{prefix}/a/c/1/2", bytes(size))
            with pytest.raises(ChunkSizeError, match=rf"a/c/1/2.* {size} bytes"):
                array[selection]
    assert access_to(store_of(array)).budget.in_use == 0
    assert issubclass(ChunkSizeError, ValueError)  # which zarr's own pipeline raises
    np.testing.assert_array_equal(array[:300], DATA[:300])


# ---- writes ----


def test_whole_chunks_are_written_direct(array: zarr.Array) -> None:
    before = store_of(array).stats()
    array[:600] = DATA[:600] + 1
    assert counted(array, before) == (8, 0, 0)
    assert store_of(array).stats()["bytes_written"] - before["bytes_written"] == DATA[:600].nbytes
    np.testing.assert_array_equal(array[:600], DATA[:600] + 1)
    np.testing.assert_array_equal(array[600:], DATA[600:])


def test_a_frame_of_many_is_written_direct(ucx_store: UcxStore) -> None:
    options = RAW | {"shape": (7, 300, 200), "chunks": (1, 300, 100)}
    array = zarr.create_array(ucx_store, **options)
    frames = np.random.default_rng(0).random((7, 300, 200)).astype("f4")
    for index, frame in enumerate(frames):
        array[index] = frame
    assert (ucx_store.stats()["direct"], ucx_store.stats()["fallback"]) == (14, 0)
    np.testing.assert_array_equal(array[:], frames)


async def test_chunks_of_nothing_but_fill_are_deleted(array: zarr.Array) -> None:
    data = DATA.copy()
    data[300:600, 100:200] = 0
    before = store_of(array).stats()
    await array.async_array.setitem(np.s_[:900], data[:900])
    assert counted(array, before) == (12, 0, 0)
    assert not await array.store.exists("a/c/1/1")
    assert await array.store.exists("a/c/1/0")


@pytest.mark.parametrize("value", [np.asfortranarray(DATA), DATA.astype(">f4"), DATA[::-1]])
def test_values_of_all_layouts(array: zarr.Array, value: np.ndarray) -> None:
    array[:] = value
    np.testing.assert_array_equal(array[:], value)


def test_the_value_may_change_once_it_is_written(array: zarr.Array) -> None:
    value = DATA.copy()
    array[:] = value
    value[:] = -1
    np.testing.assert_array_equal(array[:], DATA)


def test_read_only_stores_are_not_written(array: zarr.Array) -> None:
    reader = zarr.open_array(array.store.with_read_only(True), path="a", mode="r")
    with pytest.raises(ValueError, match="read-only mode"):
        reader[:] = DATA
    with pytest.raises(ValueError, match="read-only mode"):
        reader[:600] = DATA[:600]
    np.testing.assert_array_equal(array[:], DATA)


# ---- strict stores ----


def test_strict_stores_never_fall_back(address: str, array: zarr.Array) -> None:
    strict = zarr.open_array(UcxStore(address, strict=True), path="a", mode="r+")
    np.testing.assert_array_equal(strict[:], DATA)
    strict[:300] = DATA[:300] * 2
    array[:300] = DATA[:300]
    for selection in np.s_[::2], np.s_[:, [1, 2]], np.s_[::2, ::2]:
        np.testing.assert_array_equal(strict.oindex[selection], DATA[selection])
    with pytest.raises(FallbackError, match="the array is not a plain numpy array"):
        strict.get_basic_selection(out=cpu.NDBuffer.from_ndarray_like(np.ma.array(DATA)))
    assert store_of(strict).stats()["fallback"] == 0
    np.testing.assert_array_equal(array[300:], DATA[300:])


# ---- whose pipeline ----


def test_other_stores_get_zarrs_own(ucx_store: UcxStore) -> None:
    for store in MemoryStore(), WrapperStore(ucx_store), LoggingStore(MemoryStore()):
        for zarr_format in 2, 3:
            options = RAW | {"name": f"a{zarr_format}", "zarr_format": zarr_format}
            array = zarr.create_array(store, **options)
            assert type(array.async_array.codec_pipeline) is BatchedCodecPipeline
            array[:] = DATA
            np.testing.assert_array_equal(array[:], DATA)


def test_no_store_gets_zarrs_own() -> None:
    codecs = [zarr.codecs.BytesCodec()]
    assert type(ZeroCopyCodecPipeline.from_codecs(codecs)) is BatchedCodecPipeline


@pytest.mark.usefixtures("zarr_config")
def test_it_stands_in_for_another_than_the_default(address: str) -> None:
    zarr.config.set({"codec_pipeline.path": "zarr.core.codec_pipeline.FusedCodecPipeline"})
    store = UcxStore(address, select_pipeline=True)
    array = zarr.create_array(store, **(RAW | {"compressors": "auto"}))
    assert type(array.async_array.codec_pipeline.fallback) is FusedCodecPipeline  # type: ignore[attr-defined]
    array[:] = DATA
    np.testing.assert_array_equal(array[:], DATA)
    np.testing.assert_array_equal(array[::3, 5], DATA[::3, 5])
    other = zarr.create_array(MemoryStore(), **RAW)
    assert type(other.async_array.codec_pipeline) is FusedCodecPipeline


@pytest.mark.usefixtures("zarr_config")
def test_without_it_the_store_works_as_any_other(address: str) -> None:
    zarr.config.set({"codec_pipeline.path": "zarr.core.codec_pipeline.FusedCodecPipeline"})
    array = zarr.create_array(UcxStore(address), **RAW)
    assert type(array.async_array.codec_pipeline) is FusedCodecPipeline
    array[:] = DATA
    np.testing.assert_array_equal(array[:], DATA)


def test_arrays_pickle(array: zarr.Array) -> None:
    other = pickle.loads(pickle.dumps(array))
    assert other == array
    assert type(other.async_array.codec_pipeline) is ZeroCopyCodecPipeline
    before = store_of(other).stats()
    np.testing.assert_array_equal(other[:], DATA)
    assert counted(other, before) == (16, 0, 0)


def test_the_rest_is_the_other_pipelines(array: zarr.Array) -> None:
    pipeline = array.async_array.codec_pipeline
    spec = _spec_of(array)
    assert list(pipeline) == list(pipeline.fallback)  # type: ignore[attr-defined]
    assert pipeline.evolve_from_array_spec(spec) == pipeline
    assert not pipeline.supports_partial_decode
    assert not pipeline.supports_partial_encode
    assert pipeline.compute_encoded_size(120_000, spec) == 120_000
    pipeline.validate(
        shape=array.shape, dtype=array.metadata.data_type, chunk_grid=array.metadata.chunk_grid
    )
    chunk = cpu.NDBuffer.from_ndarray_like(DATA[:300, :100].copy())
    (encoded,) = sync(pipeline.encode([(chunk, spec)]))
    (decoded,) = sync(pipeline.decode([(encoded, spec)]))
    np.testing.assert_array_equal(decoded.as_ndarray_like(), DATA[:300, :100])


async def test_an_empty_batch(array: zarr.Array) -> None:
    pipeline = array.async_array.codec_pipeline
    assert await pipeline.read([], cpu.NDBuffer.empty((0,), "f4")) == ()
    await pipeline.write([], cpu.NDBuffer.empty((0,), "f4"))


async def test_a_lost_server_fails_the_read(tmp_path: Any) -> None:
    with Server(tmp_path) as server:
        store = UcxStore(server.address, timeout=30, connect_timeout=3)
        array = zarr.create_array(store, **RAW)
        await array.async_array.setitem(np.s_[:], DATA)
    with pytest.raises(ConnectionError, match=r"127\.0\.0\.1"):
        await array.async_array.getitem(np.s_[:])
    store.close()


@pytest.mark.parametrize("dtype", ["M8[2Y]", "m8[Y]", "M8[ns]"])
def test_dates_that_python_has_not(ucx_store: UcxStore, dtype: str) -> None:
    """The test for empty chunks must not make a Python date of an item."""
    values = np.array([2**62, 1, 2, -(2**62)]).astype(dtype)
    array = zarr.create_array(
        ucx_store, name="dates", shape=(4,), chunks=(2,), dtype=dtype, compressors=None
    )
    array[:] = values
    np.testing.assert_array_equal(array[:], values)
    assert ucx_store.stats()["direct"] == 4
