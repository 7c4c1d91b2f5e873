"""Values that are viewed where they lie: not copied, not to be written to, and never changed."""

import asyncio
import contextlib
import gc
import os
import pickle
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from zarr.codecs import BytesCodec, ZstdCodec
from zarr.core.sync import sync
from zarr.storage import MemoryStore

from tests.adversity.scripts import Script
from tests.adversity.transfers import filled
from tests.conftest import address_of
from tests.eventually import eventually
from tests.local.shown import held, make, viewed, waiting
from tests.values import as_buffer, noise
from ucxstore import ChunkSizeError, NotMappedError, ServerRestartedError, UcxStore
from ucxstore.server import Server

SIZES = [0, 1, 4095, 4096, 16_385, 1 << 20, (2 << 20) + 1, 40_000_003]


# ---- values ----


@pytest.mark.parametrize("size", SIZES)
def test_of_every_size(store: UcxStore, size: int) -> None:
    for seed in range(3):
        value = noise(size, seed)
        store.set_sync("c/0", as_buffer(value))
        before = store.stats()
        with viewed(store, "c/0") as view:
            array = view.array
            assert array.dtype == np.uint8
            assert array.shape == (size,)
            assert array.tobytes() == value
        after = store.stats()
        assert after["mapped"] - before["mapped"] == 1
        assert after["bytes_read"] - before["bytes_read"] == size
        assert after["staged_bytes"] == before["staged_bytes"]


async def test_the_asynchronous_twin(memory_server: Server, prefix: str) -> None:
    store = UcxStore(f"{memory_server.address}/{prefix}")
    assert await store.view("c/0") is None
    await store.set("c/0", as_buffer(noise(100_000)))
    for mapping in (True, "auto", True):
        view = await store.view("c/0", map=mapping)
        assert view is not None
        assert view.mapped
        assert view.array.tobytes() == noise(100_000)
    array = await zarr.api.asynchronous.create_array(
        store, name="a", data=np.arange(600.0).reshape(20, 30), chunks=(10, 30), compressors=None
    )
    part = await store.view_array(array, (slice(3, 9, 2), 4), map=True)
    assert part.mapped
    np.testing.assert_array_equal(part.array, np.arange(600.0).reshape(20, 30)[3:9:2, 4])


def test_a_missing_value(store: UcxStore) -> None:
    for mapping in (True, False, "auto"):
        assert store.view_sync("c/0", map=mapping) is None
    store.set_sync("c/0", as_buffer(b"value"))
    viewed(store, "c/0")
    store.delete_sync("c/0")
    assert store.view_sync("c/0") is None


def test_the_first_one_asks_and_the_next_do_not(own_store: UcxStore) -> None:
    own_store.set_sync("c/0", as_buffer(noise(1000)))
    viewed(own_store, "c/0")
    asked = sync(own_store.server_stats())["gets"]
    for _ in range(10):
        viewed(own_store, "c/0")
    assert sync(own_store.server_stats())["gets"] == asked


def test_nothing_is_written_through_it(store: UcxStore) -> None:
    store.set_sync("c/0", as_buffer(noise(100_000)))
    view = viewed(store, "c/0")
    array = view.array
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        array.flags.writeable = True
    with pytest.raises(ValueError, match="WRITEABLE"):
        array[10:20].flags.writeable = True
    assert memoryview(view).readonly
    with pytest.raises(TypeError):
        memoryview(view)[0] = 1
    assert not np.asarray(view).flags.writeable
    with pytest.raises(TypeError, match="read-only"):
        store.get_into_sync("c/0", view)
    assert array.tobytes() == noise(100_000)


def test_whatever_takes_arrays_takes_a_view(store: UcxStore) -> None:
    value = noise(100_000)
    store.set_sync("c/0", as_buffer(value))
    view = viewed(store, "c/0")
    address = view.array.__array_interface__["data"][0]
    others = [np.asarray(view), np.frombuffer(view, "u1"), np.asarray(memoryview(view))]
    others.append(np.from_dlpack(view))
    for other in others:
        assert other.__array_interface__["data"][0] == address
        assert other.tobytes() == value
        assert not other.flags.writeable
    assert len(view) == 100_000
    assert "mapped" in repr(view)
    store.set_sync("c/1", as_buffer(view))
    assert viewed(store, "c/1").array.tobytes() == value
    copy = np.array(view)
    copy[0] ^= 1
    with pytest.raises(TypeError, match="copy"):
        pickle.dumps(view)


