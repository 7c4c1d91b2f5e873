"""Which way encoded chunks go when they are written, and what is stored."""

from dataclasses import replace
from typing import Any

import numcodecs
import numpy as np
import pytest
import zarr
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, TransposeCodec, ZstdCodec
from zarr.codecs import numcodecs as wrapped
from zarr.core.array_spec import ArrayConfig, ArraySpec
from zarr.core.buffer import cpu, default_buffer_prototype
from zarr.core.sync import sync
from zarr.storage import MemoryStore

from tests.backdoor import Backdoor
from tests.pipeline.arrays import DATA, ENCODED, counting, store_of
from tests.pipeline.indexing import indexer_of
from tests.pipeline.strategies import contents
from tests.pipeline.watched import wrap_sending
from ucxstore import FallbackError, UcxStore
from ucxstore.pipeline.access import access_to

counted = counting("direct", "encode", "fallback", without="decode")


def made(store: UcxStore, **options: Any) -> tuple[zarr.Array, zarr.Array]:
    """Make an array, and zarr's own to compare it with."""
    ours = zarr.create_array(store, **(ENCODED | options))
    model = zarr.create_array(MemoryStore(), **(ENCODED | options))
    return ours, model


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"compressors": BloscCodec()},
        {"compressors": [ZstdCodec(), Crc32cCodec()]},
        {"compressors": [wrapped.LZ4(), GzipCodec()]},
        {"compressors": Crc32cCodec()},
        {"zarr_format": 2, "compressors": numcodecs.Blosc()},
        {"zarr_format": 2, "compressors": numcodecs.LZ4(), "order": "F"},
        {"zarr_format": 2, "compressors": numcodecs.Zstd(), "dtype": ">f4"},
        {"zarr_format": 2, "compressors": numcodecs.Zstd(), "filters": [numcodecs.Delta("f4")]},
        {"zarr_format": 2, "compressors": None, "filters": [numcodecs.Base64()] * 4},
        {"compressors": None, "filters": TransposeCodec(order=(1, 0))},
        {"compressors": None, "serializer": BytesCodec(endian="big")},
        {"serializer": BytesCodec(endian="big")},
        {"compressors": [wrapped.Shuffle(elementsize=4), ZstdCodec()]},
        {"config": {"order": "F"}},
        {"chunks": (300, 150)},
    ],
)
@pytest.mark.filterwarnings("ignore:Numcodecs codecs")
def test_what_is_encoded(ucx_store: UcxStore, options: dict[str, Any]) -> None:
    ours, model = made(ucx_store, **options)
    metadata = contents(model)
    for value in DATA, np.asfortranarray(DATA), DATA[::-1, ::-1], DATA.astype(">f4"):
        before = ucx_store.stats()
        ours[:] = value
        after = ucx_store.stats()
        model[:] = value
        stored = contents(model)
        assert contents(ours) == stored
        assert counted(ours, before) == (0, 12 if "chunks" in options else 4, 0)
        written = after["bytes_written"] - before["bytes_written"]
        assert written == sum(len(value) for key, value in stored.items() if key not in metadata)
        assert after["bytes_read"] == before["bytes_read"]


@pytest.mark.parametrize("write_empty", [False, True])
def test_chunks_of_nothing_but_fill(ucx_store: UcxStore, write_empty: bool) -> None:
    ours, model = made(ucx_store, config={"write_empty_chunks": write_empty})
    data = DATA.copy()
    data[250:500] = 0
    for value in DATA, data, 0:
        before = ucx_store.stats()
        ours[:] = value
        model[:] = value
        assert contents(ours) == contents(model)
        assert counted(ours, before) == (0, 4, 0)
    assert ("a/c/0/0" in contents(ours)) == write_empty


