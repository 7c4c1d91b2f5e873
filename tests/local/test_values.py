"""Values, arrays and requests over the local plane, against numpy and against what was written."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import zarr
from zarr.abc.store import OffsetByteRequest, RangeByteRequest, SuffixByteRequest
from zarr.codecs import ZstdCodec
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync

from tests.eventually import loop_turns
from tests.fixtures import every_storage as every_storage
from tests.values import as_buffer, keys_of, noise, read
from ucxstore import ReadOnlyServerError, ScratchEndedError, UcxStore
from ucxstore.base.errors import StorageError
from ucxstore.pipeline.access import access_to
from ucxstore.server import Server

PROTOTYPE = default_buffer_prototype()

# Below and above what comes with its message, what a segment has, and what a value's page has.
SIZES = (0, 1, 4095, 4096, 16_384, 16_385, 1 << 20, (2 << 20) - 1, 2 << 20, (2 << 20) + 1)


@pytest.fixture
def store(ucx_store: UcxStore) -> Iterator[UcxStore]:
    ucx_store.get_sync("nothing")
    assert ucx_store.stats()["lanes"] == ["local"]
    yield ucx_store
    assert ucx_store.stats()["lanes"] == ["local"]


# ---- values ----


@pytest.mark.parametrize("size", [*SIZES, 40_000_003])
def test_of_every_size(store: UcxStore, size: int) -> None:
    assert read(store, "c/0") is None
    for seed in range(3):
        value = noise(size, seed)
        store.set_sync("c/0", as_buffer(value))
        assert read(store, "c/0") == value
        out = np.full(size + 1, 7, "u1")
        assert store.get_into_sync("c/0", out[:size]) == size
        assert out[:size].tobytes() == value
        assert out[size] == 7
    assert sync(store.getsize("c/0")) == size
    store.delete_sync("c/0")
    assert read(store, "c/0") is None


def test_parts_of_them(store: UcxStore) -> None:
    value = noise(3_000_000)
    store.set_sync("c/0", as_buffer(value))
    requests = [
        (RangeByteRequest(10, 20), value[10:20]),
        (RangeByteRequest(0, 2_500_000), value[:2_500_000]),
        (RangeByteRequest(5, 5), b""),
        (OffsetByteRequest(2_999_999), value[-1:]),
        (SuffixByteRequest(1_000_001), value[-1_000_001:]),
    ]
    for request, expected in requests:
        found = store.get_sync("c/0", prototype=PROTOTYPE, byte_range=request)
        assert found is not None
        assert found.to_bytes() == expected


def test_set_if_not_exists(store: UcxStore) -> None:
    sync(store.set_if_not_exists("c/0", as_buffer(b"first")))
    sync(store.set_if_not_exists("c/0", as_buffer(noise(100_000))))
    assert read(store, "c/0") == b"first"


def test_replaced_many_times(store: UcxStore) -> None:
    """Each new value is another region: readers see one of them, whole."""
    sizes = [100, 100_000, 3_000_000]
    failures: list[object] = []
    done = threading.Event()
    store.set_sync("c/0", as_buffer(bytes([0]) * 100))

    def look() -> None:
        while not done.is_set():
            value = read(store, "c/0")
            if value is None or value != value[:1] * sizes[value[0] % 3]:
                failures.append(None if value is None else (len(value), set(value)))
                return

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for number in range(100):
        store.set_sync("c/0", as_buffer(bytes([number]) * sizes[number % 3]))
    done.set()
    for thread in threads:
        thread.join(60)
    assert not failures


def test_removed_and_written_while_they_are_read(store: UcxStore) -> None:
    value = noise(300_000)
    done = threading.Event()
    failures: list[object] = []

    def look() -> None:
        while not done.is_set():
            found = read(store, "c/0")
            if found not in (None, value):
                failures.append(found)
                return

    threads = [threading.Thread(target=look) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(100):
        store.set_sync("c/0", as_buffer(value))
        store.delete_sync("c/0")
    done.set()
    for thread in threads:
        thread.join(60)
    assert not failures


def test_a_value_that_is_held_does_not_change(store: UcxStore) -> None:
    first = noise(3_000_000, 1)
    store.set_sync("c/0", as_buffer(first))
    held = store.get_sync("c/0")
    assert held is not None
    for seed in range(2, 6):
        store.set_sync("c/0", as_buffer(noise(3_000_000, seed)))
    store.delete_sync("c/0")
    store.set_sync("c/1", as_buffer(noise(3_000_000, 9)))
    assert held.to_bytes() == first


# ---- arrays ----

CODECS: dict[str, dict[str, Any]] = {
    "raw": {"compressors": None},
    "zstd": {"compressors": ZstdCodec()},
    "sharded": {"compressors": None, "shards": (40, 60)},
    "sharded zstd": {"compressors": ZstdCodec(), "shards": (40, 60)},
}

SELECTIONS = [
    ...,
    (slice(3, 90), slice(17, 18)),
    (slice(None, None, 7), slice(5, None, 11)),
    (5, slice(None)),
    (slice(None), -1),
    (slice(10, 10), slice(None)),
    (99, 119),
]


@pytest.mark.parametrize("codecs", CODECS)
@pytest.mark.parametrize("dtype", ["u1", "<f8", ">i4"])
def test_arrays(store: UcxStore, codecs: str, dtype: str) -> None:
    rng = np.random.default_rng(5)
    model = rng.integers(0, 100, (100, 120)).astype(dtype)
    z = zarr.create_array(
        store, name="a", shape=(100, 120), chunks=(20, 30), dtype=dtype, **CODECS[codecs]
    )
    z[...] = model
    for selection in SELECTIONS:
        np.testing.assert_array_equal(z[selection], model[selection])
    rows, columns = [1, 5, 50, 99], [0, 31, 119]
    np.testing.assert_array_equal(z.oindex[rows, columns], model[np.ix_(rows, columns)])
    np.testing.assert_array_equal(z.vindex[rows, rows], model[rows, rows])
    mask = model % 3 == 0
    np.testing.assert_array_equal(z.vindex[mask], model[mask])
    # Parts of chunks are written, and read by an array that was opened anew.
    for selection in SELECTIONS[1:]:
        change = rng.integers(0, 100, model[selection].shape).astype(dtype)
        z[selection] = change
        model[selection] = change
    z.oindex[rows, columns] = 7
    model[np.ix_(rows, columns)] = 7
    np.testing.assert_array_equal(zarr.open_array(store, path="a")[...], model)
    z.resize((50, 60))
    np.testing.assert_array_equal(z[...], model[:50, :60])


def test_large_chunks(store: UcxStore) -> None:
    model = np.arange(12_000_000, dtype="<i4").reshape(3000, 4000)
    z = zarr.create_array(store, name="a", data=model, chunks=(1500, 4000), compressors=None)
    np.testing.assert_array_equal(z[...], model)
    np.testing.assert_array_equal(z[::3, 5::7], model[::3, 5::7])
    z[100:2000, 1:3999] = -1
    model[100:2000, 1:3999] = -1
    np.testing.assert_array_equal(z[...], model)


# ---- many at once ----


def test_many_threads(store: UcxStore) -> None:
    values = [noise(size, seed) for seed in range(4) for size in (10, 20_000, 500_000)]

    def work(number: int) -> None:
        for turn, value in enumerate(values):
            key = f"c/{number}/{turn}"
            store.set_sync(key, as_buffer(value))
            assert read(store, key) == value
            assert read(store, f"c/{number}/none") is None

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(work, range(32)))
    assert len([*sync(keys_of(store, "c/"))]) == 32 * len(values)


def test_event_loops(store: UcxStore) -> None:
    value = noise(200_000)

    async def work() -> None:
        async def one(number: int) -> None:
            key = f"c/{threading.get_ident()}/{number}"
            await store.set(key, as_buffer(value))
            found = await store.get(key, PROTOTYPE)
            assert found is not None
            assert found.to_bytes() == value

        await asyncio.gather(*(one(number) for number in range(50)))

    threads = [threading.Thread(target=asyncio.run, args=(work(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(sync(keys_of(store, "c/"))) == 200


def test_requests_that_are_cancelled(store: UcxStore) -> None:
    value = noise(5_000_000)
    store.set_sync("c/0", as_buffer(value))

    async def work() -> None:
        for pause in range(30):
            tasks = [
                asyncio.ensure_future(store.get("c/0", PROTOTYPE)),
                asyncio.ensure_future(store.set("c/1", as_buffer(value))),
            ]
            await loop_turns(pause)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(work())
    assert read(store, "c/0") == value
    assert read(store, "c/1") in (None, value)


# ---- servers ----


def test_a_read_only_server(tmp_path: Any) -> None:
    (tmp_path / "k").write_bytes(b"value")
    with (
        Server(tmp_path, local=True, read_only=True) as server,
        UcxStore(server.address) as store,
    ):
        assert read(store, "k") == b"value"
        assert store.stats()["lanes"] == ["local"]
        for value in (b"", noise(100), noise(5_000_000)):
            with pytest.raises(ReadOnlyServerError):
                store.set_sync("k", as_buffer(value))
        with pytest.raises(ReadOnlyServerError):
            store.delete_sync("k")
        assert read(store, "k") == b"value"


def test_scratch_space(memory_server: Server, prefix: str) -> None:
    with UcxStore(f"{memory_server.address}/{prefix}") as owner:
        with owner.scratch_sync("10MB") as scratch:
            store = scratch.store()
            value = noise(3_000_000)
            store.set_sync("c/0", as_buffer(value))
            store.set_sync("c/1", as_buffer(b"small"))
            assert read(store, "c/0") == value
            assert read(store, "c/1") == b"small"
            assert store.stats()["lanes"] == ["local"]
            with pytest.raises(StorageError):
                store.set_sync("c/2", as_buffer(noise(8_000_000)))
            assert read(store, "c/0") == value
        with pytest.raises(ScratchEndedError):
            store.get_sync("c/0")
        with pytest.raises(ScratchEndedError):
            store.set_sync("c/0", as_buffer(b"small"))


def test_values_are_counted(memory_server: Server, prefix: str) -> None:
    with UcxStore(f"{memory_server.address}/{prefix}") as store:
        before = memory_server.stats()
        for number in range(10):
            store.set_sync(f"c/{number}", as_buffer(noise(1000)))
        after = memory_server.stats()
        assert after["sets"] == before["sets"] + 10
        assert after["bytes_received"] == before["bytes_received"] + 10_000
        assert store.stats()["bytes_written"] == 10_000
        for number in range(10):
            read(store, f"c/{number}")
        assert store.stats()["bytes_read"] == 10_000


def test_small_values_take_no_request(memory_server: Server, prefix: str) -> None:
    with UcxStore(f"{memory_server.address}/{prefix}") as store:
        for size in (0, 1, 4096, 65_535):
            store.set_sync(f"c/{size}", as_buffer(noise(size, size)))
            read(store, f"c/{size}")  # the server shows it from now on
        channel = access_to(store).channel
        seen = {size: channel.see_value(f"{prefix}/c/{size}") for size in (0, 1, 4096, 65_535)}
        assert seen == {size: noise(size, size) for size in seen}
        before = store.stats()
        value = store.get_sync("c/4096")
        assert value is not None
        assert value.to_bytes() == noise(4096, 4096)
        value.as_numpy_array()[:] = 0  # it is the caller's own
        assert sync(store.get("c/4096")).to_bytes() == noise(4096, 4096)
        after = store.stats()
        assert after["bytes_read"] == before["bytes_read"] + 2 * 4096
        assert channel.see_value(f"{prefix}/missing") is None
        store.set_sync("c/large", as_buffer(noise(65_536)))
        read(store, "c/large")
        assert channel.see_value(f"{prefix}/c/large") is None
        store.set_sync("c/1", as_buffer(b"2"))
        assert read(store, "c/1") == b"2"
        store.delete_sync("c/1")
        assert store.get_sync("c/1") is None
    assert channel.see_value(f"{prefix}/c/4096") is None