def test_a_view_is_used_as_its_array(store: UcxStore) -> None:
    x = np.arange(24.0).reshape(4, 6)
    z = zarr.create_array(store, data=x, chunks=x.shape, compressors=None, overwrite=True)
    view = store.view_array_sync(z, (slice(None, None, 2), 3))
    expected = x[::2, 3]
    assert (view.shape, view.dtype, view.strides) == (expected.shape, expected.dtype, (96,))
    assert not view.flags.writeable
    assert view.sum() == expected.sum()
    assert view[1] == expected[1]
    assert list(view) == list(expected)
    np.testing.assert_array_equal(view + 1, expected + 1)
    np.testing.assert_array_equal(2 * view == view + view, True)
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 1
    with pytest.raises(ValueError, match="read-only"):
        view += 1


def test_what_is_made_of_a_view_outlives_it(own_store: UcxStore) -> None:
    """Closing a view never lets memory be used again that somebody may still look at."""
    value = noise(3_000_000)
    makers = [
        lambda view: view.array,
        np.asarray,
        memoryview,
        np.from_dlpack,
        lambda view: view.array[5:10][::-1],
    ]
    for one in makers:
        own_store.set_sync("c/0", as_buffer(value))
        with viewed(own_store, "c/0") as view:
            made = one(view)
            expected = bytes(made)
        with pytest.raises(ValueError, match="closed"):
            _ = view.array
        for seed in range(1, 4):
            own_store.set_sync("c/0", as_buffer(noise(3_000_000, seed)))
        assert bytes(made) == expected
        assert waiting(own_store) > 0
        del made
        eventually(lambda: waiting(own_store) == 0)


def test_whoever_was_told_the_address_can_use_it_while_the_view_is_there(
    own_store: UcxStore,
) -> None:
    own_store.set_sync("c/0", as_buffer(noise(3_000_000)))
    view = viewed(own_store, "c/0")
    interface = view.__array_interface__
    view.close()
    assert view.closed
    own_store.set_sync("c/0", as_buffer(noise(3_000_000, 1)))

    class Holder:
        __array_interface__ = interface

    assert np.asarray(Holder()).tobytes() == noise(3_000_000)
    assert waiting(own_store) > 0
    del view
    eventually(lambda: waiting(own_store) == 0)


# ---- how long it stays ----


def test_it_stays_when_the_value_is_replaced(own_store: UcxStore) -> None:
    value = noise(3_000_000)
    own_store.set_sync("c/0", as_buffer(value))
    view = viewed(own_store, "c/0")
    for seed in range(1, 40):
        own_store.set_sync("c/0", as_buffer(noise(3_000_000, seed)))
        if seed % 10 == 0:
            assert viewed(own_store, "c/0").array.tobytes() == noise(3_000_000, seed)
    own_store.delete_sync("c/0")
    assert view.array.tobytes() == value
    assert waiting(own_store) >= 3_000_000
    view.close()
    gc.collect()
    eventually(lambda: waiting(own_store) == 0)


def test_it_stays_when_the_store_is_closed(own_server: Server) -> None:
    value = noise(3_000_000)
    with UcxStore(own_server.address) as store:
        store.set_sync("c/0", as_buffer(value))
        view = viewed(store, "c/0")
    del store
    gc.collect()
    eventually(lambda: own_server.sessions == 0)
    with UcxStore(own_server.address) as other:
        for seed in range(1, 40):
            other.set_sync("c/0", as_buffer(noise(3_000_000, seed)))
        assert view.array.tobytes() == value
        assert waiting(other) >= 3_000_000
        view.close()
        eventually(lambda: waiting(other) == 0)


def test_it_stays_when_the_server_closes() -> None:
    value = noise(3_000_000)
    server = Server("memory://", local=True)
    with UcxStore(server.address) as store:
        store.set_sync("c/0", as_buffer(value))
        view = viewed(store, "c/0")
        server.close()
        del server
        gc.collect()
        with Server("memory://", local=True) as other, UcxStore(other.address) as its:
            for seed in range(1, 20):
                its.set_sync("c/0", as_buffer(noise(3_000_000, seed)))
            assert view.array.tobytes() == value


