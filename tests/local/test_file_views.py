"""Views of files of a directory, which a user must ask for: `map_files=True`."""

import asyncio
import gc
import os
import shutil
import signal
import threading
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from zarr.core.sync import sync
from zarr.storage import LocalStore

from tests.adversity.scripts import Script
from tests.adversity.transfers import filled
from tests.conftest import address_of
from tests.eventually import eventually
from tests.fixtures import store_of_the_server as store_of_the_server
from tests.local import shown
from tests.local.servers import server_of_anybody as server_of_anybody
from tests.local.shown import make
from tests.values import as_buffer, noise
from ucxstore import (
    ChunkSizeError,
    ConnectError,
    NotMappedError,
    ServerLostError,
    UcxStore,
)
from ucxstore.base.errors import StorageError
from ucxstore.pipeline.access import access_to
from ucxstore.server import Server

SIZES = [0, 1, 4095, 4096, 4097, 16_385, 3_000_001, 40_000_003]

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


viewed = partial(shown.viewed, map_files=True)


def mappings_of(root: Path) -> int:
    """Return how many files beneath a folder this process has mapped."""
    return Path("/proc/self/maps").read_text().count(f" {root}/")


# ---- values ----


@pytest.mark.parametrize("size", SIZES)
def test_of_every_size(store: UcxStore, root: Path, size: int) -> None:
    for seed in range(3):
        value = noise(size, seed)
        store.set_sync("c/0", as_buffer(value))
        before = store.stats()
        with viewed(store, "c/0") as view:
            assert view.array.dtype == np.uint8
            assert view.array.shape == (size,)
            assert view.array.tobytes() == value
            assert mappings_of(root) == (size > 0)
        assert mappings_of(root) == 0
        after = store.stats()
        assert after["mapped"] - before["mapped"] == 1
        assert after["bytes_read"] - before["bytes_read"] == size
        assert after["staged_bytes"] == before["staged_bytes"]


def test_only_for_those_who_want_it(store: UcxStore, root: Path) -> None:
    store.set_sync("c/0", as_buffer(noise(100_000)))
    z = make(store, np.arange(100.0), (100,))
    with pytest.raises(NotMappedError, match="map_files=True"):
        store.view_sync("c/0", map=True)
    with pytest.raises(NotMappedError, match="map_files=True"):
        store.view_array_sync(z, map=True)
    for options in ({}, {"map_files": False}, {"map": False, "map_files": True}):
        for view in (store.view_sync("c/0", **options), store.view_array_sync(z, **options)):
            assert view is not None
            assert not view.mapped
            assert mappings_of(root) == 0
    assert store.stats()["mapped"] == 0
    for wrong in (1, None, "auto"):
        with pytest.raises(ValueError, match="map_files"):
            store.view_sync("c/0", map_files=wrong)
        with pytest.raises(ValueError, match="map_files"):
            store.view_array_sync(z, map_files=wrong)


def test_the_server_is_not_asked(store: UcxStore) -> None:
    store.set_sync("c/0", as_buffer(noise(3_000_000)))
    seen = []
    for _ in range(5):
        viewed(store, "c/0")
        stats = sync(store.server_stats())
        assert stats["gets"] == 0
        seen.append(stats["gets_seen"])
    assert seen == sorted(set(seen))


async def test_the_asynchronous_twin(server: Server) -> None:
    store = UcxStore(server.address)
    assert await store.view("c/0", map=True, map_files=True) is None
    await store.set("c/0", as_buffer(noise(100_000)))
    for mapping in (True, "auto"):
        view = await store.view("c/0", map=mapping, map_files=True)
        assert view is not None
        assert view.mapped
        assert view.array.tobytes() == noise(100_000)
    x = np.arange(600.0).reshape(20, 30)
    array = await zarr.api.asynchronous.create_array(
        store, name="a", data=x, chunks=(10, 30), compressors=None
    )
    part = await store.view_array(array, (slice(3, 9, 2), 4), map=True, map_files=True)
    assert part.mapped
    np.testing.assert_array_equal(part.array, x[3:9:2, 4])


