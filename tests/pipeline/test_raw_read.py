"""Of raw chunks, only the bytes that a selection wants are read, or else whole chunks."""

import asyncio
import gc
import weakref
from typing import Any

import numpy as np
import pytest
import zarr

from tests.backdoor import Backdoor
from tests.eventually import eventually
from tests.pipeline.arrays import NOISE as DATA
from tests.pipeline.arrays import RAW, counting, store_of
from tests.pipeline.indexing import read_into
from ucxstore import ChunkSizeError, UcxStore
from ucxstore.pipeline.access import access_to

counted = counting("direct", "decode", "fallback")


@pytest.mark.parametrize(
    ("way", "selection", "expected"),
    [
        ("basic", np.s_[::2, :], DATA[::2]),
        ("orthogonal", np.s_[[3, 1, 500], :], DATA[[3, 1, 500]]),
        ("orthogonal", np.s_[7, [3, 1]], DATA[7, [3, 1]]),
        ("coordinate", ([1, 2], [3, 4]), DATA[[1, 2], [3, 4]]),
        ("mask", DATA > 0.999, DATA[DATA > 0.999]),
    ],
)
def test_other_selections_go_in_parts(
    array: zarr.Array, way: str, selection: Any, expected: np.ndarray
) -> None:
    before = store_of(array).stats()
    found = getattr(array, f"get_{way}_selection")(selection)
    np.testing.assert_array_equal(found, expected)
    direct, decode, fallback = counted(array, before)
    assert direct > 0
    assert (decode, fallback) == (0, 0)
    after = store_of(array).stats()
    assert after["bytes_read"] - before["bytes_read"] == expected.nbytes
    assert after["staged_bytes"] == before["staged_bytes"]


@pytest.mark.parametrize(
    ("way", "selection", "expected"),
    [
        ("basic", np.s_[::2, ::2], DATA[::2, ::2]),
        ("orthogonal", np.s_[:, [7, 3, 11] * 30], DATA[:, [7, 3, 11] * 30]),
        ("mask", DATA > 0.5, DATA[DATA > 0.5]),
    ],
)
def test_what_is_in_too_many_pieces_is_fetched_whole(
    array: zarr.Array, way: str, selection: Any, expected: np.ndarray
) -> None:
    before = store_of(array).stats()
    found = getattr(array, f"get_{way}_selection")(selection)
    np.testing.assert_array_equal(found, expected)
    direct, decode, fallback = counted(array, before)
    assert (direct, fallback) == (0, 0)
    assert decode > 0
    after = store_of(array).stats()
    staged = after["staged_bytes"] - before["staged_bytes"]
    assert staged == after["bytes_read"] - before["bytes_read"] == decode * 300 * 100 * 4
    assert access_to(store_of(array)).budget.in_use == 0


@pytest.mark.parametrize(("columns", "path"), [([3, 1, 4], 0), (np.arange(200) % 3 > 0, 1)])
def test_integers_beside_index_arrays(ucx_store: UcxStore, columns: Any, path: int) -> None:
    """zarr drops the axes of integers only after a chunk was read."""
    options = RAW | {"shape": (300, 8, 200), "chunks": (100, 8, 200)}
    array = zarr.create_array(ucx_store, **options)
    data = np.random.default_rng(0).random(array.shape).astype("f4")
    array[:] = data
    before = ucx_store.stats()
    np.testing.assert_array_equal(array.oindex[:, 7, columns], data[:, 7][:, columns])
    np.testing.assert_array_equal(array.oindex[250, columns[:8], 1], data[250, columns[:8], 1])
    assert counted(array, before) == ((4, 0, 0), (1, 3, 0))[path]


def test_only_what_is_wanted_is_read(ucx_store: UcxStore) -> None:
    data = np.random.default_rng(0).random((2000, 1000))
    array = zarr.create_array(
        ucx_store, shape=data.shape, chunks=(500, 500), dtype="f8", compressors=None
    )
    array[:] = data
    rows, columns = np.random.default_rng(1).integers(0, 1000, (2, 1000))
    for look in (
        lambda z: z[:, 5],
        lambda z: z[::10],
        lambda z: z[::10, ::7],
        lambda z: z[1234, 567],
        lambda z: getattr(z, "vindex", z)[rows, columns],
        lambda z: getattr(z, "oindex", z)[[1, 5, 7]],
    ):
        before = ucx_store.stats()
        found = look(array)
        np.testing.assert_array_equal(found, look(data))
        after = ucx_store.stats()
        assert after["bytes_read"] - before["bytes_read"] == np.asarray(found).nbytes
        assert after["staged_bytes"] == before["staged_bytes"]
        assert (after["decode"], after["fallback"]) == (before["decode"], before["fallback"])


@pytest.mark.parametrize(
    ("selection", "expected"),
    [(np.s_[5::10], (16, 0, 0)), (np.s_[::2, ::2], (0, 16, 0)), (np.s_[:, [7, 201]], (8, 0, 0))],
)
def test_parts_of_missing_chunks_are_filled(
    array: zarr.Array, selection: Any, expected: tuple[int, int, int]
) -> None:
    store_of(array).delete_sync("a/c/1/2")
    store_of(array).delete_sync("a/c/3/0")
    data = DATA.copy()
    data[300:600, 200:300] = data[900:, :100] = 0
    before = store_of(array).stats()
    np.testing.assert_array_equal(array.oindex[selection], data[selection])
    assert counted(array, before) == expected
    if not expected[1]:
        read = store_of(array).stats()["bytes_read"] - before["bytes_read"]
        assert read == np.count_nonzero(data[selection]) * 4


def test_arrays_that_are_made_in_fortran_order(array: zarr.Array) -> None:
    """Whole chunks are fetched into memory of ours; one row of a chunk is not."""
    before = store_of(array).stats()
    found = array.with_config({"order": "F"})[299:]
    assert found.flags.f_contiguous
    np.testing.assert_array_equal(found, DATA[299:])
    assert counted(array, before) == (4, 12, 0)


@pytest.mark.parametrize("broken", ["a/c/0/2", "a/c/1/2"])
async def test_nothing_is_left_of_a_read_that_fails(
    array: zarr.Array, backdoor: Backdoor, prefix: str, broken: str
) -> None:
    """No reference cycle keeps the array: neither of DIRECT chunks nor of those fetched whole."""
    backdoor.set(f"{prefix}/{broken}", bytes(100))
    out = np.zeros((701, 400), "f4", order="F")
    gone = weakref.ref(out)
    gc.collect()
    gc.disable()
    try:
        failed = False
        try:
            await read_into(array, out, np.s_[299:, :])
        except ChunkSizeError as error:
            failed = broken in str(error)
        assert failed
        del out
        await asyncio.to_thread(eventually, lambda: gone() is None, 5)
    finally:
        gc.enable()
    assert access_to(store_of(array)).budget.in_use == 0
