"""A memory that is full: it evicts, or it spills, over UCX and over the local plane."""

import asyncio
import os
import random
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from zarr.abc.store import OffsetByteRequest, RangeByteRequest, SuffixByteRequest
from zarr.core.buffer.core import default_buffer_prototype
from zarr.core.sync import sync

from tests.cli.command import run
from tests.eventually import eventually
from tests.server.process.test_metrics import scrape, value
from tests.values import as_buffer, read, write
from ucxstore import EvictedError, StorageError, UcxStore
from ucxstore.cli.serve import banner
from ucxstore.server import Server, ServerOptions
from ucxstore.server.options.command_options import CommandOptions
from ucxstore.server.options.when_full import WhenFull
from ucxstore.server.process.metrics import Metrics

MIB = 1 << 20
SIZE = 200_000


def content(size: int, seed: object) -> bytes:
    return random.Random(str(seed)).randbytes(size)


def listed(store: UcxStore, prefix: str = "") -> list[str]:
    async def keys() -> list[str]:
        return sorted([key async for key in store.list_prefix(prefix)])

    return sync(keys())


def fill(store: UcxStore, count: int = 200, prefix: str = "k") -> None:
    for number in range(count):
        write(store, f"{prefix}/{number}", content(SIZE, number))


def is_lost(store: UcxStore, key: str) -> bool:
    try:
        read(store, key)
    except EvictedError as error:
        assert f"{key}' was evicted: the server's memory was full" in str(error)  # noqa: PT017
        return True
    return False


# ---- evicting ----


@pytest.fixture
def cache() -> Iterator[Server]:
    with Server("memory://", memory="16MiB", when_full="evict", threads=2) as server:
        yield server


@pytest.fixture
def cached(cache: Server, plane: str) -> Iterator[UcxStore]:
    with UcxStore(cache.address, local=plane) as store:
        yield store


def test_a_cache_takes_all_that_is_written(cache: Server, cached: UcxStore) -> None:
    fill(cached)
    lost = [is_lost(cached, f"k/{number}") for number in range(200)]
    assert 120 < sum(lost) < 180
    assert not lost[199]
    for number in range(200):
        if not lost[number]:
            assert read(cached, f"k/{number}") == content(SIZE, number)
    stats = sync(cached.server_stats())
    assert stats["evicted"] == stats["evicted_keys"] == sum(lost)
    assert stats["evicted_bytes"] == sum(lost) * SIZE
    assert stats["memory_used"] <= 16 * MIB
    assert stats["value_count"] == 200 - sum(lost)
    assert cache.failures()["evicted"] == sum(lost)
    printed = run("stats", cache.address).stdout
    assert f"evict {sum(lost)} values of " in printed
    with Metrics(cache, "127.0.0.1:0", anywhere=False) as metrics:
        found = scrape(metrics)
    assert value(found, "evicted_total") == value(found, "evicted_keys") == sum(lost)
    assert value(found, "failures_total", reason="evicted") == sum(lost)


def test_what_is_read_often_stays(cached: UcxStore) -> None:
    for number in range(10):
        write(cached, f"hot/{number}", content(SIZE, number))
    for number in range(300):
        write(cached, f"cold/{number}", content(SIZE, number))
        assert read(cached, f"hot/{number % 10}") == content(SIZE, number % 10)


def test_a_lost_value_is_no_missing_one(cached: UcxStore) -> None:
    fill(cached)
    assert is_lost(cached, "k/0")
    assert sync(cached.exists("k/0"))
    assert sync(cached.getsize("k/0")) == SIZE
    assert len(listed(cached)) == 200
    with pytest.raises(EvictedError, match="'k/0' was evicted"):
        sync(cached.set_if_not_exists("k/0", as_buffer(b"default")))
    out = np.empty(SIZE, "u1")
    with pytest.raises(EvictedError, match="'k/0' was evicted"):
        cached.get_into_sync("k/0", out)
    write(cached, "k/0", b"new")
    assert read(cached, "k/0") == b"new"
    assert is_lost(cached, "k/1")
    cached.delete_sync("k/1")
    assert read(cached, "k/1") is None
    assert not sync(cached.exists("k/1"))
    assert is_lost(cached, "k/2")
    sync(cached.delete_dir("k"))
    assert read(cached, "k/2") is None
    assert listed(cached) == []
    assert sync(cached.server_stats())["evicted_keys"] == 0


