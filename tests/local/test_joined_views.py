"""Views of several chunks along the first axis, which are mapped one after the other."""

import gc
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from zarr.core.sync import sync

from tests.adversity.scripts import Script
from tests.conftest import address_of
from tests.eventually import eventually
from tests.local.shown import make, waiting
from tests.values import as_buffer
from ucxstore import ChunkSizeError, NotMappedError, UcxStore, View
from ucxstore.server import Server

# A row of 16 KiB: so a chunk of any number of rows is of whole pages, and begins on one.
WIDTH = 4096


def rows(count: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(1, 1 << 31, (count, WIDTH), "i4")


def viewed(store: UcxStore, z: Any, selection: Any = ...) -> View:
    view = store.view_array_sync(z, selection, map=True, map_files=True)
    assert view.mapped
    assert not view.array.flags.writeable
    return view


SELECTIONS = [
    ...,
    slice(3, 27),
    slice(9, 11),
    slice(None, None, 3),
    (slice(5, 30, 7), slice(100, 4000, 11)),
    (slice(None), 17),
    (slice(29, 31), slice(WIDTH - 1, None)),
    (slice(2, 28), slice(None, 5)),
]


@pytest.mark.parametrize("storage", ["memory", "directory"])
@pytest.mark.parametrize("chunk_rows", [7, 10, 31])
def test_selections(address: str, chunk_rows: int) -> None:
    x = rows(31)
    with UcxStore(address) as store:
        z = make(store, x, (chunk_rows, WIDTH))
        for selection in SELECTIONS:
            part = viewed(store, z, selection)
            np.testing.assert_array_equal(part.array, x[selection])
            assert part.array.dtype == z.dtype


@given(data=st.data())
def test_any_selection(memory_server: Server, data: st.DataObject) -> None:
    x = rows(24)
    store = UcxStore(f"{memory_server.address}/joined")
    height = data.draw(st.integers(1, 24))
    z = make(store, x, (height, WIDTH))
    first = data.draw(st.integers(0, 23))
    stop = data.draw(st.integers(first + 1, 24))
    step = data.draw(st.integers(1, height))  # of a larger one, chunks may be left out
    selection = (slice(first, stop, step), data.draw(st.sampled_from([3, slice(5, None, 9)])))
    np.testing.assert_array_equal(viewed(store, z, selection).array, x[selection])


def test_chunks_of_a_column_of_the_grid(own_store: UcxStore) -> None:
    x = rows(30)
    z = make(own_store, x, (10, WIDTH // 2))
    for selection in ((slice(5, 25), slice(10, 2000)), (slice(5, 25), slice(WIDTH // 2, None))):
        np.testing.assert_array_equal(viewed(own_store, z, selection).array, x[selection])
    with pytest.raises(NotMappedError, match="several chunks"):
        own_store.view_array_sync(z, (slice(5, 25), slice(2000, 2100)))


def test_it_is_no_copy(own_store: UcxStore) -> None:
    x = rows(1200)  # of 20 MB
    z = make(own_store, x, (400, WIDTH))
    before = own_store.stats()
    resident = _resident()
    whole = viewed(own_store, z).array
    assert _resident() - resident < 5_000_000
    after = own_store.stats()
    assert after["mapped"] - before["mapped"] == 3
    assert after["bytes_read"] - before["bytes_read"] == x.nbytes
    assert after["direct"] == before["direct"]
    z[...] = 1
    np.testing.assert_array_equal(whole, x)
    np.testing.assert_array_equal(viewed(own_store, z).array, np.ones_like(x))
    gc.collect()
    assert waiting(own_store) >= x.nbytes
    part = whole[500:600:3, 5]
    del whole
    gc.collect()
    assert waiting(own_store) >= x.nbytes
    np.testing.assert_array_equal(part, x[500:600:3, 5])
    del part
    gc.collect()
    eventually(lambda: waiting(own_store) == 0)


def _resident() -> int:
    (line,) = (
        line for line in Path("/proc/self/status").read_text().splitlines() if "VmRSS" in line
    )
    return int(line.split()[1]) * 1024


def test_nothing_stays_mapped(own_store: UcxStore) -> None:
    z = make(own_store, rows(30), (10, WIDTH))
    viewed(own_store, z)
    gc.collect()
    before = len(Path("/proc/self/maps").read_text().splitlines())
    views = [viewed(own_store, z) for _ in range(30)]
    assert len(Path("/proc/self/maps").read_text().splitlines()) >= before + 30
    views.clear()
    gc.collect()
    assert len(Path("/proc/self/maps").read_text().splitlines()) <= before + 5


def test_a_killed_server() -> None:
    x = rows(30)
    with Server.spawn("memory://", local=True) as server, UcxStore(server.address) as store:
        z = make(store, x, (10, WIDTH))
        view = viewed(store, z)
        os.kill(server.pid, signal.SIGKILL)
        eventually(lambda: not store.stats()["lanes"])
        np.testing.assert_array_equal(view.array, x)


def test_files_that_are_replaced(tmp_path: Path) -> None:
    x = rows(30)
    with Server(tmp_path, local=True) as server, UcxStore(server.address) as store:
        z = make(store, x, (10, WIDTH))
        view = viewed(store, z, slice(5, 25))
        z[...] = 1
        np.testing.assert_array_equal(view.array, x[5:25])
        with pytest.raises(NotMappedError, match="map_files"):
            store.view_array_sync(z, map=True)
        view.close()
        gc.collect()
        assert str(tmp_path) not in Path("/proc/self/maps").read_text()


def test_several_servers(three_servers: list[Server], prefix: str) -> None:
    x = rows(60)
    with UcxStore(address_of(three_servers, prefix)) as store:
        z = make(store, x, (5, WIDTH))
        np.testing.assert_array_equal(viewed(store, z).array, x)


async def test_the_asynchronous_twin(memory_server: Server, prefix: str) -> None:
    store = UcxStore(f"{memory_server.address}/{prefix}")
    x = rows(30)
    array = await zarr.api.asynchronous.create_array(
        store, name="a", data=x, chunks=(10, WIDTH), compressors=None
    )
    part = await store.view_array(array, slice(5, 25), map=True)
    np.testing.assert_array_equal(part.array, x[5:25])


# ---- where it cannot be ----


def test_a_chunk_that_is_not_stored_or_of_another_size(own_store: UcxStore) -> None:
    x = rows(30)
    z = make(own_store, x, (10, WIDTH))
    own_store.delete_sync("a/c/1/0")
    with pytest.raises(NotMappedError, match="a/c/1/0"):
        viewed(own_store, z)
    part = own_store.view_array_sync(z)
    assert not part.mapped
    assert not part.array[10:20].any()
    np.testing.assert_array_equal(part.array[20:], x[20:])
    own_store.set_sync("a/c/1/0", as_buffer(bytes(4096)))
    with pytest.raises(ChunkSizeError, match="a/c/1/0"):
        viewed(own_store, z)


def test_chunks_that_are_no_whole_pages(own_store: UcxStore) -> None:
    x = np.arange(30_000, dtype="i4").reshape(30, 1000)
    z = make(own_store, x, (10, 1000))
    with pytest.raises(NotMappedError, match="several chunks"):
        own_store.view_array_sync(z)
    np.testing.assert_array_equal(viewed(own_store, z, slice(10, 20)).array, x[10:20])


def test_blocks_that_begin_between_pages(own_store: UcxStore) -> None:
    """Chunks of one page: the blocks of an arena that they lie in are small ones."""
    x = np.arange(10 * 1024, dtype="i4").reshape(10, 1024)
    z = make(own_store, x, (1, 1024))
    with pytest.raises(NotMappedError):
        own_store.view_array_sync(z, map=True)
    part = own_store.view_array_sync(z)
    assert not part.mapped
    np.testing.assert_array_equal(part.array, x)
    gc.collect()
    eventually(lambda: sync(own_store.server_stats())["arena_bytes_held"] == 0)


def test_orders_and_more_chunks_than_one_view_has(own_store: UcxStore) -> None:
    x = rows(30)
    z = make(own_store, x, (10, WIDTH), zarr_format=2, order="F")
    with pytest.raises(NotMappedError, match="several chunks"):
        own_store.view_array_sync(z)
    z = make(own_store, x, (10, WIDTH), zarr_format=2, order="C")
    np.testing.assert_array_equal(viewed(own_store, z).array, x)
    many = make(own_store, np.ones(1100 * 4096, "u1"), (4096,))
    with pytest.raises(NotMappedError, match="several chunks"):
        own_store.view_array_sync(many)


def test_steps_that_leave_chunks_out(own_store: UcxStore) -> None:
    x = rows(30)
    z = make(own_store, x, (2, WIDTH))
    with pytest.raises(NotMappedError, match="several chunks"):
        own_store.view_array_sync(z, slice(None, None, 5))
    np.testing.assert_array_equal(viewed(own_store, z, slice(1, 30, 2)).array, x[1:30:2])


def test_what_may_be_held() -> None:
    with Server("memory://", local=True, mapped_limit=1 << 20) as server:
        store = UcxStore(server.address)
        x = rows(90)
        z = make(store, x, (30, WIDTH))
        with pytest.raises(NotMappedError):
            store.view_array_sync(z, map=True)
        part = store.view_array_sync(z)
        assert not part.mapped
        np.testing.assert_array_equal(part.array, x)
        np.testing.assert_array_equal(viewed(store, z, slice(0, 60)).array, x[:60])


# ---- forks ----


def test_forks() -> None:
    """A child has the view, and what it is of, until it lets go of it."""
    code = """
import zarr
from zarr.core.sync import sync
x = np.arange(30 * 4096, dtype="i4").reshape(30, 4096)
z = zarr.create_array(store, name="a", data=x, chunks=(10, 4096), compressors=None)
view = store.view_array_sync(z, map=True)
(ear, mouth) = os.pipe()
pid = os.fork()
if pid == 0:
    os.read(ear, 1)
    assert (view.array == x).all()
    os._exit(0)
view.close()
for number in range(20):
    z[...] = number
waiting = lambda: sync(store.server_stats())["arena_bytes_waiting"]
assert waiting() >= x.nbytes
os.write(mouth, b"x")
assert os.waitpid(pid, 0)[1] == 0
eventually(lambda: waiting() == 0)
print("well", flush=True)
"""
    with Server("memory://", local=True) as server, Script(server.address, {}, code) as script:
        assert script.line() == "well"
        assert script.end() == ""