def test_it_stays_when_the_server_is_killed_and_starts_again() -> None:
    value = noise(3_000_000)
    with Server.spawn("memory://", local=True) as server, UcxStore(server.address) as store:
        store.set_sync("c/0", as_buffer(value))
        view = viewed(store, "c/0")
        os.kill(server.pid, signal.SIGKILL)
        eventually(lambda: not store.stats()["lanes"])
        assert view.array.tobytes() == value
        place = server.address.removeprefix("ucx://")
        with Server.spawn("memory://", place, local=True):
            with pytest.raises(ServerRestartedError):
                store.view_sync("c/0")
            store.accept_restarted_sync()
            assert store.view_sync("c/0") is None
            store.set_sync("c/0", as_buffer(noise(3_000_000, 1)))
            assert viewed(store, "c/0").array.tobytes() == noise(3_000_000, 1)
            assert view.array.tobytes() == value


def test_threads_see_whole_values(own_store: UcxStore) -> None:
    sizes = [100, 100_000, 3_000_000]
    failures: list[object] = []
    done = threading.Event()
    own_store.set_sync("c/0", as_buffer(bytes(100)))

    def look() -> None:
        kept: list[tuple[Any, int]] = []
        while not done.is_set():
            view = own_store.view_sync("c/0")
            assert view is not None
            with view:
                array = view.array
                first = int(array[0])
                kept.append((array, first))
                for one, byte in kept:
                    if len(one) != sizes[byte % 3] or one.min() != byte or one.max() != byte:
                        failures.append((len(one), byte))
                        return
                del kept[:-3], array, one

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for number in range(100):
        own_store.set_sync("c/0", as_buffer(bytes([number]) * sizes[number % 3]))
    done.set()
    for thread in threads:
        thread.join(60)
    assert not failures
    own_store.delete_sync("c/0")
    eventually(lambda: waiting(own_store) == 0)


def test_more_views_than_a_process_can_pin(own_store: UcxStore) -> None:
    own_store.set_sync("c/0", as_buffer(noise(1000)))
    views = [own_store.view_sync("c/0") for _ in range(5000)]
    assert views[0] is not None
    assert views[0].mapped
    assert views[-1] is not None
    assert not views[-1].mapped
    assert all(view is not None and view.array.tobytes() == noise(1000) for view in views)
    with pytest.raises(NotMappedError, match="c/0"):
        own_store.view_sync("c/0", map=True)
    out = np.empty(1000, "u1")
    assert own_store.get_into_sync("c/0", out) == 1000
    assert out.tobytes() == noise(1000)
    views.clear()
    assert viewed(own_store, "c/0").mapped


# ---- how much ----


def test_what_may_be_held() -> None:
    with Server("memory://", local=True, mapped_limit=10_000_000) as server:
        store = UcxStore(server.address)
        for number in range(4):
            store.set_sync(f"c/{number}", as_buffer(noise(4_000_000, number)))
        for _ in range(20):  # what is let go of can be had again at once
            with viewed(store, "c/0") as first, viewed(store, "c/1") as second:
                with pytest.raises(NotMappedError, match="c/2"):
                    store.view_sync("c/2", map=True)
                copied = store.view_sync("c/2")
                assert copied is not None
                assert not copied.mapped
                assert copied.array.tobytes() == noise(4_000_000, 2)
                # The same value counts once.
                assert viewed(store, "c/1").array.tobytes() == second.array.tobytes()
                assert first.array.tobytes() == noise(4_000_000)
        eventually(lambda: held(store) == 0)


def test_what_several_may_hold_together() -> None:
    code = """
views = [store.view_sync(f"c/{number}", map=True) for number in range(2)]
print("has them", flush=True)
sys.stdin.readline()
"""
    with Server("memory://", local=True, mapped_limit=10_000_000) as server:
        store = UcxStore(server.address)
        for number in range(4):
            store.set_sync(f"c/{number}", as_buffer(noise(4_000_000, number)))
        store.get_sync("c/0")
        with Script(server.address, {}, code) as script:
            assert script.line() == "has them"
            eventually(lambda: held(store) >= 8_000_000)
            with pytest.raises(NotMappedError):
                store.view_sync("c/2", map=True)
            script.kill()
        eventually(lambda: held(store) == 0)
        with viewed(store, "c/2"), viewed(store, "c/3"):
            eventually(lambda: held(store) >= 8_000_000)


