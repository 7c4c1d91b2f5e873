"""Which way encoded chunks go, what holds on the way, and what is left when it fails."""

import asyncio
import gc
import pickle
import struct
import threading
import weakref
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numcodecs
import numpy as np
import pytest
import zarr
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, ZstdCodec
from zarr.codecs import numcodecs as wrapped
from zarr.core.buffer import cpu
from zarr.core.sync import sync
from zarr.errors import ChunkNotFoundError
from zarr.storage import MemoryStore

from tests.backdoor import Backdoor
from tests.eventually import eventually, nothing_happens_async
from tests.pipeline.arrays import DATA, ENCODED, SLAB, counting, made, store_of
from tests.pipeline.indexing import read_into
from tests.pipeline.watched import wrap_decoding
from ucxstore import UcxStore
from ucxstore.codecs.chain import Chain
from ucxstore.copies import count_copies
from ucxstore.pipeline import read_plan
from ucxstore.pipeline.access import access_to
from ucxstore.pipeline.decode import Decoding
from ucxstore.pipeline.workers import codec_threads
from ucxstore.server import Server

counted = counting("decode", "decode_in_place", "fallback", without="direct")


# ---- the ways ----


@pytest.mark.parametrize(
    ("options", "in_place"),
    [
        ({}, 4),
        ({"compressors": BloscCodec()}, 4),
        ({"compressors": [ZstdCodec(), Crc32cCodec()]}, 4),
        ({"compressors": [wrapped.LZ4(), GzipCodec()]}, 4),
        ({"zarr_format": 2, "compressors": numcodecs.Blosc()}, 4),
        ({"zarr_format": 2, "compressors": numcodecs.LZ4(), "order": "F"}, 0),
        ({"zarr_format": 2, "compressors": numcodecs.Zstd(), "dtype": ">f4"}, 4),
        ({"compressors": GzipCodec()}, 0),
        ({"compressors": None, "filters": zarr.codecs.TransposeCodec(order=(1, 0))}, 0),
        ({"compressors": None, "serializer": BytesCodec(endian="big")}, 0),
        ({"serializer": BytesCodec(endian="big")}, 0),
        ({"compressors": [wrapped.Shuffle(elementsize=4), ZstdCodec()]}, 0),
        (
            {"zarr_format": 2, "compressors": numcodecs.Zstd(), "filters": [numcodecs.Delta("f4")]},
            0,
        ),
        ({"config": {"order": "F"}}, 0),
    ],
)
@pytest.mark.filterwarnings("ignore:Numcodecs codecs")
def test_what_is_decoded(ucx_store: UcxStore, options: dict[str, Any], in_place: int) -> None:
    array = made(ucx_store, **options)
    before = ucx_store.stats()
    found = array[:]
    if options.get("filters"):
        np.testing.assert_allclose(found, DATA, atol=1e-4)  # Delta of floats is not exact
    else:
        np.testing.assert_array_equal(found, DATA)
    assert counted(array, before) == (4, in_place, 0)
    after = ucx_store.stats()
    read = after["bytes_read"] - before["bytes_read"]
    assert read == after["staged_bytes"] - before["staged_bytes"]
    assert 0 < read < (DATA.nbytes if in_place else DATA.nbytes + 1)


@pytest.mark.parametrize(
    ("way", "selection", "chunks", "in_place"),
    [
        ("basic", np.s_[250:750], 2, 2),
        ("basic", np.s_[200:750], 3, 2),
        ("basic", np.s_[::2], 4, 0),
        ("basic", np.s_[:, 5], 4, 0),
        ("basic", np.s_[-1, 3], 1, 0),
        ("orthogonal", np.s_[[3, 1, 500], :], 2, 0),
        ("orthogonal", np.s_[7, [3, 1]], 1, 0),
        ("coordinate", ([1, 2], [3, 4]), 1, 0),
        ("mask", DATA > 0.99, 4, 0),
        ("block", np.s_[1], 1, 1),
    ],
)
def test_selections(
    ucx_store: UcxStore, way: str, selection: Any, chunks: int, in_place: int
) -> None:
    array = made(ucx_store)
    plain = zarr.create_array(MemoryStore(), **ENCODED)
    plain[:] = DATA
    before = ucx_store.stats()
    found = getattr(array, f"get_{way}_selection")(selection)
    np.testing.assert_array_equal(found, getattr(plain, f"get_{way}_selection")(selection))
    assert counted(array, before) == (chunks, in_place, 0)