def test_zarr_reads_no_fill_value_in_place_of_a_lost_chunk(cached: UcxStore) -> None:
    array = zarr.create_array(
        cached,
        name="a",
        shape=(200, SIZE),
        chunks=(1, SIZE),
        dtype="u1",
        fill_value=7,
        compressors=None,
    )
    for number in range(200):
        array[number] = np.frombuffer(content(SIZE, number), "u1")
    lost = 0
    for number in range(200):
        try:
            found = array[number]
        except EvictedError as error:
            assert f"'a/c/{number}/0' was evicted" in str(error)  # noqa: PT017
            lost += 1
        else:
            assert found.tobytes() == content(SIZE, number)
    assert 120 < lost < 180
    with pytest.raises(EvictedError):
        array[:]
    with pytest.raises(EvictedError):
        array[0, 5:10] = 1  # a part: the rest of the chunk is lost
    array[0] = 1
    assert (array[0] == 1).all()
    again = zarr.open_array(cached, path="a", mode="r")
    assert again.shape == (200, SIZE)
    sync(cached.delete_dir("a/c"))
    assert (again[:] == 7).all()


def test_only_what_is_below_the_prefixes_is_lost(plane: str) -> None:
    with (
        Server("memory://", memory="16MiB", when_full="evict:cache, /more/b") as server,
        UcxStore(f"{server.address}/cache", local=plane) as cache,
        UcxStore(server.address, local=plane) as store,
    ):
        write(store, "cachet", content(SIZE, "t"))
        write(store, "more/a", content(SIZE, "a"))
        fill(cache)
        fill(store, prefix="more/b")
        assert read(store, "cachet") == content(SIZE, "t")
        assert read(store, "more/a") == content(SIZE, "a")
        assert is_lost(cache, "k/0")
        assert is_lost(store, "cache/k/0")
        with pytest.raises(StorageError, match=r"no room for .*\(--memory") as caught:
            fill(store, prefix="kept")
        assert not isinstance(caught.value, EvictedError)
        for key in listed(store, "kept"):
            assert read(store, key) == content(SIZE, int(key.removeprefix("kept/")))


def test_a_view_keeps_its_value(cache: Server) -> None:
    with UcxStore(cache.address, local="auto") as store:
        write(store, "viewed", content(2 * MIB, "v"))
        with store.view_sync("viewed", map=True) as view:
            fill(store)
            assert view.array.tobytes() == content(2 * MIB, "v")
            assert read(store, "viewed") == content(2 * MIB, "v")
        assert read(store, "viewed") == content(2 * MIB, "v")


def test_scratch_spaces_find_room_in_a_cache(cached: UcxStore) -> None:
    fill(cached)
    with cached.scratch_sync("8MiB") as scratch:
        fill(scratch.store(), 30)
        fill(cached, prefix="more")
        for number in range(30):
            assert read(scratch.store(), f"k/{number}") == content(SIZE, number)


# ---- spilling ----


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "spilled"


@pytest.fixture
def spilling(folder: Path) -> Iterator[Server]:
    with Server("memory://", memory="16MiB", when_full=f"spill:{folder}", threads=2) as server:
        yield server


@pytest.fixture
def store(spilling: Server, plane: str) -> Iterator[UcxStore]:
    with UcxStore(spilling.address, local=plane) as store:
        yield store


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.ucxstore-spilled"))


def test_more_than_the_memory_is_there(spilling: Server, store: UcxStore, folder: Path) -> None:
    fill(store, 400)
    for number in range(400):
        assert read(store, f"k/{number}") == content(SIZE, number)
    assert len(listed(store)) == 400
    stats = sync(store.server_stats())
    assert stats["memory_used"] <= 16 * MIB
    assert (stats["value_count"], stats["value_bytes"]) == (400, 400 * SIZE)
    assert 300 < stats["spilled"] < 400
    assert stats["spilled_bytes"] == stats["spilled"] * SIZE
    assert len(files(folder)) >= stats["spilled"]
    assert f"{stats['spilled']} of them in files" in run("stats", spilling.address).stdout
    sync(store.delete_dir("k"))
    eventually(lambda: not files(folder))
    assert sync(store.server_stats())["spilled_bytes"] == 0
    fill(store, 400)
    spilling.close()
    assert not files(folder)


def test_parts_of_spilled_values(store: UcxStore) -> None:
    fill(store)
    prototype = default_buffer_prototype()
    value = content(SIZE, 0)

    def part(request: Any) -> bytes:
        found = store.get_sync("k/0", prototype=prototype, byte_range=request)
        assert found is not None
        return found.to_bytes()

    assert part(RangeByteRequest(10, 1000)) == value[10:1000]
    assert part(OffsetByteRequest(SIZE - 7)) == value[-7:]
    assert part(SuffixByteRequest(50_000)) == value[-50_000:]


