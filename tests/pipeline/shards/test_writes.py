"""Writes of shards: what is sent from where it lies, what is encoded, and what is read first."""

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import zarr
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, ShardingCodec, ZstdCodec
from zarr.storage import MemoryStore

from tests.backdoor import Backdoor
from tests.eventually import eventually, loop_turns
from tests.pipeline.arrays import INDEX, INNER, SHARDED, store_of
from tests.pipeline.arrays import SHARD_DATA as DATA
from tests.pipeline.indexing import write_all
from tests.pipeline.strategies import contents
from ucxstore import ChunkSizeError, FallbackError, ShardError, UcxStore
from ucxstore.copies import count_copies
from ucxstore.pipeline.access import access_to
from ucxstore.pipeline.merge import Merger
from ucxstore.pipeline.shards import write as shard_writes
from ucxstore.pipeline.shards.make import Maker
from ucxstore.server import Server

ENCODED = {"compressors": ZstdCodec()}


class Odd(np.ndarray):
    pass


def created(store: UcxStore, **options: Any) -> tuple[zarr.Array, zarr.Array]:
    """Make two arrays: one of ours, and one that zarr's pipeline writes."""
    given = SHARDED | options
    return zarr.create_array(store, **given), zarr.create_array(MemoryStore(), **given)


def write(selection: Any, value: Any, *arrays: zarr.Array) -> dict[str, int]:
    """Write to arrays; return what the store of the first has counted meanwhile."""
    before = store_of(arrays[0]).stats()
    for array in arrays:
        array[selection] = value
    after = store_of(arrays[0]).stats()
    return {
        name: after[name] - before[name]
        for name in ("direct", "encode", "decode", "fallback", "bytes_read", "bytes_written")
    }


# ---- the ways ----


@pytest.mark.parametrize(
    ("options", "value", "direct", "encode"),
    [
        ({}, DATA, 80, 0),
        ({}, np.concatenate([DATA, DATA], 1)[:, ::2], 0, 80),  # items that do not lie together
        ({}, np.concatenate([DATA, DATA], 1)[:, 100:500], 80, 0),
        ({}, np.asfortranarray(DATA), 0, 80),
        ({}, DATA.astype(">f4"), 0, 80),
        ({}, 3.0, 0, 80),
        ({"dtype": "f8"}, DATA.astype("f8"), 80, 0),
        ({"compressors": ZstdCodec()}, DATA, 0, 80),
        ({"compressors": [BloscCodec(), Crc32cCodec()]}, DATA, 0, 80),
        ({"serializer": BytesCodec(endian="big")}, DATA, 0, 80),
        # Whole inner chunks of shards at the array's edge, and those that it cuts.
        ({"shards": (600, 200)}, DATA, 80, 0),
        ({"shards": (600, 250), "chunks": (150, 50)}, DATA, 48, 8),
    ],
)
@pytest.mark.parametrize("location", ["start", "end"])
def test_whole_shards(
    ucx_store: UcxStore,
    options: dict[str, Any],
    value: Any,
    direct: int,
    encode: int,
    location: str,
) -> None:
    chosen = SHARDED | options
    codec = {
        "shards": None,
        "chunks": chosen["shards"],
        "serializer": ShardingCodec(
            chunk_shape=chosen["chunks"],
            codecs=[
                options.get("serializer", BytesCodec()),
                *(
                    [options["compressors"]]
                    if type(options.get("compressors")) is ZstdCodec
                    else []
                ),
                *(options["compressors"] if type(options.get("compressors")) is list else []),
            ],
            index_location=location,
        ),
        "compressors": None,
    }
    ours, model = created(ucx_store, **(options | codec))
    counts = write(np.s_[:], value, ours, model)
    assert (counts["direct"], counts["encode"]) == (direct, encode)
    assert (counts["decode"], counts["fallback"], counts["bytes_read"]) == (0, 0, 0)
    stored = contents(model)
    assert contents(ours) == stored
    assert counts["bytes_written"] == sum(len(v) for k, v in stored.items() if "json" not in k)
    np.testing.assert_array_equal(ours[:], model[:])


@pytest.mark.parametrize("order", ["morton", "lexicographic", "colexicographic", "unordered"])
def test_inner_chunks_lie_in_zarrs_order(ucx_store: UcxStore, order: str) -> None:
    codec = ShardingCodec(chunk_shape=(100, 50), subchunk_write_order=order)
    ours, model = created(ucx_store, shards=None, chunks=(500, 200), serializer=codec)
    assert write(np.s_[:], DATA, ours, model)["direct"] == 80
    assert contents(ours) == contents(model)