def test_nothing_may_be_held() -> None:
    with Server("memory://", local=True, mapped_limit=0) as server:
        store = UcxStore(server.address)
        store.set_sync("c/0", as_buffer(noise(100_000)))
        view = store.view_sync("c/0")
        assert view is not None
        assert not view.mapped
        assert view.array.tobytes() == noise(100_000)


def test_memory_is_looked_for_when_much_was_let_go(own_store: UcxStore) -> None:
    own_store.set_sync("c/0", as_buffer(noise(40_000_000)))
    view = viewed(own_store, "c/0")
    own_store.delete_sync("c/0")
    assert view.array.tobytes() == noise(40_000_000)
    view.close()
    own_store.set_sync("c/1", as_buffer(b"anything, after which the server has been told"))
    eventually(lambda: waiting(own_store) == 0)


# ---- where it cannot be mapped ----


def beyond_a_cache() -> Server:
    return Server(MemoryStore(), local=True, cache=50_000)


@pytest.mark.parametrize("kind", ["a directory", "more than a cache has room for"])
def test_what_is_not_shown(kind: str, tmp_path: Path) -> None:
    in_directory = kind == "a directory"
    with (
        Server(tmp_path, local=True) if in_directory else beyond_a_cache() as server,
        UcxStore(server.address) as store,
    ):
        store.set_sync("c/0", as_buffer(noise(100_000)))
        with pytest.raises(NotMappedError, match="c/0"):
            store.view_sync("c/0", map=True)
        for mapping in (False, "auto"):
            view = store.view_sync("c/0", map=mapping)
            assert view is not None
            assert not view.mapped
            assert view.array.tobytes() == noise(100_000)
            assert not view.array.flags.writeable


def test_over_ucx(memory_server: Server, prefix: str) -> None:
    with UcxStore(f"{memory_server.address}/{prefix}", local="ucx") as store:
        store.set_sync("c/0", as_buffer(noise(100_000)))
        with pytest.raises(NotMappedError, match="UCX"):
            store.view_sync("c/0", map=True)
        view = store.view_sync("c/0")
        assert view is not None
        assert not view.mapped
        assert view.array.tobytes() == noise(100_000)


def test_copied_because_it_is_wanted(store: UcxStore) -> None:
    store.set_sync("c/0", as_buffer(noise(100_000)))
    view = store.view_sync("c/0", map=False)
    assert view is not None
    assert not view.mapped
    assert "copied" in repr(view)
    assert view.array.tobytes() == noise(100_000)
    with pytest.raises(ValueError, match="map"):
        store.view_sync("c/0", map="yes")


def test_several_servers(three_servers: list[Server], prefix: str) -> None:
    with UcxStore(address_of(three_servers, prefix)) as store:
        for number in range(12):
            store.set_sync(f"c/{number}", as_buffer(noise(1000, number)))
        for number in range(12):
            assert viewed(store, f"c/{number}").array.tobytes() == noise(1000, number)
        x = np.arange(600.0).reshape(20, 30)
        z = zarr.create_array(store, name="a", data=x, chunks=(5, 30), compressors=None)
        for row in range(20):
            part = store.view_array_sync(z, row, map=True)
            np.testing.assert_array_equal(part.array, x[row])


# ---- arrays ----


@pytest.mark.filterwarnings("ignore")  # zarr's, of dtypes that may still change
@pytest.mark.parametrize("dtype", ["u1", "i2", "f4", "c16", "?", "M8[s]", "S5", ">f4", ">i8"])
@pytest.mark.parametrize("options", [{}, {"zarr_format": 2}, {"zarr_format": 2, "order": "F"}])
def test_of_every_dtype(store: UcxStore, dtype: str, options: dict[str, Any]) -> None:
    x = np.arange(12 * 7 * 4).reshape(12, 7, 4).astype(dtype)
    z = make(store, x if options else x.astype(x.dtype.newbyteorder("<")), (6, 7, 4), **options)
    for selection in (
        slice(6, 12),
        (slice(1, 5, 2), slice(None), 3),
        (2, 1, 3),
        (slice(0, 6), 4),
        (..., slice(6), slice(1, 2), slice(None)),
    ):
        part = store.view_array_sync(z, selection, map=True)
        assert part.mapped
        assert part.array.dtype == z.dtype
        assert part.array.shape == x[selection].shape
        np.testing.assert_array_equal(part.array, x[selection])
        assert not part.array.flags.writeable


