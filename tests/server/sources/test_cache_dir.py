"""A directory behind the cache in memory: its values are as up to date as those in memory."""

import asyncio
import os
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from obstore.store import MemoryStore

from tests.eventually import eventually
from tests.server.sources.http_objects import HttpObjects
from tests.server.sources.test_blocks import BLOCK, get_part
from tests.server.sources.test_cache import fill, get, put
from tests.values import noise
from ucxstore import UcxStore
from ucxstore.server import Server


def serve(objects: HttpObjects, folder: Path, **options: Any) -> Server:
    """Serve with no room in memory, so that all is read from the directory or the source."""
    return Server(objects.store(), cache=0, cache_dir=folder, cache_dir_size="64MiB", **options)


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.ucxstore-cached"))


def is_written(server: Server, count: int = 1) -> bool:
    """Tell whether so many reads have found their value in the directory."""
    return server.stats()["disk_hits"] >= count


def test_each_object_is_fetched_once(objects: HttpObjects, folder: Path) -> None:
    values = fill(objects)
    with (
        Server(objects.store(), cache=100_000, cache_dir=folder, cache_dir_size="64MiB") as server,
        UcxStore(server.address) as store,
    ):
        array = zarr.open_array(store, mode="r")
        np.testing.assert_array_equal(array[:], values)
        eventually(lambda: len(files(folder)) == len(objects.objects))
        stored = sum(map(len, objects.objects.values()))
        eventually(lambda: sum(file.stat().st_size for file in files(folder)) == stored)

        def fetched_by_reading() -> int:
            before = chunks_fetched(objects)
            np.testing.assert_array_equal(array[:], values)
            return chunks_fetched(objects) - before

        # A file has all its bytes a moment before it is used.
        eventually(lambda: fetched_by_reading() == 0)
        hits = server.stats()["disk_hits"]
        assert [fetched_by_reading() for _ in range(3)] == [0] * 3
        stats = server.stats()
        assert stats["cached_bytes"] <= 100_000
        assert stats["disk_hits"] >= hits + 3 * 80
        assert stats["disk_failures"] == 0
    assert not files(folder)


def chunks_fetched(objects: HttpObjects) -> int:
    return sum(n for (how, path), n in objects.requests.items() if how == "GET" and "c/" in path)


def test_blocks_are_kept_too(objects: HttpObjects, folder: Path) -> None:
    value = noise(20 * BLOCK)
    objects.objects["k"] = value
    with serve(objects, folder, block_size=BLOCK) as server, UcxStore(server.address) as store:
        for block in (5, 4):
            assert get_part(store, "k", block * BLOCK, block * BLOCK + 9)
        eventually(lambda: len(files(folder)) == 2)
        part = slice(4 * BLOCK + 5, 6 * BLOCK - 5)
        eventually(
            lambda: (
                get_part(store, "k", part.start, part.stop) == value[part] and is_written(server)
            )
        )
        asked = len(objects.ranges)
        assert get_part(store, "k", part.start, part.stop) == value[part]
        assert len(objects.ranges) == asked
        new = noise(20 * BLOCK, 1)
        objects.objects["k"] = new
        # Without a cache in memory, what the object is now is asked for each time.
        assert get_part(store, "k", part.start, part.stop) == new[part]


def read_until_it_is_kept(server: Server, store: UcxStore, key: str, value: bytes) -> None:
    hits = server.stats()["disk_hits"]
    eventually(lambda: get(store, key) == value and is_written(server, hits + 1))


def test_what_changes_through_the_server_is_seen(objects: HttpObjects, folder: Path) -> None:
    objects.objects.update({"a/k": b"old", "b": b"kept"})
    with serve(objects, folder) as server, UcxStore(server.address) as store:
        read_until_it_is_kept(server, store, "a/k", b"old")
        put(store, "a/k", b"new")
        assert get(store, "a/k") == b"new"
        read_until_it_is_kept(server, store, "a/k", b"new")
        asyncio.run(store.delete("a/k"))
        assert get(store, "a/k") is None
    assert not files(folder)


def test_what_is_removed_by_its_prefix_is_gone(folder: Path) -> None:
    objects = MemoryStore()
    with (
        Server(objects, cache=0, cache_dir=folder, cache_dir_size="1MiB") as server,
        UcxStore(server.address) as store,
    ):
        for key in ("a/1", "a/2", "b"):
            put(store, key, key.encode())
            read_until_it_is_kept(server, store, key, key.encode())
        asyncio.run(store.delete_dir("a"))
        assert get(store, "a/1") is None
        assert get(store, "b") == b"b"
        eventually(lambda: len(files(folder)) == 1)


def test_for_ever(objects: HttpObjects, folder: Path) -> None:
    objects.objects["k"] = b"old"
    with serve(objects, folder) as server, UcxStore(server.address) as store:
        read_until_it_is_kept(server, store, "k", b"old")
        objects.objects["k"] = b"new"
        assert get(store, "k") == b"old"


def test_always(objects: HttpObjects, folder: Path) -> None:
    objects.objects["k"] = b"old"
    with (
        serve(objects, folder, freshness="always") as server,
        UcxStore(server.address) as store,
    ):
        read_until_it_is_kept(server, store, "k", b"old")
        sent, asked = objects.sent, objects.asked("GET")
        assert get(store, "k") == b"old"
        assert objects.sent == sent, "its bytes are not sent again"
        assert objects.asked("GET") == asked + 1
        objects.objects["k"] = b"new"
        assert get(store, "k") == b"new"
        read_until_it_is_kept(server, store, "k", b"new")
        del objects.objects["k"]
        assert get(store, "k") is None
        objects.objects["k"] = b"old"
        assert get(store, "k") == b"old"


def test_a_directory_has_one_server(objects: HttpObjects, folder: Path) -> None:
    objects.objects["k"] = b"v"
    with serve(objects, folder) as server, UcxStore(server.address) as store:
        read_until_it_is_kept(server, store, "k", b"v")
        with pytest.raises(OSError, match=rf"cache_dir: {re.escape(str(folder))} is in use"):
            serve(objects, folder)
        assert len(files(folder)) == 1
    with serve(objects, folder):
        pass


def test_what_a_killed_process_leaves_is_not_read(objects: HttpObjects, folder: Path) -> None:
    objects.objects["k"] = b"old"
    killed = Server.spawn(objects.url, cache=0, cache_dir=folder, cache_dir_size="1MiB")
    with killed, UcxStore(killed.address) as store:
        assert get(store, "k") == b"old"
        eventually(lambda: files(folder))
        os.kill(killed.pid, signal.SIGKILL)
        eventually(lambda: killed.returncode is not None)
    assert files(folder)
    objects.objects["k"] = b"new"
    with serve(objects, folder) as server, UcxStore(server.address) as store:
        assert not files(folder)
        assert get(store, "k") == b"new"


def test_a_directory_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(OSError, match=r"cache_dir: "):
        Server(MemoryStore(), cache_dir=file, cache_dir_size=1 << 20)


def test_a_disk_that_fails_costs_hits_and_no_errors(objects: HttpObjects, folder: Path) -> None:
    objects.objects.update({"k": b"k", "l": b"l"})
    with serve(objects, folder) as server, UcxStore(server.address) as store:
        read_until_it_is_kept(server, store, "k", b"k")
        files(folder)[0].write_bytes(b"")
        assert get(store, "k") == b"k"
        assert server.stats()["disk_failures"] == 1
        shutil.rmtree(folder)
        assert get(store, "l") == b"l"
        eventually(lambda: server.stats()["disk_failures"] == 2)
        assert get(store, "l") == b"l"