def test_edge_chunks_and_frames(ucx_store: UcxStore) -> None:
    array = made(ucx_store, chunks=(300, 400))
    before = ucx_store.stats()
    np.testing.assert_array_equal(array[:], DATA)
    assert counted(array, before) == (4, 3, 0)  # the last one is cut off by the array's edge

    frames = zarr.create_array(
        ucx_store, name="f", shape=(3, 100, 40), chunks=(1, 100, 40), dtype="f4"
    )
    frames[:] = DATA.reshape(10, 100, 400)[:3, :, :40]
    before = ucx_store.stats()
    np.testing.assert_array_equal(frames[1], DATA.reshape(10, 100, 400)[1, :, :40])
    assert counted(frames, before) == (1, 1, 0)


def test_fortran_order(ucx_store: UcxStore) -> None:
    options = {
        "zarr_format": 2,
        "order": "F",
        "compressors": numcodecs.Zstd(),
        "chunks": (1000, 100),
    }
    array = made(ucx_store, **options)
    before = ucx_store.stats()
    out = np.zeros(DATA.shape, "f4", order="F")
    array.get_basic_selection(out=cpu.NDBuffer.from_ndarray_like(out))
    np.testing.assert_array_equal(out, DATA)
    assert counted(array, before) == (4, 4, 0)