@pytest.mark.parametrize("asynchronous", [False, True])
def test_what_the_disk_must_be_asked_for(
    store: UcxStore, monkeypatch: pytest.MonkeyPatch, asynchronous: bool
) -> None:
    """Names that are not in the kernel's cache take a second call, in a thread of its own."""
    store.set_sync("c/0", as_buffer(noise(3_000_000)))
    z = make(store, np.arange(10.0), (10,))
    map_file = access_to(store).channel.map_file
    threads: list[int] = []

    def of_a_cold_disk(key: str, *, waits: bool) -> Any:
        if waits:
            threads.append(threading.get_ident())
            return map_file(key, waits=True)
        return None

    monkeypatch.setattr(access_to(store).channel, "map_file", of_a_cold_disk)
    if asynchronous:
        view = asyncio.run(store.view("c/0", map=True, map_files=True))
        part = asyncio.run(store.view_array(z.async_array, map=True, map_files=True))
        assert threading.get_ident() not in threads
    else:
        view = store.view_sync("c/0", map=True, map_files=True)
        part = store.view_array_sync(z, map=True, map_files=True)
    assert view is not None
    assert view.array.tobytes() == noise(3_000_000)
    assert part.array.tolist() == [*range(10)]
    assert len(threads) == 2


def test_missing_keys(store: UcxStore, root: Path) -> None:
    for mapping in (True, False, "auto"):
        assert store.view_sync("c/0", map=mapping, map_files=True) is None
    store.set_sync("c/0", as_buffer(b"value"))
    viewed(store, "c/0")
    store.delete_sync("c/0")
    assert store.view_sync("c/0", map_files=True) is None
    store.set_sync("a/b", as_buffer(b"value"))
    os.mkfifo(root / "fifo")
    (root / "a/.ucxstore-0123456789abcdef.partial").write_bytes(b"half")
    for key in ("a", "fifo", "a/b/c", "a/.ucxstore-0123456789abcdef.partial"):
        assert store.view_sync(key, map=True, map_files=True) is None, key