@given(data=st.data())
def test_any_selection_in_a_chunk(memory_server: Server, data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=3))
    chunks = tuple(data.draw(st.integers(1, length)) for length in shape)
    x = np.arange(1, np.prod(shape) + 1, dtype="i4").reshape(shape)  # no fill values
    store = UcxStore(f"{memory_server.address}/any")
    z = make(store, x, chunks, order=data.draw(st.sampled_from("CF")), zarr_format=2)
    selection = tuple(
        data.draw(
            st.one_of(
                st.integers(-length, length - 1),
                st.builds(
                    slice,
                    st.none() | st.integers(-length - 2, length + 2),
                    st.none() | st.integers(-length - 2, length + 2),
                    st.none() | st.integers(1, 4),
                ),
            )
        )
        for length in shape[: data.draw(st.integers(0, len(shape)))]
    )
    expected = x[selection]
    touched = {
        tuple(index // size for index, size in zip(where, chunks, strict=True))
        for where in zip(*np.unravel_index(np.ravel(expected) - 1, shape), strict=True)
    }
    if len(touched) > 1:
        with pytest.raises(NotMappedError, match="several chunks"):
            store.view_array_sync(z, selection)
        part = store.view_array_sync(z, selection, map=False)
        assert not part.mapped
    else:
        part = store.view_array_sync(z, selection, map=True)
    assert part.array.shape == expected.shape
    np.testing.assert_array_equal(part.array, expected)


def test_a_part_is_no_copy(own_store: UcxStore) -> None:
    x = np.arange(1_000_000, dtype="f4").reshape(1000, 1000)
    z = make(own_store, x, (1000, 1000))
    whole = own_store.view_array_sync(z, map=True).array
    part = own_store.view_array_sync(z, (slice(10, 900, 3), slice(5, None, 2)), map=True).array
    assert np.shares_memory(whole, part)
    assert part.strides == (12_000, 8)
    z[...] = 0
    np.testing.assert_array_equal(whole, x)
    np.testing.assert_array_equal(part, x[10:900:3, 5::2])
    assert waiting(own_store) > 0
    del whole, part
    eventually(lambda: waiting(own_store) == 0)


def test_a_chunk_at_the_edge(store: UcxStore) -> None:
    x = np.arange(70.0).reshape(10, 7)
    z = make(store, x, (4, 4))
    corner = store.view_array_sync(z, (slice(8, 10), slice(4, 7)))
    np.testing.assert_array_equal(corner.array, x[8:, 4:])
    np.testing.assert_array_equal(store.view_array_sync(z, (9, 6)).array, x[9, 6])


def test_no_items_and_no_axes(store: UcxStore) -> None:
    z = make(store, np.arange(12.0).reshape(3, 4), (3, 4))
    part = store.view_array_sync(z, (slice(2, 2), slice(None)), map=True)
    assert part.array.shape == (0, 4)
    scalar = make(store, np.array(5.5), ())
    assert store.view_array_sync(scalar, map=True).array.shape == ()
    assert store.view_array_sync(scalar, map=True).array == 5.5


def test_chunks_that_are_not_stored(store: UcxStore) -> None:
    z = zarr.create_array(
        store, name="a", shape=(10,), chunks=(5,), dtype="i4", fill_value=7, compressors=None
    )
    with pytest.raises(NotMappedError, match="missing"):
        store.view_array_sync(z, slice(0, 3), map=True)
    part = store.view_array_sync(z, slice(0, 3))
    assert not part.mapped
    assert part.array.tolist() == [7, 7, 7]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"compressors": ZstdCodec()}, "ZstdCodec"),
        ({"chunks": (5, 5), "shards": (10, 10)}, "shards"),
        ({"serializer": BytesCodec(endian="big"), "dtype": "<i4"}, "BytesCodec"),
    ],
)
def test_arrays_that_cannot_be_mapped(store: UcxStore, options: dict[str, Any], why: str) -> None:
    x = np.arange(100, dtype="i4").reshape(10, 10)
    z = zarr.create_array(
        store,
        name="a",
        **{"shape": (10, 10), "dtype": "i4", "chunks": (10, 10), "compressors": None} | options,
    )
    z[...] = x
    for mapping in (True, "auto"):
        with pytest.raises(NotMappedError, match=why):
            store.view_array_sync(z, map=mapping)
    part = store.view_array_sync(z, (slice(2, 9), 4), map=False)
    assert not part.mapped
    assert not part.array.flags.writeable
    np.testing.assert_array_equal(part.array, x[2:9, 4])