@pytest.mark.parametrize("options", [{}, ENCODED], ids=["raw", "zstd"])
def test_what_is_empty_is_left_out(ucx_store: UcxStore, options: dict[str, Any]) -> None:
    ours, model = created(ucx_store, fill_value=2.5, **options)
    value = DATA.copy()
    value[100:200] = value[500:, 200:] = 2.5
    for some in value, np.full_like(DATA, 2.5), DATA:
        write(np.s_[:], some, ours, model)
        assert contents(ours) == contents(model)
    ours, model = created(
        ucx_store, fill_value=2.5, overwrite=True, config={"write_empty_chunks": True}, **options
    )
    write(np.s_[:], value, ours, model)
    assert contents(ours) == contents(model)


@pytest.mark.parametrize(
    ("selection", "direct", "encode", "kept"),
    [
        (np.s_[:500, :200], 20, 0, 0),
        (np.s_[:100, :50], 1, 0, 19),
        (np.s_[:500, 50:100], 5, 0, 15),
        (np.s_[10:20, 10:20], 0, 1, 20),
        (np.s_[50:300, :100], 4, 2, 16),
        (np.s_[::2, :50], 0, 10, 40),
        (np.s_[5], 0, 8, 40),
    ],
)
@pytest.mark.parametrize("options", [{}, ENCODED], ids=["raw", "zstd"])
def test_shards_that_are_written_in_part(
    ucx_store: UcxStore,
    selection: Any,
    direct: int,
    encode: int,
    kept: int,
    options: dict[str, Any],
) -> None:
    ours, model = created(ucx_store, **options)
    write(np.s_[:], DATA, ours, model)
    value = -DATA[selection]
    counts = write(selection, value, ours, model)
    assert contents(ours) == contents(model)
    assert (counts["decode"], counts["fallback"]) == (0, 0)
    if options:
        assert (counts["direct"], counts["encode"]) == (0, direct + encode)
    else:
        assert (counts["direct"], counts["encode"]) == (direct, encode)
        shards = -(-kept // 20)
        assert counts["bytes_read"] == kept * INNER + shards * INDEX


def test_selections_by_arrays(ucx_store: UcxStore) -> None:
    for options in {}, ENCODED:
        ours, model = created(ucx_store, overwrite=True, **options)
        write(np.s_[:], DATA, ours, model)
        for array in ours, model:
            array.oindex[[3, 700], :] = -DATA[[3, 700], :]
            array.oindex[[900, 5], [7, 399, 30]] = np.arange(6, dtype="f4").reshape(2, 3)
            array.vindex[[1, 600, 2], [3, 300, 4]] = np.float32([1, 2, 3])
            array.set_mask_selection(DATA > 1.9, 0)
        assert contents(ours) == contents(model)
        assert store_of(ours).stats()["fallback"] == 0


def test_what_falls_back(ucx_store: UcxStore) -> None:
    ours, model = created(ucx_store)
    counts = write(np.s_[:], DATA.view(Odd), ours, model)
    assert (counts["direct"], counts["encode"], counts["fallback"]) == (0, 0, 4)
    assert contents(ours) == contents(model)
    strict = zarr.open_array(UcxStore(ucx_store.address, strict=True), path="a", mode="r+")
    with pytest.raises(FallbackError, match="not a plain numpy array"):
        strict[:] = DATA.view(Odd)


def test_a_store_to_read_only_is_not_written(ucx_store: UcxStore) -> None:
    ours, _ = created(ucx_store)
    fixed = zarr.open_array(ucx_store.with_read_only(True), path="a")
    with pytest.raises(ValueError, match="read-only"):
        fixed[:] = DATA
    assert not ours[:].any()


def test_what_was_written_is_read(ucx_store: UcxStore) -> None:
    """The index that was known before is not taken for that of the new shard."""
    for options in {}, ENCODED:
        ours, _ = created(ucx_store, overwrite=True, **options)
        for sign in 1, -1:
            ours[:] = sign * DATA
            np.testing.assert_array_equal(ours[:], sign * DATA)
            ours[5:7, 5:7] = 0
            assert not ours[5:7, 5:7].any()


# ---- copies, threads, the budget ----


def test_raw_shards_are_written_without_a_copy(memory_server: Server, prefix: str) -> None:
    store = UcxStore(f"{memory_server.address}/{prefix}")
    ours, _ = created(store, shards=(1000, 400))
    ours[:] = DATA
    counts = count_copies(lambda: ours.__setitem__(np.s_[:], DATA), ours.nbytes)
    # The server keeps the old shard until it has the new one, and is in this process.
    assert counts.peak_extra < 1.2, counts.culprits


def test_a_large_shard_is_made_by_many_threads(
    ucx_store: UcxStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_writes, "GROUP_BYTES", INNER)
    barrier = threading.Barrier(2)
    make = Merger.make

    def meeting(self: Any, *args: Any) -> Any:
        barrier.wait(30)
        return make(self, *args)

    monkeypatch.setattr(Merger, "make", meeting)
    with zarr.config.set({"threading.max_workers": 2}):
        ours, model = created(ucx_store, shards=(1000, 400), **ENCODED)
        write(np.s_[:], DATA, ours, model)
    assert contents(ours) == contents(model)


@pytest.mark.parametrize("budget", [1, 600_000, 1 << 28])
def test_the_budget_holds(
    ucx_store: UcxStore, monkeypatch: pytest.MonkeyPatch, budget: int
) -> None:
    """At most one shard that is larger than the budget is in memory."""
    created(ucx_store, shards=(100, 400), chunks=(50, 50), **ENCODED)
    store = UcxStore(ucx_store.address, buffer_budget=budget)
    array = zarr.open_array(store, path="a", mode="r+")
    monkeypatch.setattr("ucxstore.pipeline.shards.write_plan.GROUP_BYTES", 1)
    start, send = Maker.start, shard_writes.ShardWriting._send
    lock = threading.Lock()
    flying: set[str] = set()
    most = 0

    def counting(self: Any, shard: Any, existing: Any) -> Any:
        nonlocal most
        with lock:
            flying.add(shard.key)
            most = max(most, len(flying))
        assert access_to(store).budget.in_use <= budget
        return start(self, shard, existing)

    async def sending(self: Any, shards: Any, contents: Any) -> None:
        await send(self, shards, contents)
        with lock:
            flying.difference_update(shard.key for shard in shards)

    monkeypatch.setattr(Maker, "start", counting)
    monkeypatch.setattr(shard_writes.ShardWriting, "_send", sending)
    array[:] = DATA
    assert (most == 1) is (budget == 1)
    assert access_to(store).budget.in_use == 0
    np.testing.assert_array_equal(array[:], DATA)


# ---- shards that change, or are broken, while they are written in part ----


def between(monkeypatch: pytest.MonkeyPatch, act: Callable[[int], object]) -> None:
    """Run a function after an index is read, and before the inner chunks are."""
    find = shard_writes.fetch_indexes  # type: ignore[attr-defined]
    times = 0

    async def gated(*asked: Any) -> Any:
        nonlocal times
        indexes = await find(*asked)
        times += 1
        await asyncio.to_thread(act, times)
        return indexes

    monkeypatch.setattr(shard_writes, "fetch_indexes", gated)


@pytest.mark.parametrize("options", [{}, ENCODED], ids=["raw", "zstd"])
def test_a_shard_that_is_replaced_in_the_middle(
    ucx_store: UcxStore, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    ours, model = created(ucx_store, **options)
    write(np.s_[:], DATA, ours, model)
    model[:] = 2 * DATA
    value = model.store.get_sync("a/c/0/0")  # type: ignore[attr-defined]
    other = UcxStore(ucx_store.address)

    def act(times: int) -> None:
        if times <= 2:
            other.set_sync("a/c/0/0", value)

    between(monkeypatch, act)
    ours[10:20, 10:20] = 7
    expected = DATA.copy()
    expected[:500, :200] *= 2
    expected[10:20, 10:20] = 7
    np.testing.assert_array_equal(ours[:], expected)


def test_a_shard_that_never_stays_the_same(
    ucx_store: UcxStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, model = created(ucx_store)
    write(np.s_[:], DATA, ours, model)
    value = model.store.get_sync("a/c/0/0")  # type: ignore[attr-defined]
    other = UcxStore(ucx_store.address)
    between(monkeypatch, lambda _: other.set_sync("a/c/0/0", value))
    with pytest.raises(ShardError, match=r"a/c/0/0 was replaced each of 10 times"):
        ours[10:20, 10:20] = 7
    monkeypatch.undo()
    np.testing.assert_array_equal(ours[:], DATA)
    assert access_to(ucx_store).budget.in_use == 0


def test_what_others_have_added_is_kept(ucx_store: UcxStore) -> None:
    """The known index may even say that the shard holds nothing."""
    ours, model = created(ucx_store)
    write(np.s_[:100, :50], DATA[:100, :50], ours, model)
    np.testing.assert_array_equal(ours[:], model[:])
    other = zarr.open_array(UcxStore(ucx_store.address), path="a", mode="r+")
    for array in other, model:
        array[100:200, :50] = DATA[100:200, :50]
    write(np.s_[:100, :50], -DATA[:100, :50], ours, model)
    assert contents(ours) == contents(model)


def test_a_broken_shard_is_not_made_worse(
    ucx_store: UcxStore, backdoor: Backdoor, prefix: str
) -> None:
    codec = ShardingCodec(chunk_shape=(100, 50), index_codecs=[BytesCodec()])
    ours, _ = created(ucx_store, shards=None, chunks=(500, 200), serializer=codec)
    ours[:] = DATA
    sound = backdoor.get(f"{prefix}/a/c/0/0") or b""
    for entry, error in (((0, 1 << 40), ShardError), ((0, INNER - 4), ChunkSizeError)):
        value = bytearray(sound)
        value[-20 * 16 : -19 * 16] = np.array(entry, "<u8").tobytes()
        backdoor.set(f"{prefix}/a/c/0/0", bytes(value))
        with pytest.raises(error, match=r"a/c/0/0.*inner chunk \(0, 0\)"):
            ours[450:460, 150:160] = 7
        assert backdoor.get(f"{prefix}/a/c/0/0") == bytes(value)
    backdoor.set(f"{prefix}/a/c/0/0", sound[:100])
    with pytest.raises(ValueError, match="too short") as caught:
        ours[450:460, 150:160] = 7
    assert "a/c/0/0" in caught.value.__notes__[0]
    ours[:] = -DATA  # which needs nothing of it
    np.testing.assert_array_equal(ours[:], -DATA)


def test_an_inner_chunk_that_cannot_be_decoded_or_made_is_named(
    ucx_store: UcxStore, backdoor: Backdoor, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, _ = created(ucx_store, **ENCODED)
    ours[:] = DATA
    value = bytearray(backdoor.get(f"{prefix}/a/c/0/0") or b"")
    start = int.from_bytes(value[-INDEX + 16 * 5 : -INDEX + 16 * 5 + 8], "little")
    value[start : start + 20] = bytes(20)
    backdoor.set(f"{prefix}/a/c/0/0", bytes(value))
    with pytest.raises(RuntimeError) as caught:
        ours[110:120, 60:70] = 7
    assert "a/c/0/0, inner chunk (1, 1)" in caught.value.__notes__[0]
    assert access_to(ucx_store).budget.in_use == 0
    ours[:10, :10] = 7  # the broken one is kept as it is
    assert (ours[:10, :10] == 7).all()


# ---- what is left when it ends ----


@pytest.mark.parametrize("times", [1, 3])
async def test_a_cancelled_write_waits_for_its_threads(
    ucx_store: UcxStore, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    array, _ = await asyncio.to_thread(created, ucx_store, **ENCODED)
    monkeypatch.setattr(shard_writes, "GROUP_BYTES", 1)
    entered, opened = threading.Event(), threading.Event()
    inside = 0
    make = Merger.make

    def gated(self: Any, *args: Any) -> Any:
        nonlocal inside
        inside += 1
        entered.set()
        assert opened.wait(30)
        try:
            return make(self, *args)
        finally:
            inside -= 1

    monkeypatch.setattr(Merger, "make", gated)
    writing = asyncio.ensure_future(write_all(array, DATA))
    assert await asyncio.to_thread(entered.wait, 30)
    for _ in range(times):
        writing.cancel()
        await loop_turns()
    assert not writing.done()  # its threads are about to read
    opened.set()
    with pytest.raises(asyncio.CancelledError):
        await writing
    assert inside == 0
    assert access_to(ucx_store).budget.in_use == 0
    monkeypatch.undo()
    await write_all(array, DATA)
    np.testing.assert_array_equal(await array.async_array.getitem(...), DATA)


async def test_a_failure_keeps_no_memory(
    ucx_store: UcxStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    array, _ = await asyncio.to_thread(created, ucx_store, **ENCODED)

    def failing(*_: Any) -> Any:
        raise RuntimeError("no inner chunk today")

    monkeypatch.setattr(Merger, "make", failing)
    value = DATA.copy()
    gone = weakref.ref(value)
    gc.collect()
    gc.disable()
    try:
        message = ""
        try:
            await write_all(array, value)
        except RuntimeError as error:
            message = str(error)
        assert message == "no inner chunk today"
        del value
        await asyncio.to_thread(eventually, lambda: gone() is None, 5)
    finally:
        gc.enable()