@pytest.mark.parametrize(
    ("out", "expected"),
    [
        (np.zeros((2000, 500), "f4")[::2, 50:450], (4, 0, 0)),
        (np.zeros((1000, 400), "f8"), (4, 0, 0)),
        (np.zeros((1000, 400), ">f4"), (4, 0, 0)),
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


def test_arrays_that_cannot_hold_it_are_not_written(ucx_store: UcxStore) -> None:
    array = made(ucx_store)
    fixed = np.zeros(DATA.shape, "f4")
    fixed.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        array.get_basic_selection(out=cpu.NDBuffer.from_ndarray_like(fixed))
    assert not fixed.any()


def test_missing_chunks_are_filled_and_told_of(ucx_store: UcxStore) -> None:
    array = made(ucx_store, fill_value=7.5)
    ucx_store.delete_sync("a/c/1/0")
    expected = DATA.copy()
    expected[250:500] = 7.5
    before = ucx_store.stats()
    np.testing.assert_array_equal(array[:], expected)
    assert counted(array, before) == (4, 3, 0)
    with pytest.raises(ChunkNotFoundError, match="c/1/0"):
        array.with_config({"read_missing_chunks": False})[:]


def test_strict_stores_decode(ucx_store: UcxStore) -> None:
    made(ucx_store)
    strict = zarr.open_array(UcxStore(ucx_store.address, strict=True), path="a", mode="r+")
    for selection in np.s_[:], np.s_[::3, 5]:
        np.testing.assert_array_equal(strict[selection], DATA[selection])
    assert store_of(strict).stats()["decode"] == 8
    assert store_of(strict).stats()["fallback"] == 0


def test_other_peoples_codecs_are_left_to_zarr(ucx_store: UcxStore) -> None:
    made(ucx_store)
    array = zarr.open_array(ucx_store, path="a", mode="r")

    class Mine(ZstdCodec):
        pass

    pipeline = array.async_array.codec_pipeline
    mine = replace(pipeline, codecs=(pipeline.codecs[0], Mine()))  # type: ignore[attr-defined]
    object.__setattr__(array.async_array, "codec_pipeline", mine)
    before = ucx_store.stats()
    np.testing.assert_array_equal(array[:], DATA)
    assert counted(array, before) == (0, 0, 4)


def test_values_of_unknown_size(ucx_store: UcxStore, backdoor: Backdoor, prefix: str) -> None:
    """Other implementations write zstd as a stream, or as several frames."""
    array = made(ucx_store)
    first = DATA[:250].tobytes()
    one, two = (numcodecs.Zstd().encode(part) for part in (first[:4000], first[4000:]))
    backdoor.set(f"{prefix}/a/c/0/0", one + two)
    stream = bytearray(numcodecs.Zstd().encode(first))
    before = ucx_store.stats()
    np.testing.assert_array_equal(array[:], DATA)
    assert counted(array, before) == (4, 3, 0)
    assert stream[4] >> 6 == 2  # a descriptor with four bytes of size, which is then left out
    window = bytes([(22 - 10) << 3])
    unknown = bytes(stream[:4]) + bytes([0]) + window + bytes(stream[9:])
    backdoor.set(f"{prefix}/a/c/0/0", unknown)
    np.testing.assert_array_equal(array[:], DATA)
    assert counted(array, before) == (8, 7, 0)


def test_values_larger_than_a_chunk_can_need(ucx_store: UcxStore) -> None:
    """Such values are cut off at first, and then read whole, one by one."""
    text = {"zarr_format": 2, "compressors": None, "filters": [numcodecs.Base64()] * 4}
    array = made(ucx_store, **text)
    before = ucx_store.stats()
    np.testing.assert_array_equal(array[:], DATA)
    assert counted(array, before) == (4, 0, 0)
    assert ucx_store.stats()["bytes_read"] - before["bytes_read"] > 5 * DATA.nbytes
    assert access_to(ucx_store).budget.in_use == 0


# ---- broken values ----


# What encodes their values, and what an array is made with.
STRAIGHT: dict[str, tuple[numcodecs.abc.Codec, Any]] = {
    "zstd": (numcodecs.Zstd(), ZstdCodec()),
    "blosc": (numcodecs.Blosc(), BloscCodec()),
    "lz4": (numcodecs.LZ4(), wrapped.LZ4()),
}


def broken(encode: numcodecs.abc.Codec) -> Iterator[tuple[str, bytes]]:
    """Yield values that are not what the codec wrote of a chunk."""
    right = bytes(encode.encode(DATA[:250]))
    yield "nothing", b""
    yield "a byte", right[:1]
    yield "a header", right[:16]
    yield "cut off", right[:-100]
    yield "noise", bytes(np.random.default_rng(0).integers(0, 256, 1000, "u1"))
    yield "too small", bytes(encode.encode(DATA[:249]))
    yield "too large", bytes(encode.encode(DATA[:251]))
    yield "in the middle", right[:5000] + bytes(500) + right[5500:]


@pytest.mark.parametrize("codec", STRAIGHT)
@pytest.mark.parametrize("selection", [np.s_[:], np.s_[10:600, ::2]])
@pytest.mark.filterwarnings("ignore:Numcodecs codecs")
def test_broken_values_raise(
    ucx_store: UcxStore, backdoor: Backdoor, prefix: str, codec: str, selection: Any
) -> None:
    encode, chosen = STRAIGHT[codec]
    array = made(ucx_store, compressors=chosen)
    for what, value in broken(encode):
        if what == "in the middle" and codec != "zstd":
            continue  # which neither of them has a checksum for
        backdoor.set(f"{prefix}/a/c/1/0", value)
        with pytest.raises((RuntimeError, ValueError)) as caught:
            array[selection]
        assert "a/c/1/0" in caught.value.__notes__[0], what
    assert access_to(ucx_store).budget.in_use == 0
    np.testing.assert_array_equal(array[500:], DATA[500:])


@pytest.mark.filterwarnings("ignore:Numcodecs codecs")
def test_a_blosc_value_is_not_read_beyond_its_end(
    ucx_store: UcxStore, backdoor: Backdoor, prefix: str
) -> None:
    """numcodecs would: it believes the header."""
    for number, options in enumerate(
        [
            {"compressors": BloscCodec()},
            {"compressors": [wrapped.Shuffle(elementsize=4), BloscCodec()]},
            {"zarr_format": 2, "compressors": numcodecs.Blosc()},
            {"zarr_format": 2, "compressors": numcodecs.Blosc(), "filters": [numcodecs.Shuffle(4)]},
        ]
    ):
        array = made(ucx_store, name=f"b{number}", **options)
        key = f"{prefix}/b{number}/" + ("1.0" if array.metadata.zarr_format == 2 else "c/1/0")
        value = bytearray(backdoor.get(key) or b"")
        struct.pack_into("<I", value, 12, len(value) + 1)
        backdoor.set(key, bytes(value))
        with pytest.raises(RuntimeError, match="cut off after"):
            array[:]


@pytest.mark.parametrize("place", [100, -1])
def test_crc32c_is_checked(
    ucx_store: UcxStore, backdoor: Backdoor, prefix: str, place: int
) -> None:
    array = made(ucx_store, compressors=[ZstdCodec(), Crc32cCodec()])
    value = bytearray(backdoor.get(f"{prefix}/a/c/2/0") or b"")
    value[place] ^= 1
    backdoor.set(f"{prefix}/a/c/2/0", bytes(value))
    with pytest.raises(ValueError, match="checksum do not match"):
        array[:]
    np.testing.assert_array_equal(array[:500], DATA[:500])


# ---- the budget ----


@pytest.fixture
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_plan, "GROUP_BYTES", 1)


@pytest.mark.parametrize("budget", [1, 3 * SLAB, 1 << 28])
@pytest.mark.usefixtures("small_groups")
def test_the_budget_holds(
    ucx_store: UcxStore, monkeypatch: pytest.MonkeyPatch, budget: int
) -> None:
    """At every call, count the bytes that are requested or received, and not yet decoded."""
    made(ucx_store, compressors=BloscCodec(cname="lz4", clevel=0))
    store = UcxStore(ucx_store.address, buffer_budget=budget)
    array = zarr.open_array(store, path="a", mode="r")
    lock = threading.Lock()
    flying: dict[str, int] = {}
    peaks: list[tuple[int, int]] = []
    request = Decoding._request

    def counting_request(self: Any, group: Any) -> Any:
        with lock:
            for key, wanted in zip(group.keys, group.ranges, strict=True):
                flying[key] = wanted[0][2]
            peaks.append((sum(flying.values()), len(flying)))
        return request(self, group)

    def counting(decode: Any) -> Any:
        def counted(self: Any, data: Any, position: int, whole: bool) -> bool:
            try:
                return decode(self, data, position, whole)
            finally:
                with lock:
                    del flying[self._batch.key(position)]

        return counted

    monkeypatch.setattr(Decoding, "_request", counting_request)
    wrap_decoding(monkeypatch, counting)
    np.testing.assert_array_equal(array[:], DATA)
    most, chunks = max(peaks)
    assert not flying
    assert most <= budget or chunks == 1  # a chunk larger than the budget is read by itself
    assert chunks == {1: 1, 3 * SLAB: 2}.get(budget, chunks)
    assert access_to(store).budget.in_use == 0


@pytest.mark.usefixtures("small_groups")
def test_reads_at_the_same_time_share_the_budget(ucx_store: UcxStore) -> None:
    made(ucx_store)
    store = UcxStore(ucx_store.address, buffer_budget=SLAB)
    arrays = [zarr.open_array(store.with_read_only(), path="a", mode="r") for _ in range(3)]
    results: list[Any] = []

    def read(array: zarr.Array) -> None:
        found = [asyncio.run(array.async_array.getitem(np.s_[:])) for _ in range(5)]
        results.extend(np.array_equal(one, DATA) for one in found)

    threads = [threading.Thread(target=read, args=(array,)) for array in arrays]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 15
    assert access_to(store).budget.in_use == 0


def test_the_option(address: str) -> None:
    store = UcxStore(address, buffer_budget=1000)
    assert access_to(store).budget.total == 1000
    assert access_to(pickle.loads(pickle.dumps(store))).budget.total == 1000
    assert access_to(store.with_read_only()).budget is access_to(store).budget
    for wrong, error in ((0, ValueError), (True, TypeError), (1.5, TypeError)):
        with pytest.raises(error, match=r"^buffer_budget:"):
            UcxStore(address, buffer_budget=wrong)


# ---- no writer is left behind ----


class Gate:
    """Holds decoders up, in the middle of a chunk, until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.entered = threading.Event()
        self.opened = threading.Event()
        self.inside = 0
        decompress, unwrap = Chain.decompress, Chain.unwrap

        def gated(chain: Chain, source: Any, values: Any) -> None:
            self.inside += 1
            self.entered.set()
            assert self.opened.wait(30)
            try:
                decompress(chain, source, values)
            finally:
                self.inside -= 1

        def late(chain: Chain, data: Any, spec: Any) -> Any:
            """Let broken values fail only once a sound one is being decoded."""
            found = unwrap(chain, data, spec)
            assert found[1] is not None or self.entered.wait(30)
            return found

        monkeypatch.setattr(Chain, "decompress", gated)
        monkeypatch.setattr(Chain, "unwrap", late)


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.usefixtures("small_groups")
async def test_a_cancelled_read_waits_for_its_threads(
    ucx_store: UcxStore, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    array = await asyncio.to_thread(made, ucx_store)
    gate = Gate(monkeypatch)
    out = np.zeros(DATA.shape, "f4")
    # One thread, so that some groups have not begun when it is cancelled, on any machine.
    with zarr.config.set({"threading.max_workers": 1}):
        read = asyncio.ensure_future(read_into(array, out))
        assert await asyncio.to_thread(gate.entered.wait, 30)
    for _ in range(times):
        read.cancel()
        await nothing_happens_async(0.02)
    assert not read.done()  # its thread is about to write
    gate.opened.set()
    with pytest.raises(asyncio.CancelledError):
        await read
    assert gate.inside == 0
    assert not (out == DATA).all()
    out[:] = -1
    await asyncio.to_thread(lambda: None)
    assert access_to(ucx_store).budget.in_use == 0
    assert (out == -1).all()
    monkeypatch.undo()
    np.testing.assert_array_equal(await array.async_array.getitem(...), DATA)


@pytest.mark.usefixtures("small_groups")
async def test_the_loop_runs_on_while_threads_decode(
    ucx_store: UcxStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = await asyncio.to_thread(made, ucx_store)
    gate = Gate(monkeypatch)
    read = asyncio.ensure_future(array.async_array.getitem(...))
    assert await asyncio.to_thread(gate.entered.wait, 30)
    assert await ucx_store.exists("a/zarr.json")
    assert not read.done()
    gate.opened.set()
    np.testing.assert_array_equal(await read, DATA)


@pytest.mark.usefixtures("small_groups")
async def test_a_failed_read_waits_for_its_other_threads(
    ucx_store: UcxStore, backdoor: Backdoor, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = await asyncio.to_thread(made, ucx_store)
    backdoor.set(f"{prefix}/a/c/1/0", b"no zstd frame")  # which does not get to the gate
    with zarr.config.set({"threading.max_workers": 3}):
        gate = Gate(monkeypatch)
        read = asyncio.ensure_future(array.async_array.getitem(...))
        assert await asyncio.to_thread(gate.entered.wait, 30)
        await nothing_happens_async(0.05)
        assert not read.done()
        gate.opened.set()
        with pytest.raises(RuntimeError, match="invalid input data"):
            await read
    assert gate.inside == 0
    assert access_to(ucx_store).budget.in_use == 0


async def test_a_failure_keeps_no_memory(
    ucx_store: UcxStore, backdoor: Backdoor, prefix: str
) -> None:
    array = await asyncio.to_thread(made, ucx_store)
    backdoor.set(f"{prefix}/a/c/1/0", b"no zstd frame")
    out = np.zeros(DATA.shape, "f4")
    gone = weakref.ref(out)
    gc.collect()
    gc.disable()
    try:
        message = ""
        try:
            await read_into(array, out)
        except RuntimeError as error:
            message = str(error)
        assert "invalid input data" in message
        del out
        await asyncio.to_thread(eventually, lambda: gone() is None, 5)
    finally:
        gc.enable()


def test_the_number_of_threads(ucx_store: UcxStore) -> None:
    array = made(ucx_store)
    with zarr.config.set({"threading.max_workers": 1}):
        np.testing.assert_array_equal(array[:], DATA)
        assert codec_threads()[1] == 1
    assert codec_threads()[1] >= 1
    assert sync(array.store.exists("a/zarr.json"))


def test_memory_is_bounded(memory_server: Server, prefix: str) -> None:
    """The bound: the budget, a scratch chunk for each thread, and what threads need themselves."""
    # In memory, as the server is in this process: a directory's mapped files would count, too.
    address = f"{memory_server.address}/{prefix}"
    noise = np.random.default_rng(0).random((2000, 2000), "f4")
    array = zarr.create_array(
        UcxStore(address), name="n", shape=noise.shape, chunks=(200, 200), dtype="f4"
    )
    array[:] = noise
    store = UcxStore(address, buffer_budget=1 << 20, strict=True)
    array = zarr.open_array(store, path="n", mode="r")
    with zarr.config.set({"threading.max_workers": 2}):
        array[:200]  # starts threads
        counts = count_copies(lambda: array[:], array.nbytes)
    chunk = 4 * 200 * 200
    arena = 1 << 20  # by which Python's own heap grows, if it happens to meanwhile
    allowed = (1 << 20) + 2 * chunk + (512 << 10) + arena
    assert counts.peak_extra * array.nbytes < allowed, counts.culprits
    np.testing.assert_array_equal(array[:], noise)
