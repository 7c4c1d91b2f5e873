"""Which way inner chunks go, what is read of a shard, and shards that change or are broken."""

import asyncio
import gc
import itertools
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import zarr
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
from zarr.errors import ChunkNotFoundError
from zarr.storage import MemoryStore

from tests.backdoor import Backdoor
from tests.eventually import eventually
from tests.pipeline.arrays import INDEX, INNER, SHARDED, counting, store_of
from tests.pipeline.arrays import SHARD_DATA as DATA
from tests.pipeline.indexing import read_into
from tests.pipeline.watched import wrap_decoding
from ucxstore import ChunkSizeError, FallbackError, ShardError, UcxStore
from ucxstore.client.channel import Flight
from ucxstore.copies import count_copies
from ucxstore.pipeline import read_plan
from ucxstore.pipeline.access import access_to
from ucxstore.pipeline.shards import fetch
from ucxstore.pipeline.shards import read as shards_module
from ucxstore.pipeline.shards import read_plan as read_plan_module
from ucxstore.pipeline.shards.read_plan import plan_shard_read
from ucxstore.server import Server

counted = counting("direct", "decode", "fallback")

ENCODED = {"compressors": ZstdCodec()}


def made(store: UcxStore, **options: Any) -> zarr.Array:
    array = zarr.create_array(store, **(SHARDED | options))
    array[:] = DATA.astype(array.dtype)
    return array


def opened(store: UcxStore, **options: Any) -> zarr.Array:
    return zarr.open_array(UcxStore(store.address, **options), path="a", mode="r+")


def bytes_read(array: zarr.Array, before: dict[str, Any]) -> int:
    return store_of(array).stats()["bytes_read"] - before["bytes_read"]


# ---- the ways ----


@pytest.mark.parametrize(
    ("selection", "chunks"),
    [
        (np.s_[:], 80),
        (np.s_[:500, :200], 20),
        (np.s_[10:600, 30:170], 6 * 4),
        (np.s_[5], 8),
        (np.s_[-1, 3], 1),
        (np.s_[::70, :], 10 * 8),
        (np.s_[99:101, 49:51], 4),
    ],
)
@pytest.mark.parametrize("location", ["start", "end"])
def test_boxes_of_raw_inner_chunks_go_direct(
    ucx_store: UcxStore, selection: Any, chunks: int, location: str
) -> None:
    array = made(
        ucx_store,
        shards=None,
        chunks=(500, 200),
        serializer=ShardingCodec(chunk_shape=(100, 50), index_location=location),
    )
    before = ucx_store.stats()
    found = array[selection]
    np.testing.assert_array_equal(found, DATA[selection])
    assert counted(array, before) == (chunks, 0, 0)
    after = ucx_store.stats()
    indexes = after["staged_bytes"] - before["staged_bytes"]
    assert bytes_read(array, before) == np.asarray(found).nbytes + indexes
    assert indexes % INDEX == 0
    np.testing.assert_array_equal(array[selection], DATA[selection])
    assert ucx_store.stats()["staged_bytes"] == after["staged_bytes"]


@pytest.mark.parametrize(
    ("way", "selection", "chunks", "direct"),
    [
        ("orthogonal", np.s_[[3, 1, 500], :], 16, True),
        ("orthogonal", np.s_[7, [3, 1]], 1, True),
        ("orthogonal", np.s_[[7, 900], [399, 1]], 4, True),
        ("coordinate", ([1, 2, 999], [3, 4, 0]), 2, True),
        ("mask", DATA > 1.99, 80, True),
        ("mask", DATA > 1.5, 80, False),  # many short runs
        ("basic", np.s_[:, ::3], 80, False),
    ],
)
@pytest.mark.parametrize("options", [{}, ENCODED], ids=["raw", "zstd"])
def test_any_selection(
    ucx_store: UcxStore,
    way: str,
    selection: Any,
    chunks: int,
    direct: bool,
    options: dict[str, Any],
) -> None:
    array = made(ucx_store, **options)
    plain = zarr.create_array(MemoryStore(), **SHARDED)
    plain[:] = DATA
    before = ucx_store.stats()
    found = getattr(array, f"get_{way}_selection")(selection)
    np.testing.assert_array_equal(found, getattr(plain, f"get_{way}_selection")(selection))
    if direct and not options:
        assert counted(array, before) == (chunks, 0, 0)
        staged = ucx_store.stats()["staged_bytes"] - before["staged_bytes"]
        assert bytes_read(array, before) == staged + np.asarray(found).nbytes
    else:
        assert counted(array, before) == (0, chunks, 0)