def test_keys_do_not_lead_out(store: UcxStore, root: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    (root / "out").symlink_to(tmp_path / "secret")
    (root / "folder").symlink_to(tmp_path)
    (root / "relative").symlink_to("../secret")
    for key in ("out", "folder/secret", "relative"):
        for mapping in (True, "auto"):
            with pytest.raises(StorageError):
                store.view_sync(key, map=mapping, map_files=True)
    for key in ("../secret", "a/../../secret", str(tmp_path / "secret"), "./out", "a\0b", ""):
        with pytest.raises(ValueError, match="key"):
            store.view_sync(key, map_files=True)
    assert mappings_of(tmp_path) == 0


def test_nothing_is_written_through_it(store: UcxStore, root: Path) -> None:
    store.set_sync("c/0", as_buffer(noise(100_000)))
    view = viewed(store, "c/0")
    with pytest.raises(ValueError, match="read-only"):
        view.array[0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        view.array.flags.writeable = True
    assert memoryview(view).readonly
    (line,) = (
        line for line in Path("/proc/self/maps").read_text().splitlines() if f" {root}/" in line
    )
    assert line.split()[1] == "r--s"
    assert (root / "c/0").read_bytes() == noise(100_000)


@pytest.mark.parametrize("make_of", [lambda view: view.array, memoryview, np.from_dlpack])
def test_what_is_made_of_a_view_outlives_it(store: UcxStore, root: Path, make_of: Any) -> None:
    store.set_sync("c/0", as_buffer(noise(100_000)))
    with viewed(store, "c/0") as view:
        made = make_of(view)
    del view
    gc.collect()
    assert mappings_of(root) == 1
    assert bytes(made) == noise(100_000)
    del made
    gc.collect()
    assert mappings_of(root) == 0


# ---- how long it stays ----


def test_replaced_and_removed(store: UcxStore) -> None:
    """The view keeps the old file."""
    store.set_sync("c/0", as_buffer(noise(3_000_000)))
    view = viewed(store, "c/0")
    for seed in range(1, 10):
        store.set_sync("c/0", as_buffer(noise(3_000_000 - seed * 100_000, seed)))
        with viewed(store, "c/0") as other:
            assert other.array.tobytes() == noise(3_000_000 - seed * 100_000, seed)
    store.delete_sync("c/0")
    assert view.array.tobytes() == noise(3_000_000)


def test_replaced_by_local_stores(store: UcxStore, root: Path) -> None:
    x = np.random.default_rng(3).random((300, 400))
    z = make(LocalStore(root), x, (300, 400))
    ours = zarr.open_array(store, path="a")
    view = store.view_array_sync(ours, map=True, map_files=True)
    z[...] = 0
    np.testing.assert_array_equal(view.array, x)
    np.testing.assert_array_equal(store.view_array_sync(ours, map_files=True).array, 0 * x)


def test_when_the_store_and_the_server_are_closed(root: Path) -> None:
    with Server(root, local=True) as server, UcxStore(server.address) as store:
        store.set_sync("c/0", as_buffer(noise(3_000_000)))
        view = viewed(store, "c/0")
    del store, server
    gc.collect()
    assert view.array.tobytes() == noise(3_000_000)


def test_when_the_directory_is_removed(store: UcxStore, root: Path) -> None:
    store.set_sync("c/0", as_buffer(noise(3_000_000)))
    view = viewed(store, "c/0")
    shutil.rmtree(root)
    assert view.array.tobytes() == noise(3_000_000)
    with pytest.raises(StorageError, match="removed"):
        store.view_sync("c/0", map_files=True)


def test_when_the_server_is_killed(root: Path) -> None:
    with Server.spawn(str(root), local=True) as server, UcxStore(server.address) as store:
        store.set_sync("c/0", as_buffer(noise(3_000_000)))
        view = viewed(store, "c/0")
        os.kill(server.pid, signal.SIGKILL)
        eventually(lambda: not store.stats()["lanes"])
        with pytest.raises((ServerLostError, ConnectError)):
            store.view_sync("c/0", map_files=True)
        assert view.array.tobytes() == noise(3_000_000)
        place = server.address.removeprefix("ucx://")
        with Server.spawn(str(root), place, local=True), UcxStore(f"ucx://{place}") as other:
            assert viewed(other, "c/0").array.tobytes() == noise(3_000_000)
            other.set_sync("c/0", as_buffer(b"another"))
            assert view.array.tobytes() == noise(3_000_000)


def test_cut_by_others(server: Server, store: UcxStore, root: Path) -> None:
    """What the docstring warns of. The process that has the view ends, and nobody else."""
    store.set_sync("c/0", as_buffer(noise(3_000_000)))
    code = """
view = store.view_sync("c/0", map=True, map_files=True)
print(len(view), flush=True)
sys.stdin.readline()
print(view.array[10], flush=True)
print(view.array[-1], flush=True)
"""
    with Script(server.address, {}, code) as script:
        assert script.line() == "3000000"
        os.truncate(root / "c/0", 100_000)
        script.say("look\n")
        assert script.line() == str(noise(3_000_000)[10])
        assert script.status() == -signal.SIGBUS
    eventually(lambda: server.sessions == 1)
    assert viewed(store, "c/0").array.tobytes() == noise(3_000_000)[:100_000]


# ---- where it cannot be mapped ----


def test_views_of_memory_are_as_before(memory_server: Server, prefix: str) -> None:
    with UcxStore(f"{memory_server.address}/{prefix}") as store:
        assert store.view_sync("c/0", map_files=True) is None
        store.set_sync("c/0", as_buffer(noise(100_000)))
        assert viewed(store, "c/0").array.tobytes() == noise(100_000)


def test_over_ucx(server: Server, store: UcxStore) -> None:
    store.set_sync("c/0", as_buffer(noise(100_000)))
    with UcxStore(server.address, local="off") as other:
        with pytest.raises(NotMappedError, match="UCX"):
            other.view_sync("c/0", map=True, map_files=True)
        view = other.view_sync("c/0", map_files=True)
        assert view is not None
        assert not view.mapped
        assert view.array.tobytes() == noise(100_000)


@as_root
def test_another_user_gets_copies(server: Server, store: UcxStore) -> None:
    store.set_sync("c/0", as_buffer(noise(100_000)))
    code = """
import encodings.idna, zarr.core.sync
os.setgroups([]); os.setgid(65534); os.setuid(65534)
view = store.view_sync("c/0", map_files=True)
print(view.mapped, len(view), flush=True)
try:
    store.view_sync("c/0", map=True, map_files=True)
except NotMappedError:
    print("not mapped", flush=True)
"""
    with Script(server.address, {}, code) as script:
        assert script.line() == "False 100000"
        assert script.line() == "not mapped"


def test_scratch_spaces_of_a_directory_are_no_files(root: Path) -> None:
    with (
        Server(root, local=True, scratch_limit="unlimited") as server,
        UcxStore(server.address) as owner,
        owner.scratch_sync("10MB") as scratch,
    ):
        store = scratch.store()
        store.set_sync("c/0", as_buffer(noise(1_000_000)))
        assert viewed(store, "c/0").array.tobytes() == noise(1_000_000)
        assert mappings_of(root) == 0


def test_more_files_than_a_process_may_map(store: UcxStore) -> None:
    """The rest of a process's mappings are for its memory."""
    store.set_sync("c/0", as_buffer(noise(1000)))
    views: list[Any] = []
    while len(views) < 20_000:
        view = store.view_sync("c/0", map_files=True)
        assert view is not None
        views.append(view)
        if not view.mapped:
            break
    assert len(views) == (16 << 10) + 1
    with pytest.raises(NotMappedError):
        store.view_sync("c/0", map=True, map_files=True)
    assert views[-1].array.tobytes() == views[-2].array.tobytes() == noise(1000)
    views.pop(0)
    viewed(store, "c/0")


def test_without_address_space(server: Server, store: UcxStore, root: Path) -> None:
    store.set_sync("c/0", as_buffer(noise(1000)))
    with (root / "c/1").open("wb") as large:
        large.truncate(8 << 30)
    code = """
import resource
store.get_sync("c/0")
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
_, most = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30), most))
try:
    store.view_sync("c/1", map=True, map_files=True)
except NotMappedError as error:
    print(error, flush=True)
print(len(store.view_sync("c/0", map=True, map_files=True)), flush=True)
"""
    with Script(server.address, {}, code) as script:
        assert "c/1" in script.line()
        assert script.line() == "1000"


def test_no_descriptor_is_kept(store: UcxStore) -> None:
    store.set_sync("c/0", as_buffer(noise(100_000)))
    viewed(store, "c/0")
    descriptors = Path("/proc/self/fd")
    before = len([*descriptors.iterdir()])
    views = [viewed(store, "c/0") for _ in range(50)]
    assert len([*descriptors.iterdir()]) <= before
    assert len(views) == 50


def test_several_servers_of_one_directory(root: Path) -> None:
    with (
        Server(root, local=True, shared=True) as one,
        Server(root, local=True, shared=True) as two,
        UcxStore(address_of([one, two], "")) as store,
    ):
        for number in range(8):
            store.set_sync(f"c/{number}", as_buffer(noise(1000, number)))
        for number in range(8):
            assert viewed(store, f"c/{number}").array.tobytes() == noise(1000, number)


# ---- arrays ----


def test_selections_in_a_chunk(store: UcxStore) -> None:
    """Also from where no page begins."""
    x = np.arange(1, 700 * 300 + 1, dtype="i4").reshape(700, 300)
    z = make(store, x, (350, 300))
    rng = np.random.default_rng(5)
    for _ in range(200):
        first, column = (int(each) for each in rng.integers(0, (350, 300)))
        first += 350 * int(rng.integers(2))
        stop = int(rng.integers(first + 1, 351 + 350 * (first // 350)))
        for selection in (
            (slice(first, stop), slice(column, None, 3)),
            (slice(first, stop, 7), column),
            (first, column),
        ):
            part = store.view_array_sync(z, selection, map=True, map_files=True)
            assert part.mapped
            assert not part.array.flags.writeable
            np.testing.assert_array_equal(part.array, x[selection])


@pytest.mark.parametrize("dtype", ["u1", "i2", "c16", "?", "M8[s]", ">f4"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_of_dtypes_and_orders(store: UcxStore, dtype: str, order: str) -> None:
    x = np.arange(12 * 7 * 4).reshape(12, 7, 4).astype(dtype)
    z = make(store, x, (6, 7, 4), zarr_format=2, order=order)
    for selection in (slice(6, 12), (slice(1, 5, 2), slice(None), 3), (2, 1, 3)):
        part = store.view_array_sync(z, selection, map=True, map_files=True)
        assert part.mapped
        assert part.array.dtype == z.dtype
        np.testing.assert_array_equal(part.array, x[selection])


def test_a_part_is_no_copy(store: UcxStore) -> None:
    x = np.arange(1_000_000, dtype="f4").reshape(1000, 1000)
    z = make(store, x, (1000, 1000))
    part = store.view_array_sync(
        z, (slice(10, 900, 3), slice(5, None, 2)), map=True, map_files=True
    )
    assert part.array.strides == (12_000, 8)
    z[...] = 0
    np.testing.assert_array_equal(part.array, x[10:900:3, 5::2])


def test_chunks_that_are_not_stored_or_of_another_size(store: UcxStore, root: Path) -> None:
    z = zarr.create_array(
        store, name="a", shape=(10,), chunks=(5,), dtype="i4", fill_value=7, compressors=None
    )
    with pytest.raises(NotMappedError, match="missing"):
        store.view_array_sync(z, slice(0, 3), map=True, map_files=True)
    part = store.view_array_sync(z, slice(0, 3), map_files=True)
    assert not part.mapped
    assert part.array.tolist() == [7, 7, 7]
    store.set_sync("a/c/0", as_buffer(bytes(19)))
    with pytest.raises(ChunkSizeError, match="19 bytes"):
        store.view_array_sync(z, slice(0, 3), map_files=True)
    store.set_sync("a/c/0", as_buffer(b""))
    with pytest.raises(ChunkSizeError, match="0 bytes"):
        store.view_array_sync(z, slice(0, 3), map_files=True)
    gc.collect()
    assert mappings_of(root) == 0


# ---- forks ----


def test_forks(server: Server) -> None:
    """Parent and child each let go in their own time."""
    code = """
store.set_sync("key", as_buffer(filled(1, 3_000_000)))
view = store.view_sync("key", map=True, map_files=True)
(ear, mouth) = os.pipe()
(told, tells) = os.pipe()
pid = os.fork()
if pid == 0:
    assert os.read(ear, 1) == b"x"
    assert (view.array == 1).all()
    view.close()
    os.write(tells, b"x")
    os.read(ear, 1)
    again = store.view_sync("key", map=True, map_files=True)
    assert (again.array == 2).all()
    os._exit(0)
view.close()
store.set_sync("key", as_buffer(filled(2, 3_000_000)))
os.write(mouth, b"x")
assert os.read(told, 1) == b"x"
os.write(mouth, b"x")
assert os.waitpid(pid, 0)[1] == 0
view = store.view_sync("key", map=True, map_files=True)
if os.fork() == 0:
    view.close()
    os._exit(0)
assert os.wait()[1] == 0
assert (view.array == 2).all()
print("well", flush=True)
"""
    with Script(server.address, {}, code) as script:
        assert script.line() == "well"
        assert script.end() == ""


def test_a_killed_reader(server: Server, store: UcxStore) -> None:
    store.set_sync("key", as_buffer(filled(1, 3_000_000)))
    code = """
views = [store.view_sync("key", map=True, map_files=True) for _ in range(10)]
print("has them", flush=True)
sys.stdin.readline()
"""
    with Script(server.address, {}, code) as script:
        assert script.line() == "has them"
        script.kill()
    eventually(lambda: server.sessions == 1)
    assert viewed(store, "key").array.tobytes() == bytes([1]) * 3_000_000
