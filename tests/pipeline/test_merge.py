"""Chunks that are written in part: what is read first, and what is stored."""

from typing import Any

import numcodecs
import numpy as np
import pytest
import zarr
from zarr.codecs import ZstdCodec
from zarr.storage import MemoryStore

from tests.backdoor import Backdoor
from tests.pipeline.arrays import DATA, RAW, store_of
from tests.pipeline.strategies import contents
from ucxstore import ChunkSizeError, UcxStore
from ucxstore.base.native import core
from ucxstore.pipeline.access import access_to

CHUNK = 300 * 100 * 4  # bytes


def made(store: UcxStore, **options: Any) -> tuple[zarr.Array, zarr.Array]:
    """Make an array, and zarr's own to compare it with; both hold the same."""
    arrays = [zarr.create_array(one, **(RAW | options)) for one in (store, MemoryStore())]
    for array in arrays:
        array[:] = DATA
    ours, model = arrays
    return ours, model


def written(
    arrays: tuple[zarr.Array, zarr.Array], way: str, selection: Any, value: Any
) -> tuple[int, int, int, int]:
    """Write to both, compare, and count: DIRECT, ENCODE, FALLBACK, and the bytes read."""
    ours, model = arrays
    names = ("direct", "encode", "fallback", "bytes_read")
    before = store_of(ours).stats()
    getattr(ours, f"set_{way}_selection")(selection, value)
    after = store_of(ours).stats()
    getattr(model, f"set_{way}_selection")(selection, value)
    assert contents(ours) == contents(model)
    assert access_to(store_of(ours)).budget.in_use == 0
    assert (
        after["staged_bytes"] - before["staged_bytes"]
        == after["bytes_read"] - (before["bytes_read"])
    )
    return tuple(after[name] - before[name] for name in names)


# ---- raw chunks: only what is missing is read ----


@pytest.mark.parametrize(
    ("selection", "chunks"),
    [
        (np.s_[:100], 4),
        (np.s_[200:300], 4),
        (np.s_[100:200, :100], 1),
        (np.s_[100:400, :100], 2),
        (np.s_[:300, 20:50], 1),
        (np.s_[10:20, 30:60], 1),
        (np.s_[5], 4),
        (np.s_[:, 150], 4),
        (np.s_[-1, 3], 1),
        (np.s_[900:950], 4),  # of the array's last chunks, what is beyond its edge, too
        (np.s_[7:8:2], 4),
    ],
)
@pytest.mark.parametrize("layout", ["C", "F", "scalar"])
def test_boxes(ucx_store: UcxStore, selection: Any, chunks: int, layout: Any) -> None:
    arrays = made(ucx_store)
    part = -DATA[selection]
    value = 7 if layout == "scalar" else np.array(part, order=layout)
    found = written(arrays, "basic", selection, value)
    assert found == (0, chunks, 0, chunks * CHUNK - part.nbytes)


def test_chunks_in_fortran_order(ucx_store: UcxStore) -> None:
    arrays = made(ucx_store, zarr_format=2, order="F")
    for selection, chunks in (
        (np.s_[:100], 4),
        (np.s_[:, 20:30], 4),
        (np.s_[10:100, 30:60], 1),
        (np.s_[3, 150:], 3),
    ):
        part = -DATA[selection]
        found = written(arrays, "basic", selection, part)
        # The last chunks are written as far as they are in the array, so nothing of them is read.
        read = chunks * CHUNK - part.nbytes
        assert found == (0, chunks, 0, read)


@pytest.mark.parametrize(
    ("way", "selection", "chunks"),
    [
        ("basic", np.s_[::2, :100], 4),
        ("basic", np.s_[:300, 1:99], 1),  # what is missing are 300 pieces of 8 bytes
        ("orthogonal", np.s_[[3, 1, 500], :], 8),
        ("orthogonal", np.s_[7, [3, 1]], 1),
        ("coordinate", ([1, 2, 700], [3, 4, 399]), 2),
        ("mask", DATA > 0.98, 16),
    ],
)
def test_other_selections_read_all_of_a_chunk(
    ucx_store: UcxStore, way: str, selection: Any, chunks: int
) -> None:
    arrays = made(ucx_store)
    for value in 7, -getattr(arrays[1], f"get_{way}_selection")(selection):
        assert written(arrays, way, selection, value) == (0, chunks, 0, chunks * CHUNK)


def test_whole_and_part_in_one_write(ucx_store: UcxStore) -> None:
    arrays = made(ucx_store)
    assert written(arrays, "basic", np.s_[:600], DATA[:600] + 1) == (8, 0, 0, 0)
    # The last row of chunks is cut off by the array's edge: all of them is written, and padded.
    assert written(arrays, "basic", np.s_[:], DATA + 2) == (12, 4, 0, 0)
    part = DATA[200:700] + 3
    assert written(arrays, "basic", np.s_[200:700], part) == (4, 8, 0, 12 * CHUNK - part.nbytes)


def test_whole_chunks_that_cannot_go_direct(ucx_store: UcxStore) -> None:
    arrays = made(ucx_store)
    for value in 5, np.asfortranarray(-DATA), DATA.astype(">f4"):
        assert written(arrays, "basic", np.s_[:], value) == (0, 16, 0, 0)