@pytest.mark.parametrize(
    ("options", "in_place"),
    [
        ({"compressors": ZstdCodec()}, 40),
        ({"compressors": BloscCodec()}, 40),
        ({"compressors": [ZstdCodec(), Crc32cCodec()]}, 40),
        ({"compressors": GzipCodec()}, 0),
        ({"compressors": Crc32cCodec()}, 0),
        ({"filters": TransposeCodec(order=(1, 0)), "compressors": ZstdCodec()}, 0),
        ({"serializer": BytesCodec(endian="big")}, 0),
    ],
)
def test_encoded_inner_chunks(ucx_store: UcxStore, options: dict[str, Any], in_place: int) -> None:
    array = made(ucx_store, shards=(500, 400), chunks=(25, 400), **options)
    before = ucx_store.stats()
    np.testing.assert_array_equal(array[:], DATA)
    assert counted(array, before) == (0, 40, 0)
    assert ucx_store.stats()["decode_in_place"] - before["decode_in_place"] == in_place


def test_a_single_inner_chunk_is_read_after_its_index_and_then_alone(ucx_store: UcxStore) -> None:
    made(ucx_store)
    array = opened(ucx_store, strict=True)
    for selection, expected in (
        (np.s_[100:200, 50:100], INDEX + INNER),
        (np.s_[100:200, 50:100], INNER),
        (np.s_[400:500, 150:200], INNER),
        (np.s_[99:101, 60:80], 2 * 20 * 4),
        (np.s_[500:600, 50:100], INDEX + INNER),
    ):
        before = store_of(array).stats()
        np.testing.assert_array_equal(array[selection], DATA[selection])
        assert bytes_read(array, before) == expected
    # Another store knows nothing of it; a copy by `with_read_only` does.
    for store, more in (
        (UcxStore(ucx_store.address), INDEX),
        (array.store.with_read_only(True), 0),
        (pickle.loads(pickle.dumps(array.store)), INDEX),
    ):
        again = zarr.open_array(store, path="a", mode="r")
        before = store.stats()
        np.testing.assert_array_equal(again[:100, :50], DATA[:100, :50])
        assert bytes_read(again, before) == INNER + more