def test_small_chunks_are_sent_together(
    ucx_store: UcxStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, model = made(ucx_store, chunks=(10, 40))
    sent: list[int] = []

    def counting(send: Any) -> Any:
        async def counted(self: Any, keys: Any, values: Any) -> None:
            sent.append(len(keys))
            await send(self, keys, values)

        return counted

    wrap_sending(monkeypatch, counting)
    ours[:] = DATA
    model[:] = DATA
    assert contents(ours) == contents(model)
    assert sum(sent) == 1000
    assert len(sent) < 40


def test_strict_stores_encode(ucx_store: UcxStore) -> None:
    made(ucx_store)
    strict = zarr.open_array(UcxStore(ucx_store.address, strict=True), path="a", mode="r+")
    strict[:] = DATA
    strict[100:300, ::2] = 1
    expected = DATA.copy()
    expected[100:300, ::2] = 1
    np.testing.assert_array_equal(strict[:], expected)
    assert store_of(strict).stats()["encode"] == 6
    texts = zarr.create_array(strict.store, name="s", shape=4, chunks=2, dtype=str)
    with pytest.raises(FallbackError, match="s/c/0 would be left to zarr"):
        texts[:] = ["a", "b", "c", "d"]
    with pytest.raises(FallbackError, match="not a plain numpy array"):
        strict[:] = np.ma.masked_array(DATA)
    assert store_of(strict).stats()["fallback"] == 0
    np.testing.assert_array_equal(strict[:], expected)


def test_other_peoples_codecs_are_left_to_zarr(ucx_store: UcxStore) -> None:
    ours, model = made(ucx_store)

    class Mine(ZstdCodec):
        pass

    pipeline = ours.async_array.codec_pipeline
    mine = replace(pipeline, codecs=(pipeline.codecs[0], Mine()))  # type: ignore[attr-defined]
    object.__setattr__(ours.async_array, "codec_pipeline", mine)
    before = ucx_store.stats()
    ours[:] = DATA
    model[:] = DATA
    assert counted(ours, before) == (0, 0, 4)
    assert contents(ours) == contents(model)


def test_what_only_pretends_to_be_an_array_is_left_to_zarr(ucx_store: UcxStore) -> None:
    ours, model = made(ucx_store)
    value = np.ma.masked_array(DATA)
    before = ucx_store.stats()
    ours[:] = value
    model[:] = value
    assert counted(ours, before) == (0, 0, 4)
    assert contents(ours) == contents(model)


def test_both_ways_in_one_write(ucx_store: UcxStore) -> None:
    """A chunk of another store falls back, and gets there all the same."""
    ours, other = made(ucx_store)
    spec = ArraySpec(
        ours.chunks,
        ours.metadata.data_type,
        ours.metadata.fill_value,
        ArrayConfig.from_dict({}),
        default_buffer_prototype(),
    )
    batch = []
    for coords, *rest in indexer_of(ours):
        target = other if coords == (1, 0) else ours
        batch.append((target.store_path / target.metadata.encode_chunk_key(coords), spec, *rest))
    before = ucx_store.stats()
    value = cpu.NDBuffer.from_ndarray_like(DATA)
    sync(ours.async_array.codec_pipeline.write(iter(batch), value))
    assert counted(ours, before) == (0, 3, 1)
    np.testing.assert_array_equal(ours[:250], DATA[:250])
    np.testing.assert_array_equal(other[250:500], DATA[250:500])
    assert not ours[250:500].any()
    assert not other[:250].any()


def test_the_value_may_change_once_it_is_written(ucx_store: UcxStore) -> None:
    ours, _ = made(ucx_store)
    value = DATA.copy()
    ours[:] = value
    value[:] = -1
    np.testing.assert_array_equal(ours[:], DATA)


def test_read_only_stores_are_not_written(ucx_store: UcxStore) -> None:
    ours, _ = made(ucx_store)
    ours[:] = DATA
    reader = zarr.open_array(ucx_store.with_read_only(True), path="a", mode="r")
    for selection in np.s_[:], np.s_[:5]:
        with pytest.raises(ValueError, match="read-only mode"):
            reader[selection] = 1
    np.testing.assert_array_equal(ours[:], DATA)


def test_what_cannot_be_encoded_names_its_chunk(
    ucx_store: UcxStore, backdoor: Backdoor, prefix: str
) -> None:
    ours, _ = made(ucx_store)
    ours[:] = DATA
    backdoor.set(f"{prefix}/a/c/1/0", b"no zstd frame")
    with pytest.raises(RuntimeError, match="invalid input data") as caught:
        ours[200:300] = 1
    assert "a/c/1/0" in caught.value.__notes__[0]
    ours[:] = DATA  # which does not read it
    np.testing.assert_array_equal(ours[:], DATA)
    assert access_to(ucx_store).budget.in_use == 0