@pytest.mark.parametrize(
    "options", [{}, {"zarr_format": 2, "order": "F"}, {"compressors": ZstdCodec()}]
)
def test_missing_chunks_are_the_fill_value(ucx_store: UcxStore, options: dict[str, Any]) -> None:
    ours, model = (
        zarr.create_array(store, **(RAW | {"fill_value": 7.5} | options))
        for store in (ucx_store, MemoryStore())
    )
    for selection in np.s_[:100], np.s_[400:500, 150], np.s_[605:608, ::3]:
        *_, read = written((ours, model), "basic", selection, 1)
        assert read == 0


@pytest.mark.parametrize("write_empty", [False, True])
@pytest.mark.parametrize("compressor", [None, ZstdCodec()])
def test_chunks_that_become_nothing_but_fill(
    ucx_store: UcxStore, write_empty: bool, compressor: Any
) -> None:
    arrays = made(ucx_store, config={"write_empty_chunks": write_empty}, compressors=compressor)
    for selection in np.s_[:100, :150], np.s_[100:300, :100]:
        written(arrays, "basic", selection, 0)
    stored = contents(arrays[0])
    assert ("a/c/0/0" in stored) == write_empty
    assert "a/c/0/1" in stored


# ---- encoded chunks ----


@pytest.mark.parametrize(
    "options",
    [
        {"compressors": ZstdCodec()},
        {"compressors": None, "filters": zarr.codecs.TransposeCodec(order=(1, 0))},
        {"compressors": None, "serializer": zarr.codecs.BytesCodec(endian="big")},
        {"compressors": zarr.codecs.Crc32cCodec()},
        {"zarr_format": 2, "compressors": numcodecs.Blosc()},
        {"zarr_format": 2, "compressors": numcodecs.LZ4(), "order": "F"},
        {"zarr_format": 2, "compressors": None, "filters": [numcodecs.Zlib()]},
    ],
)
def test_encoded_chunks(ucx_store: UcxStore, options: dict[str, Any]) -> None:
    arrays = made(ucx_store, **options)
    for way, selection, chunks in (
        ("basic", np.s_[250:350, 50:150], 4),
        ("basic", np.s_[::2, 5], 4),
        ("orthogonal", np.s_[[3, 1, 500], :], 8),
        ("mask", DATA > 0.98, 16),
    ):
        for value in 7, -getattr(arrays[1], f"get_{way}_selection")(selection):
            stored = contents(arrays[1])
            direct, encode, fallback, read = written(arrays, way, selection, value)
            assert (direct, encode, fallback) == (0, chunks, 0)
            assert 0 < read <= sum(map(len, stored.values()))


def test_values_larger_than_a_chunk_can_need(ucx_store: UcxStore) -> None:
    """Such values are cut off at first, and then read whole, one by one."""
    text = {"zarr_format": 2, "compressors": None, "filters": [numcodecs.Base64()] * 4}
    arrays = made(ucx_store, **text)
    assert written(arrays, "basic", np.s_[10:20], -DATA[10:20])[:3] == (0, 4, 0)
    np.testing.assert_array_equal(arrays[0][:], arrays[1][:])


# ---- what changes meanwhile, and what is broken ----


def test_parts_are_of_one_value(
    ucx_store: UcxStore, backdoor: Backdoor, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chunk that is replaced while its parts are read is read anew: values never mix."""
    ours, _ = made(ucx_store)
    read_parts = core.Connection.read_parts
    other = np.full((300, 100), 9, "f4")
    replaced: list[int] = []

    def replacing(connection: Any, keys: list[str], **args: Any) -> Any:
        if not replaced:
            backdoor.set(f"{prefix}/a/c/0/0", other.tobytes())
        replaced.append(len(keys))
        return read_parts(connection, keys, **args)

    monkeypatch.setattr(core.Connection, "read_parts", replacing)
    ours[10:20, 30:60] = 1
    assert replaced == [3, 1]  # three parts, and then all of it
    other[10:20, 30:60] = 1
    np.testing.assert_array_equal(ours[:300, :100], other)


def test_a_chunk_that_comes_while_it_is_written(
    ucx_store: UcxStore, backdoor: Backdoor, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, _ = made(ucx_store)
    ucx_store.delete_sync("a/c/0/0")
    read_parts = core.Connection.read_parts

    def coming(connection: Any, keys: list[str], **args: Any) -> Any:
        backdoor.set(f"{prefix}/a/c/0/0", np.full((300, 100), 9, "f4").tobytes())
        return read_parts(connection, keys, **args)

    monkeypatch.setattr(core.Connection, "read_parts", coming)
    ours[10:20, 30:60] = 1
    expected = np.zeros((300, 100), "f4")
    expected[10:20, 30:60] = 1
    np.testing.assert_array_equal(ours[:300, :100], expected)


@pytest.mark.parametrize("selection", [np.s_[:10], np.s_[10:20, 30:60], np.s_[::2]])
def test_a_stored_value_of_the_wrong_size(
    ucx_store: UcxStore, backdoor: Backdoor, prefix: str, selection: Any
) -> None:
    ours, _ = made(ucx_store)
    backdoor.set(f"{prefix}/a/c/0/0", bytes(100))
    with pytest.raises(ChunkSizeError, match="a/c/0/0"):
        ours[selection] = 1
    assert backdoor.get(f"{prefix}/a/c/0/0") == bytes(100)
    assert access_to(ucx_store).budget.in_use == 0