def test_all_indexes_come_in_one_request(
    ucx_store: UcxStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = made(ucx_store, **ENCODED)
    calls: list[Any] = []
    get = fetch.get  # type: ignore[attr-defined]

    def counting(keys: Any, ranges: Any) -> Any:
        calls.append(len(keys))
        return get(keys, ranges)

    monkeypatch.setattr(fetch, "get", counting)
    for _ in range(2):
        np.testing.assert_array_equal(array[:], DATA)
    assert calls == [4]


@pytest.mark.parametrize(
    ("out", "expected"),
    [
        (np.zeros((2000, 500), "f4")[::2, 50:450], (80, 0, 0)),
        (np.zeros((1000, 400), "f8"), (0, 80, 0)),
        (np.zeros((1000, 400), ">f4"), (0, 80, 0)),
        (np.zeros((1000, 400), "f4", order="F"), (0, 80, 0)),
        (np.zeros((1000, 400), "f4").view(np.matrix), (0, 0, 4)),
    ],
)
def test_an_out_of_the_users(
    ucx_store: UcxStore, out: np.ndarray, expected: tuple[int, int, int]
) -> None:
    array = made(ucx_store)
    before = ucx_store.stats()
    array.get_basic_selection(out=cpu.NDBuffer.from_ndarray_like(out))
    np.testing.assert_array_equal(np.asarray(out), DATA)
    assert counted(array, before) == expected


def test_a_selection_that_comes_again_goes_the_way_of_its_array(ucx_store: UcxStore) -> None:
    """What was planned for a selection is kept, and right only for arrays that lie alike."""
    array = made(ucx_store)
    wanted = np.s_[20:180, 60:190]
    shape = DATA[wanted].shape
    for _ in range(2):
        for out, way in (
            (np.zeros(shape, "f4"), (2 * 3, 0, 0)),
            (np.zeros((shape[0], 1000), "f4")[:, 5 : 5 + shape[1]], (2 * 3, 0, 0)),
            (np.zeros(shape, "f8"), (0, 2 * 3, 0)),
            (np.zeros(shape, "f4", order="F"), (0, 2 * 3, 0)),
        ):
            for row in (0, 500):  # the same of another shard
                before = ucx_store.stats()
                array.get_basic_selection(
                    (slice(row + 20, row + 180), wanted[1]), out=cpu.NDBuffer(out)
                )
                np.testing.assert_array_equal(out, DATA[row:][wanted])
                assert counted(array, before) == way


@pytest.mark.parametrize(
    "wanted",
    [
        np.s_[0:100, 50:100],
        np.s_[110:120, 55:60],
        np.s_[101:199:2, 50:60],
        np.s_[150, 50:90],
        np.s_[7:8, 3],
    ],
)
def test_boxes_of_one_inner_chunk_that_come_again(
    ucx_store: UcxStore, wanted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = made(ucx_store)
    np.testing.assert_array_equal(array[wanted], DATA[wanted])
    planned: list[object] = []

    def plan(*args: Any) -> Any:
        planned.append(args)
        return plan_shard_read(*args)

    monkeypatch.setattr(read_plan_module, "plan_shard_read", plan)
    rows, columns = wanted
    if isinstance(rows, slice):
        elsewhere = slice(rows.start + 500, rows.stop + 500, rows.step), columns
    else:
        elsewhere = rows + 500, columns
    array[elsewhere]  # its index
    planned.clear()
    for selection in (wanted, elsewhere) * 2:
        before = store_of(array).stats()
        np.testing.assert_array_equal(array[selection], DATA[selection])
        assert counted(array, before) == (1, 0, 0)
        assert bytes_read(array, before) == DATA[selection].nbytes
    assert not planned
    out = np.zeros((*DATA[wanted].shape, 2), "f4")[..., 0]  # which lies in another way
    array.get_basic_selection(wanted, out=cpu.NDBuffer(out))
    np.testing.assert_array_equal(out, DATA[wanted])
    assert planned
    # What has changed meanwhile is found out.
    other = UcxStore(ucx_store.address)
    replaced(other, array)()
    np.testing.assert_array_equal(array[wanted], DATA[wanted] + 1)
    np.testing.assert_array_equal(array[elsewhere], DATA[elsewhere])
    other.delete_sync("a/c/0/0")
    assert not array[wanted].any()
    array[wanted] = DATA[wanted]
    np.testing.assert_array_equal(array[wanted], DATA[wanted])


def known_selections(array: zarr.Array) -> Any:
    """Return the selections whose plans an array keeps."""
    pipeline: Any = array.async_array.codec_pipeline
    return pipeline._chunks._known_selections


def test_few_selections_are_kept(ucx_store: UcxStore) -> None:
    array = made(ucx_store)
    known = known_selections(array)
    array[:500, :200]
    assert len(known) == 1
    for number in range(300):
        np.testing.assert_array_equal(array[number : number + 150, 7], DATA[number:][:150, 7])
    assert 1 < len(known) <= 256
    wide = made(ucx_store, name="b", shards=(1000, 400), chunks=(50, 20))
    wide[:]
    assert len(known_selections(wide)) == 0


@pytest.mark.filterwarnings("ignore:Combining a .sharding_indexed. codec")
@pytest.mark.parametrize(
    "options",
    [
        {"compressors": ZstdCodec()},
        {"filters": TransposeCodec(order=(1, 0))},
        {
            "serializer": ShardingCodec(
                chunk_shape=(250, 100), codecs=[ShardingCodec(chunk_shape=(50, 50))]
            )
        },
        {
            "serializer": ShardingCodec(
                chunk_shape=(100, 50),
                index_codecs=[TransposeCodec(order=(2, 0, 1)), BytesCodec()],
            )
        },
    ],
    ids=["compressed shards", "transposed shards", "shards in shards", "an odd index"],
)
def test_what_is_not_known_falls_back(ucx_store: UcxStore, options: dict[str, Any]) -> None:
    sharding = {
        "shards": None,
        "chunks": (500, 200),
        "serializer": ShardingCodec(chunk_shape=(100, 50)),
    }
    if "filters" in options:
        sharding["serializer"] = ShardingCodec(chunk_shape=(50, 100))
    array = made(ucx_store, **(sharding | options))
    before = ucx_store.stats()
    np.testing.assert_array_equal(array[:], DATA)
    assert counted(array, before) == (0, 0, 4)
    with pytest.raises(FallbackError):
        opened(ucx_store, strict=True)[:]


# ---- what is not held ----


def test_missing_shards_are_filled_and_told_of(ucx_store: UcxStore) -> None:
    for options, expected in (({}, (80, 0, 0)), (ENCODED, (0, 80, 0))):
        array = made(ucx_store, fill_value=7.5, overwrite=True, **options)
        ucx_store.delete_sync("a/c/1/0")
        filled = DATA.copy()
        filled[500:, :200] = 7.5
        before = ucx_store.stats()
        np.testing.assert_array_equal(array[:], filled)
        assert counted(array, before) == expected
        np.testing.assert_array_equal(array.oindex[[1, 600], :], filled[[1, 600]])
        with pytest.raises(ChunkNotFoundError, match="c/1/0"):
            array.with_config({"read_missing_chunks": False})[:]


@pytest.mark.parametrize("options", [{}, ENCODED], ids=["raw", "zstd"])
def test_missing_inner_chunks_are_filled_and_not_told_of(
    ucx_store: UcxStore, options: dict[str, Any]
) -> None:
    array = made(ucx_store, fill_value=7.5, **options)
    expected = DATA.copy()
    expected[100:300, 50:100] = expected[500:, 200:] = 7.5
    expected[600:700, 200:250] = DATA[600:700, 200:250]
    array[:] = expected
    array = array.with_config({"read_missing_chunks": False})
    for selection in np.s_[:], np.s_[150:160, 60:70], np.s_[500:600, 200:], np.s_[::9, 40:60]:
        np.testing.assert_array_equal(array[selection], expected[selection])
    np.testing.assert_array_equal(array.oindex[[150, 1], :], expected[[150, 1]])
    assert store_of(array).stats()["fallback"] == 0


# ---- shards that change ----


def replaced(store: UcxStore, array: zarr.Array) -> Callable[[], None]:
    """Return a function that replaces a shard, each time by other values."""
    other = UcxStore(store.address)  # a client that shares no cache
    model = zarr.create_array(MemoryStore(), **(SHARDED | {"compressors": array.compressors}))
    values = []
    for times in range(1, 5):
        model[:] = DATA + times
        values.append(model.store.get_sync("a/c/0/0"))  # type: ignore[attr-defined]
    following = itertools.cycle(values)
    return lambda: other.set_sync("a/c/0/0", next(following))


@pytest.mark.parametrize("options", [{}, ENCODED], ids=["raw", "zstd"])
def test_a_shard_that_was_replaced_between_two_reads(
    ucx_store: UcxStore, options: dict[str, Any]
) -> None:
    array = made(ucx_store, **options)
    renew = replaced(ucx_store, array)
    for way in (
        lambda: array[:500],
        lambda: array[120:130, 60:70],
        lambda: array.oindex[[3, 150], :],
    ):
        before = way()
        renew()
        after = way()
        assert (before[:, :10] != after[:, :10]).all()
    array[:500, :200] = DATA[:500, :200]
    np.testing.assert_array_equal(array[:], DATA)


@pytest.mark.parametrize("options", [{}, ENCODED], ids=["raw", "zstd"])
def test_a_shard_that_was_deleted_between_two_reads(
    ucx_store: UcxStore, options: dict[str, Any]
) -> None:
    array = made(ucx_store, fill_value=7.5, **options)
    array[:]
    UcxStore(ucx_store.address).delete_sync("a/c/0/0")
    expected = DATA.copy()
    expected[:500, :200] = 7.5
    np.testing.assert_array_equal(array[:], expected)


def test_what_was_missing_is_looked_for_again(ucx_store: UcxStore) -> None:
    """No inner chunk is read then, so no request would notice that the index is out of date."""
    array = made(ucx_store)
    array[:100, :50] = 0
    assert not array[:100, :50].any()
    assert not array[:100, :50].any()
    replaced(ucx_store, array)()
    np.testing.assert_array_equal(array[:100, :50], DATA[:100, :50] + 1)


@pytest.mark.parametrize("options", [{}, ENCODED], ids=["raw", "zstd"])
@pytest.mark.parametrize("times", [1, 3])
def test_a_shard_that_is_replaced_during_a_read(
    ucx_store: UcxStore, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], times: int
) -> None:
    array = made(ucx_store, **options)
    monkeypatch.setattr(read_plan, "GROUP_BYTES", 1)
    renew = replaced(ucx_store, array)
    reads = between(monkeypatch, lambda: renew() if len(reads) <= times else None)
    found = array[:]
    expected = DATA.copy()
    expected[:500, :200] += times
    np.testing.assert_array_equal(found, expected)
    assert reads == [4] + [1] * times
    assert access_to(ucx_store).budget.in_use == 0


def between(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> list[int]:
    """Act between the reads of indexes and inner chunks; return how many indexes were read."""
    find = fetch.fetch_indexes
    reads: list[int] = []

    async def gated(access: Any, shards: Any) -> Any:
        indexes = await find(access, shards)
        reads.append(len(shards))
        await asyncio.to_thread(act)
        return indexes

    monkeypatch.setattr(shards_module, "fetch_indexes", gated)
    return reads


@pytest.mark.parametrize("options", [{}, ENCODED], ids=["raw", "zstd"])
def test_a_shard_that_never_stays_the_same(
    ucx_store: UcxStore, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    array = made(ucx_store, **options)
    reads = between(monkeypatch, replaced(ucx_store, array))
    with pytest.raises(ShardError, match=r"a/c/0/0 was replaced each of 10 times"):
        array[:]
    assert len(reads) == 10
    assert access_to(ucx_store).budget.in_use == 0


# ---- shards that are broken ----


def broken(backdoor: Backdoor, prefix: str, change: Callable[[bytearray], object]) -> None:
    value = bytearray(backdoor.get(f"{prefix}/a/c/0/0") or b"")
    changed = change(value)
    backdoor.set(f"{prefix}/a/c/0/0", bytes(value if changed is None else changed))


@pytest.mark.parametrize("options", [{}, ENCODED], ids=["raw", "zstd"])
def test_an_index_is_checked(
    ucx_store: UcxStore, backdoor: Backdoor, prefix: str, options: dict[str, Any]
) -> None:
    array = made(ucx_store, **options)

    def flip(value: bytearray) -> None:
        value[-50] ^= 1

    broken(backdoor, prefix, flip)
    with pytest.raises(ValueError, match="checksum") as caught:
        array[:]
    assert "a/c/0/0" in caught.value.__notes__[0]
    np.testing.assert_array_equal(array[500:], DATA[500:])


@pytest.mark.parametrize("size", [0, 1, INDEX - 1])
def test_a_shard_without_room_for_its_index(
    ucx_store: UcxStore, backdoor: Backdoor, prefix: str, size: int
) -> None:
    array = made(ucx_store)
    broken(backdoor, prefix, lambda value: value[:size])
    with pytest.raises(ValueError, match="too short to hold its index") as caught:
        array[:10]
    assert "a/c/0/0" in caught.value.__notes__[0]


def unchecked(store: UcxStore, location: str = "end", **options: Any) -> zarr.Array:
    """Make an array whose indexes have no checksum."""
    codec = ShardingCodec(
        chunk_shape=(100, 50), index_codecs=[BytesCodec()], index_location=location, **options
    )
    return made(store, shards=None, chunks=(500, 200), serializer=codec)


@pytest.mark.parametrize("location", ["start", "end"])
def test_a_shard_that_was_cut_off(
    ucx_store: UcxStore, backdoor: Backdoor, prefix: str, location: str
) -> None:
    array = unchecked(ucx_store, location)
    broken(backdoor, prefix, lambda value: value[:-100])
    with pytest.raises((ShardError, ChunkSizeError), match="a/c/0/0"):
        array[:]


@pytest.mark.parametrize(
    ("entry", "error", "match"),
    [
        ((0, INNER - 4), ChunkSizeError, r"has 19996 bytes, and not 20000"),
        ((0, 1 << 40), ShardError, r"outside"),
        ((1 << 63, INNER), ShardError, r"outside"),
        ((20 * INNER, INNER), ShardError, r"outside"),
    ],
)
@pytest.mark.parametrize("selection", [np.s_[:], np.s_[110:120, 60:70], np.s_[110::7, 60::7]])
def test_entries_that_are_wrong(
    ucx_store: UcxStore,
    backdoor: Backdoor,
    prefix: str,
    entry: tuple[int, int],
    error: type[Exception],
    match: str,
    selection: Any,
) -> None:
    array = unchecked(ucx_store)
    number = 1 * 4 + 1

    def change(value: bytearray) -> None:
        start = len(value) - 20 * 16 + 16 * number
        value[start : start + 16] = np.array(entry, "<u8").tobytes()

    sound = backdoor.get(f"{prefix}/a/c/0/0") or b""
    broken(backdoor, prefix, change)
    with pytest.raises(error, match=match) as caught:
        array[selection]
    assert "a/c/0/0" in str(caught.value)
    assert "(1, 1)" in str(caught.value)
    np.testing.assert_array_equal(array[:100], DATA[:100])
    UcxStore(ucx_store.address).set_sync("a/c/0/0", cpu.Buffer.from_bytes(sound))
    np.testing.assert_array_equal(array[selection], DATA[selection])


def test_encoded_inner_chunks_that_are_broken(
    ucx_store: UcxStore, backdoor: Backdoor, prefix: str
) -> None:
    array = made(ucx_store, **ENCODED)

    def change(value: bytearray) -> None:
        start = int.from_bytes(value[-INDEX + 16 * 5 : -INDEX + 16 * 5 + 8], "little")
        value[start : start + 20] = bytes(20)

    broken(backdoor, prefix, change)
    with pytest.raises(RuntimeError) as caught:
        array[:]
    assert "a/c/0/0, inner chunk (1, 1)" in caught.value.__notes__[0]
    assert access_to(ucx_store).budget.in_use == 0
    np.testing.assert_array_equal(array[:100], DATA[:100])


# ---- what is held meanwhile, and afterwards ----


@pytest.mark.parametrize("budget", [1, 3 * INNER, 1 << 28])
def test_the_budget_holds(
    ucx_store: UcxStore, monkeypatch: pytest.MonkeyPatch, budget: int
) -> None:
    made(ucx_store, compressors=BloscCodec(cname="lz4", clevel=0))
    monkeypatch.setattr(read_plan, "GROUP_BYTES", 1)
    array = opened(ucx_store, buffer_budget=budget)
    budget_of = access_to(store_of(array)).budget
    peaks: list[int] = []

    def counting(decode: Any) -> Any:
        def counted(*arguments: Any) -> bool:
            peaks.append(budget_of.in_use)
            return decode(*arguments)

        return counted

    wrap_decoding(monkeypatch, counting)
    np.testing.assert_array_equal(array[:], DATA)
    assert len(peaks) == 80
    assert 0 < max(peaks) <= budget
    assert budget_of.in_use == 0


def test_raw_shards_are_read_without_a_copy(memory_server: Server, prefix: str) -> None:
    # In memory, as the server is in this process: a directory's mapped files would count, too.
    address = f"{memory_server.address}/{prefix}"
    array = made(UcxStore(address))
    array[:]
    counts = count_copies(lambda: array[:], array.nbytes)
    assert counts.peak_extra < 0.2, counts.culprits


async def test_a_failure_keeps_no_memory(
    ucx_store: UcxStore, backdoor: Backdoor, prefix: str
) -> None:
    array = await asyncio.to_thread(made, ucx_store, **ENCODED)
    broken(backdoor, prefix, lambda value: bytes(5000) + value[5000:])
    out = np.zeros(DATA.shape, "f4")
    gone = weakref.ref(out)
    gc.collect()
    gc.disable()
    try:
        failed = False
        try:
            await read_into(array, out)
        except RuntimeError:
            failed = True
        assert failed
        del out
        await asyncio.to_thread(eventually, lambda: gone() is None, 5)
    finally:
        gc.enable()


@pytest.mark.parametrize("options", [{}, ENCODED], ids=["raw", "zstd"])
async def test_a_cancelled_read_leaves_nobody_behind(
    ucx_store: UcxStore, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    array = await asyncio.to_thread(made, ucx_store, **options)
    monkeypatch.setattr(read_plan, "GROUP_BYTES", 1)
    tasks: list[asyncio.Task[None]] = []
    start = shards_module.Gathering.groups  # type: ignore[attr-defined]

    def cancelling(self: Any) -> Any:
        tasks[0].cancel()
        return start(self)

    monkeypatch.setattr(shards_module.Gathering, "groups", cancelling)  # type: ignore[attr-defined]
    monkeypatch.setattr(Flight, "start", cancel_after(Flight.start, tasks))
    out = np.zeros(DATA.shape, "f4")
    tasks.append(asyncio.create_task(read_into(array, out)))
    with pytest.raises(asyncio.CancelledError):
        await tasks[0]
    out[:] = -1
    assert await ucx_store.exists("a/zarr.json")
    assert (out == -1).all()
    assert access_to(ucx_store).budget.in_use == 0
    monkeypatch.undo()
    np.testing.assert_array_equal(await array.async_array.getitem(...), DATA)


def cancel_after(start: Callable[..., Any], tasks: list[asyncio.Task[None]]) -> Callable[..., Any]:
    def cancelling(*args: Any) -> Any:
        operation = start(*args)
        tasks[0].cancel()
        return operation

    return cancelling