def test_arrays_larger_than_the_memory(store: UcxStore) -> None:
    values = np.random.default_rng(1).random((3000, 2000))  # 48 MB
    raw = zarr.create_array(
        store, name="raw", shape=values.shape, chunks=(300, 400), dtype="f8", compressors=None
    )
    raw[:] = values
    np.testing.assert_array_equal(raw[:], values)
    np.testing.assert_array_equal(raw[17:2001:3, 5:1999:7], values[17:2001:3, 5:1999:7])
    np.testing.assert_array_equal(raw.oindex[[5, 2999], :], values[[5, 2999], :])
    raw[100:400, 100:500] = 0
    values[100:400, 100:500] = 0
    np.testing.assert_array_equal(raw[:], values)
    packed = zarr.create_array(
        store, name="packed", shape=values.shape, chunks=(100, 100), shards=(600, 400), dtype="f8"
    )
    packed[:] = values
    np.testing.assert_array_equal(packed[:], values)
    np.testing.assert_array_equal(raw[:], values)
    assert sync(store.server_stats())["spilled_bytes"] > 16 * MIB


def test_a_value_larger_than_the_memory(store: UcxStore) -> None:
    value = content(40 * MIB, "large")
    write(store, "large", value)
    assert read(store, "large") == value
    with store.allocate_sync("larger", 40 * MIB) as allocated:
        allocated.view(np.uint8)[:] = np.frombuffer(value, "u1")
        allocated.commit_sync()
    assert read(store, "larger") == value


def test_a_directory_has_one_server(spilling: Server, store: UcxStore, folder: Path) -> None:
    fill(store)
    eventually(lambda: files(folder))
    with pytest.raises(OSError, match=rf"when_full: {re.escape(str(folder))} is in use"):
        Server("memory://", when_full=f"spill:{folder}")
    assert read(store, "k/0") == content(SIZE, 0)
    spilling.close()
    with Server("memory://", when_full=f"spill:{folder}"):
        pass


def test_what_a_killed_server_leaves_is_removed(folder: Path) -> None:
    killed = Server.spawn("memory://", memory="16MiB", when_full=f"spill:{folder}")
    with killed, UcxStore(killed.address) as store:
        fill(store)
        eventually(lambda: files(folder))
        os.kill(killed.pid, signal.SIGKILL)
        eventually(lambda: killed.returncode is not None)
    assert files(folder)
    mine = folder / "mine.txt"
    mine.touch()
    with Server("memory://", when_full=f"spill:{folder}"):
        assert not files(folder)
    assert mine.exists()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "disk"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "ucxstore-test", str(path)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False).returncode != 0:
        pytest.skip("a disk that is full needs the right to mount one")
    yield path
    subprocess.run(["umount", str(path)], check=True)


def test_a_full_disk_refuses_and_loses_nothing(small_disk: Path, plane: str) -> None:
    with (
        Server("memory://", memory="16MiB", when_full=f"spill:{small_disk}") as server,
        UcxStore(server.address, local=plane) as store,
    ):
        stored = 0
        while _is_stored(store, f"k/{stored}", content(SIZE, stored)):
            stored += 1
        with pytest.raises(StorageError, match=r"no room for .*No space left on device; .*--mem"):
            write(store, f"k/{stored}", content(SIZE, stored))
        assert stored > 90
        assert server.failures()["full"] == 2
        assert read(store, f"k/{stored}") is None
        for number in range(stored):
            assert read(store, f"k/{number}") == content(SIZE, number)
        for number in range(50):
            store.delete_sync(f"k/{number}")
        eventually(lambda: _is_stored(store, "again", content(SIZE, "again")))
        assert read(store, "again") == content(SIZE, "again")


def _is_stored(store: UcxStore, key: str, value: bytes) -> bool:
    with suppress(StorageError):
        write(store, key, value)
        return True
    return False


# ---- several clients, against a dictionary ----