def test_what_is_no_array_of_the_store(store: UcxStore, own_store: UcxStore) -> None:
    x = np.arange(10.0)
    with pytest.raises(ValueError, match="not at the servers"):
        store.view_array_sync(make(own_store, x, (10,)))
    with pytest.raises(ValueError, match="not in a UcxStore"):
        store.view_array_sync(make(MemoryStore(), x, (10,)))
    with pytest.raises(TypeError, match="ndarray"):
        store.view_array_sync(x)
    z = make(store, x, (10,))
    with pytest.raises(IndexError):
        store.view_array_sync(z, 10)
    with pytest.raises(IndexError):
        store.view_array_sync(z, [1, 2])


def test_a_chunk_of_another_size(store: UcxStore) -> None:
    z = make(store, np.arange(10.0), (10,))
    store.set_sync("a/c/0", as_buffer(noise(79)))
    with pytest.raises(ChunkSizeError, match="79 bytes"):
        store.view_array_sync(z)


def test_an_array_by_its_url(memory_server: Server, prefix: str, store: UcxStore) -> None:
    x = np.arange(10.0)
    z = zarr.create_array(
        f"{memory_server.address}/{prefix}/b", data=x, chunks=(10,), compressors=None
    )
    np.testing.assert_array_equal(store.view_array_sync(z, slice(2, 5), map=True).array, x[2:5])


def test_an_array_with_zarrs_own_pipeline(store: UcxStore) -> None:
    default = "zarr.core.codec_pipeline.BatchedCodecPipeline"
    x = np.arange(10.0)
    with zarr.config.set({"codec_pipeline.path": default}):
        z = make(store, x, (10,))
        np.testing.assert_array_equal(store.view_array_sync(z, 3, map=True).array, x[3])


# ---- forks ----

FORKS = """
import itertools
from zarr.core.sync import sync

SIZE = 3_000_000
store.set_sync("first", as_buffer(filled(1, SIZE)))

def waiting():
    return sync(store.server_stats())["arena_bytes_waiting"]

class Child:
    def __init__(self, act):
        (self.ear, mouth), (ear, self.mouth) = os.pipe(), os.pipe()
        def wait():
            os.write(mouth, b"x")
            assert os.read(ear, 1) == b"x"
        self.pid = os.fork()
        if self.pid == 0:
            try:
                act(wait)
                os._exit(0)
            except SystemExit:
                raise
            except BaseException as error:
                print(repr(error), flush=True)
                os._exit(1)
        os.close(mouth), os.close(ear)
        os.read(self.ear, 1)
    def go_on(self):
        os.write(self.mouth, b"x")
        os.read(self.ear, 1)
    def end(self):
        os.close(self.mouth), os.close(self.ear)
        return os.waitpid(self.pid, 0)[1]

def fresh():
    store.set_sync("key", as_buffer(filled(1, SIZE)))
    return store.view_sync("key", map=True)

def overwrite():
    for byte in range(2, 30):
        store.set_sync("key", as_buffer(filled(byte, SIZE)))

def right(view):
    return bool((view.array == 1).all())
"""


def run(address: str, code: str) -> None:
    with Script(address, {}, FORKS + code) as script:
        assert script.line() == "well"
        assert script.end() == ""


def test_a_child_keeps_what_its_parent_lets_go(own_server: Server) -> None:
    run(
        own_server.address,
        """
view = fresh()
def act(wait):
    wait()
    assert right(view)
    view.close()
    wait()
child = Child(act)
view.close()
overwrite()
assert waiting() >= SIZE
child.go_on()
eventually(lambda: waiting() == 0)
child.go_on()
assert child.end() == 0
print("well", flush=True)
""",
    )


def test_a_parent_keeps_what_its_child_lets_go(own_server: Server) -> None:
    run(
        own_server.address,
        """
view = fresh()
def act(wait):
    view.close()
    wait()
    wait()
child = Child(act)
overwrite()
assert right(view) and waiting() >= SIZE
child.go_on()
assert right(view)
view.close()
eventually(lambda: waiting() == 0)
child.go_on()
assert child.end() == 0
print("well", flush=True)
""",
    )


