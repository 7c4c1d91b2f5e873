"""The disk tier: values fetched during a change are not kept, and a slow disk is not waited for."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import obstore
import pytest
import zarr
from obstore.store import MemoryStore
from zarr.core.buffer import cpu

from tests.eventually import eventually, eventually_async
from tests.fixtures import store_of_the_server as store_of_the_server
from tests.server.sources.test_cache import get, put
from tests.server.sources.test_cache_dir import files
from ucxstore import UcxStore
from ucxstore.server import Server
from ucxstore.server.sources import tiered
from ucxstore.server.sources.cache_dir import CacheDirectory
from ucxstore.server.sources.doubts import Doubts
from ucxstore.server.sources.object_store import ObjectSource
from ucxstore.server.sources.source import FoundValue, Part
from ucxstore.server.sources.tiered import DiskTier


class Source:
    """A source of one value."""

    has_parts = True
    doubts = Doubts(1.0)
    gets = 0

    async def get(self, key: str, part: object, known: str = "") -> FoundValue:
        self.gets += 1
        return FoundValue(b"value", "etag", 5)


@pytest.fixture
def directory(folder: Path) -> CacheDirectory:
    return CacheDirectory(folder, 1 << 20)


@pytest.fixture
def tier(directory: CacheDirectory) -> Iterator[DiskTier]:
    source = DiskTier(Source(), directory, None, 2.0)
    yield source
    source.close()


async def get_and_keep(tier: DiskTier, key: str, part: Part | None = None) -> FoundValue:
    """Do as the carrier does where nobody changes the key meanwhile."""
    found = await tier.get(key, part)
    assert found is not None
    tier.keep(key, part, found)
    return found


class Gated(zarr.storage.MemoryStore):
    """A store in which some calls stay under way, after they have been carried out."""

    def __init__(self) -> None:
        super().__init__()
        self.held = ""
        self.underway: list[str] = []

    async def _pass(self, what: str) -> None:
        self.underway.append(what)
        await eventually_async(lambda: self.held != what, pause=0.001)

    async def get(self, key: str, *arguments: Any, **options: Any) -> Any:
        value = await super().get(key, *arguments, **options)
        await self._pass("get")
        return value

    async def set(self, key: str, value: Any, *arguments: Any) -> None:
        await super().set(key, value, *arguments)
        await self._pass("set")


@pytest.fixture
def gated() -> Gated:
    return Gated()


@pytest.fixture
def server(gated: Gated, folder: Path) -> Iterator[Server]:
    """A server without a cache in memory: it reads files or its source."""
    with Server(gated, cache=0, cache_dir=folder, cache_dir_size="1MiB") as server:
        yield server


@pytest.mark.parametrize("last", [b"new", None], ids=["written", "deleted"])
def test_what_is_read_while_a_key_changes_is_not_kept(
    gated: Gated, store: UcxStore, last: bytes | None
) -> None:
    gated.set_sync("k", cpu.Buffer.from_bytes(b"old"))
    gated.held = "get"
    with ThreadPoolExecutor() as threads:
        reading = threads.submit(get, store, "k")
        eventually(lambda: gated.underway == ["get"])
        put(store, "k", b"new")
        if last is None:
            asyncio.run(store.delete("k"))
        gated.held = ""
        assert reading.result() == b"old"
    assert get(store, "k") == last


def test_what_is_read_while_its_prefix_is_removed_is_not_kept(
    gated: Gated, store: UcxStore
) -> None:
    gated.set_sync("a/k", cpu.Buffer.from_bytes(b"old"))
    gated.held = "get"
    with ThreadPoolExecutor() as threads:
        reading = threads.submit(get, store, "a/k")
        eventually(lambda: gated.underway == ["get"])
        asyncio.run(store.delete_dir("a"))
        gated.held = ""
        assert reading.result() == b"old"
    assert get(store, "a/k") is None


def test_of_two_writes_at_once_the_last_is_kept(
    gated: Gated, server: Server, store: UcxStore
) -> None:
    gated.held = "set"
    with ThreadPoolExecutor() as threads:
        writes = [threads.submit(put, store, "k", text) for text in (b"one", b"two")]
        eventually(lambda: server.stats()["writing_bytes"] == len(b"one" + b"two"))
        eventually(lambda: gated.underway)
        assert gated.underway == ["set"], "the other one waits for it"
        gated.held = ""
        for write in writes:
            write.result()
    last = gated.get_sync("k")
    assert last is not None
    gated.set_sync("k", cpu.Buffer.from_bytes(b"of nobody"))
    assert get(store, "k") == last.to_bytes()


async def test_a_disk_that_hangs_is_not_waited_for(
    directory: CacheDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_back = threading.Event()

    class Hung:
        bytes = 0

        def find(self, key: str) -> object:
            return object()

        def add(self, *_: object) -> None: ...

        def read(self, found: object) -> None:
            assert put_back.wait(30)

        def __getattr__(self, name: str) -> Any:
            return lambda *_: None

    monkeypatch.setattr(directory, "disk", Hung())
    tier = DiskTier(Source(), directory, None, 2.0)
    source: Any = tier.source
    try:
        assert bytes((await get_and_keep(tier, "k")).buffer) == b"value"
        before = asyncio.get_running_loop().time()
        assert bytes((await get_and_keep(tier, "k")).buffer) == b"value"
        assert asyncio.get_running_loop().time() < before + tier._disk_timeout, "it is left alone"
        assert source.gets == 2
        assert int(tier.counted["disk_failures"]) == 1
    finally:
        put_back.set()
        monkeypatch.undo()
        tier.close()


async def test_what_waits_for_a_slow_disk_is_bounded(
    tier: DiskTier, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    monkeypatch.setattr(tiered, "BACKLOG_BYTES", 15)
    source: Any = tier.source
    busy = threading.Event()
    for _ in range(2):
        tier._writers.submit(busy.wait, 30)
    try:
        for key in "abcd":
            await get_and_keep(tier, key)
        assert tier._backlog == 15
    finally:
        busy.set()
    await asyncio.to_thread(eventually, lambda: len(files(folder)) == 3)
    await eventually_async(lambda: not tier._backlog, pause=0)
    await get_and_keep(tier, "d")
    assert source.gets == 5


@pytest.mark.parametrize("answers", [(False, True), (True, False)], ids=["before", "after"])
async def test_what_is_not_believed_before_and_after_it_was_read_is_asked_for(
    tier: DiskTier, directory: CacheDirectory, answers: tuple[bool, ...]
) -> None:
    """A server that has joined meanwhile has forgotten what it read before."""
    await get_and_keep(tier, "k")
    await asyncio.to_thread(eventually, lambda: directory.disk.find("k") is not None)
    left = iter(answers)
    tier.believes = lambda _: next(left)
    await tier.get("k", None)
    source: Any = tier.source
    assert source.gets == 2


@pytest.mark.parametrize("believed", [True, False], ids=["forever", "always"])
async def test_a_look_at_an_object_finds_all_of_a_small_one(
    directory: CacheDirectory, believed: bool
) -> None:
    """The first request for an unknown object is for its beginning, which may be all of it."""
    objects = MemoryStore()
    await obstore.put_async(objects, "k", b"small")
    await obstore.put_async(objects, "large", b"l" * 100)
    source = ObjectSource(objects, "memory")
    tier = DiskTier(source, directory, None if believed else 0.0, 2.0)
    try:
        look = Part(0, 64, "")
        first = await get_and_keep(tier, "k", look)
        await asyncio.to_thread(eventually, lambda: directory.disk.find("k") is not None)
        if believed:
            await obstore.delete_async(objects, "k")  # it is not asked for
        for part in (look, None):
            again = await get_and_keep(tier, "k", part)
            assert (bytes(again.buffer), again.etag, again.size) == (b"small", first.etag, 5)
        assert int(tier.counted["disk_hits"]) == 2
        # Of a large object it is not all, and is not taken for all.
        for _ in range(2):
            found = await get_and_keep(tier, "large", look)
            assert (bytes(found.buffer), found.size) == (b"l" * 64, 100)
            whole = await get_and_keep(tier, "large", None)
            assert bytes(whole.buffer) == b"l" * 100
        part = await get_and_keep(tier, "large", Part(0, 64, found.etag))  # type: ignore[assignment]
        assert bytes(part.buffer) == b"l" * 64
        # An object that has changed is fetched.
        await obstore.put_async(objects, "large", b"m" * 10)
        if not believed:
            other = await get_and_keep(tier, "large", look)
            assert (bytes(other.buffer), other.size) == (b"m" * 10, 10)
    finally:
        tier.close()