class Client(threading.Thread):
    """A client that does something at random to keys of its own, and compares."""

    def __init__(self, address: str, plane: str, number: int, loses: bool) -> None:
        super().__init__()
        self.address, self.plane, self.loses = address, plane, loses
        self.prefix = f"client/{number}"
        self.random = random.Random(number)
        self.values: dict[str, bytes] = {}
        self.failure: BaseException | None = None
        self.lost = 0
        self.refused = 0
        self.sets = 0

    def run(self) -> None:
        try:
            asyncio.run(self._run())
        except BaseException as error:
            self.failure = error

    async def _run(self) -> None:
        address = f"{self.address}/{self.prefix}"
        with UcxStore(address, local=self.plane) as self.store:
            for _ in range(500):
                await self._step()
            for key in list(self.values):
                await self._check(key)

    async def _step(self) -> None:
        what = self.random.random()
        key = f"{self.random.randrange(6)}/{self.random.randrange(10)}"
        if what < 0.4:
            await self._check(key)
        elif what < 0.45:
            await asyncio.gather(*[self._check(f"{key[0]}/{n}") for n in range(10)])
        elif what < 0.85:
            await self._set(key)
        elif what < 0.92:
            await self.store.delete(key)
            self.values.pop(key, None)
        elif what < 0.95:
            await self.store.delete_dir(key[0])
            self.values = {each: v for each, v in self.values.items() if each[0] != key[0]}
        else:
            assert {each async for each in self.store.list()} == set(self.values)

    async def _set(self, key: str) -> None:
        size = self.random.choice([0, 10, 5000, 100_000, 300_000, 1_500_000])
        value = self.random.randbytes(size)
        self.sets += 1
        try:
            await self.store.set(key, as_buffer(value))
            self.values[key] = value
        except StorageError as error:
            assert "no room" in str(error)  # noqa: PT017
            self.refused += 1

    async def _check(self, key: str) -> None:
        expected = self.values.get(key)
        begin = self.random.randrange(1000)
        whole = self.random.random() < 0.7
        request = None if whole else OffsetByteRequest(begin)
        try:
            found = await self.store.get(key, default_buffer_prototype(), request)
        except EvictedError:
            assert self.loses
            assert expected is not None
            self.lost += 1
            return
        if found is None:
            assert expected is None, key
        else:
            assert expected is not None, key
            assert found.to_bytes() == (expected if whole else expected[begin:]), key


@pytest.mark.parametrize("policy", ["evict", "spill"])
def test_several_clients_find_what_they_have_written(policy: str, folder: Path) -> None:
    when_full = "evict" if policy == "evict" else f"spill:{folder}"
    with Server(
        "memory://", memory="16MiB", when_full=when_full, threads=2, network="ucx"
    ) as server:
        ways = ["auto", "ucx", "auto", "ucx"]
        clients = [
            Client(server.address, way, number, policy == "evict")
            for number, way in enumerate(ways)
        ]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        for client in clients:
            if client.failure is not None:
                raise client.failure
        assert (sum(client.lost for client in clients) > 0) == (policy == "evict")
        most_refused = sum(client.sets for client in clients) // 10 if policy == "evict" else 0
        assert sum(client.refused for client in clients) <= most_refused
        assert server.stats()["memory_used"] <= 16 * MIB
        assert (server.stats()["spilled"] > 0) == (policy == "spill")


# ---- the option ----


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("refuse", WhenFull("refuse")),
        ("evict", WhenFull("evict", ("",))),
        ("evict:a", WhenFull("evict", ("a/",))),
        ("evict:/a/b/, c", WhenFull("evict", ("a/b/", "c/"))),
        ("spill:/a:b", WhenFull("spill", directory="/a:b")),
    ],
)
def test_what_it_means(text: str, parsed: WhenFull) -> None:
    assert WhenFull.parse("when_full", text) == parsed


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' is none of 'refuse'"),
        ("drop", "'drop' is none of 'refuse'"),
        ("refuse:a", "'refuse:a' is none of"),
        ("spill", "'spill' is none of"),
        ("spill:", "'spill:' is none of"),
        ("evict:", "'evict:': '' is no prefix of keys: it is empty"),
        ("evict:a,,b", "'evict:a,,b': '' is no prefix of keys: it is empty"),
        ("evict:../a", r"'../a' is no prefix of keys: it has a '\.\.' segment"),
    ],
)
def test_what_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^when_full: {message}|^when_full: .*: {message}"):
        Server("memory://", when_full=text)


def test_only_of_memory(tmp_path: Path) -> None:
    done = run("serve", tmp_path, "--when-full", "evict")
    assert (done.returncode, done.stdout) == (2, "")
    assert "when_full: only memory:// has this option" in done.stderr


def test_a_directory_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(OSError, match=r"^(\[Errno \d+\] )?when_full: "):
        Server("memory://", when_full=f"spill:{file}")


def test_the_banner_says_it(spilling: Server, folder: Path) -> None:
    options = ServerOptions(when_full=f"spill:{folder}")
    shown = banner.text(options, CommandOptions(location="memory://"), spilling)
    assert re.search(rf"memory, 0 B used of 16.8 MB; when full: spill:{folder}\n", shown)