def test_what_killed_and_exited_children_have_is_free(own_server: Server) -> None:
    run(
        own_server.address,
        """
for end in ("killed", "leaves", "exits"):
    view = fresh()
    def act(wait):
        wait()
        assert right(view)
        if end == "exits":
            sys.exit(0)
        if end == "leaves":
            os._exit(0)
        os.kill(os.getpid(), signal.SIGKILL)
    child = Child(act)
    view.close()
    overwrite()
    assert waiting() >= SIZE
    child.go_on()
    child.end()
    eventually(lambda: waiting() == 0)
print("well", flush=True)
""",
    )


def test_generations_let_go_in_every_order(own_server: Server) -> None:
    run(
        own_server.address,
        """
def grandchild(view, wait):
    (ear, mouth) = os.pipe()
    (told, tells) = os.pipe()
    pid = os.fork()
    if pid == 0:
        for _ in range(2):
            os.write(tells, b"x")
            os.read(ear, 1)
            good = right(view)
            view.close()
            os.write(tells, b"x" if good else b"-")
        os._exit(0)
    os.read(told, 1)
    return pid, mouth, told

for order in itertools.permutations(range(3)):
    view = fresh()
    def act(wait):
        pid, mouth, told = grandchild(view, wait)
        while True:
            wait()
            what = os.read(orders[0], 1)
            if what == b"1":
                assert right(view)
                view.close()
            elif what == b"2":
                os.write(mouth, b"x")
                assert os.read(told, 1) == b"x"
            else:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                return
    orders = os.pipe()
    child = Child(act)
    overwrite()
    for who in order:
        assert waiting() >= SIZE, (order, who)
        if who == 0:
            assert right(view)
            view.close()
        else:
            os.write(orders[1], str(who).encode())
            child.go_on()
    eventually(lambda: waiting() == 0)
    os.write(orders[1], b"x")
    child.go_on()
    assert child.end() == 0
    os.close(orders[0]), os.close(orders[1])
print("well", flush=True)
""",
    )


def test_a_child_has_it_after_its_parent_was_killed(own_server: Server) -> None:
    code = """
view = fresh()
def act(wait):
    eventually(lambda: os.getppid() != parent)
    overwrite()
    assert right(view)
    print("well", flush=True)
    view.close()
    nothing_happens(1)
parent = os.getpid()
if os.fork() == 0:
    act(None)
    os._exit(0)
os.kill(parent, signal.SIGKILL)
"""
    with UcxStore(own_server.address) as store:
        with Script(own_server.address, {}, FORKS + code) as script:
            assert script.line() == "well"
            eventually(lambda: waiting(store) == 0)
            with contextlib.suppress(AssertionError):  # of how the script ended
                script.end()
        eventually(lambda: waiting(store) == 0)


def test_forks_without_descriptors(own_server: Server) -> None:
    """The child lives on its parent's pins then, which end with both: never a wrong value."""
    run(
        own_server.address,
        """
import resource
view = fresh()
def act(wait):
    resource.setrlimit(resource.RLIMIT_NOFILE, before)
    wait()
    assert right(view)
    wait()
before = resource.getrlimit(resource.RLIMIT_NOFILE)
real_fork = os.fork
def fork():
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
    pid = real_fork()
    resource.setrlimit(resource.RLIMIT_NOFILE, before)
    return pid
os.fork = fork
child = Child(act)
view.close()
overwrite()
assert waiting() >= SIZE
child.go_on()
child.go_on()
assert child.end() == 0
print("well", flush=True)
""",
    )
    with UcxStore(own_server.address) as store:
        eventually(lambda: waiting(store) == 0)


def test_a_view_from_a_fork_pool(own_server: Server) -> None:
    run(
        own_server.address,
        """
import multiprocessing
view = fresh()
def look(byte):
    return right(view)
with multiprocessing.get_context("fork").Pool(3) as pool:
    view_of_the_parent, = [view]
    results = pool.map_async(look, range(30))
    overwrite()
    assert all(results.get(60))
    view.close()
    overwrite()
    assert waiting() >= SIZE
eventually(lambda: waiting() == 0)
print("well", flush=True)
""",
    )


def test_of_an_event_loop(own_server: Server) -> None:
    async def look() -> None:
        store = UcxStore(own_server.address)
        await store.set("c/0", as_buffer(filled(3, 100_000)))
        views = await asyncio.gather(*(store.view("c/0") for _ in range(20)))
        assert all(view is not None and (view.array == 3).all() for view in views)

    asyncio.run(look())
