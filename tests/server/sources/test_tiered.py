"""A source behind files: what overlaps a change is not kept, and a disk is not waited for."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import obstore
import pytest
from obstore.store import MemoryStore

from tests.eventually import eventually
from ucxstore.server.sources import tiered
from ucxstore.server.sources.cache_dir import CacheDirectory
from ucxstore.server.sources.changes import Changes
from ucxstore.server.sources.object_store import ObjectSource
from ucxstore.server.sources.source import Found, Memory, Part
from ucxstore.server.sources.tiered import TieredSource


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def files(folder: Path) -> list[Path]:
    return list(folder.glob("*.ucxstore-cached"))


class Slow:
    """A source that answers when it is told to."""

    has_parts = True

    def __init__(self) -> None:
        self.value = b"old"
        self.gate = asyncio.Event()
        self.gate.set()
        self.gets = 0

    async def get(self, key: str, part: object, known: str = "") -> Found:
        self.gets += 1
        value = self.value
        await self.gate.wait()
        return Found(value, value.decode(), len(value))

    async def put(self, key: str, value: Memory, *, if_absent: bool) -> str:
        await self.gate.wait()
        self.value = value.tobytes()
        return self.value.decode()

    async def remove(self, keys: object) -> None:
        await self.gate.wait()


@pytest.fixture
def tier(folder: Path) -> Iterator[TieredSource]:
    source = TieredSource(Slow(), CacheDirectory(folder, 1 << 20), None, 2.0)  # type: ignore[arg-type]
    yield source
    source.close()


async def value_of(tier: TieredSource) -> bytes:
    found = await tier.get("k", None)
    assert found is not None
    return bytes(found.buffer)


async def test_what_is_read_while_a_key_changes_is_not_kept(tier: TieredSource) -> None:
    slow: Any = tier._source
    slow.gate.clear()
    reading = asyncio.create_task(value_of(tier))
    while not slow.gets:
        await asyncio.sleep(0)
    new = np.frombuffer(b"new", np.uint8)
    writing = asyncio.create_task(tier.put("k", new, if_absent=False))
    await asyncio.sleep(0)
    slow.gate.set()
    assert await writing == "new"
    assert await reading == b"old"
    assert await value_of(tier) == b"new"


async def test_of_two_writes_at_once_neither_is_kept(tier: TieredSource) -> None:
    slow: Any = tier._source
    slow.gate.clear()
    values = [np.frombuffer(text, np.uint8) for text in (b"one", b"two")]
    writes = [asyncio.create_task(tier.put("k", one, if_absent=False)) for one in values]
    await asyncio.sleep(0)
    slow.gate.set()
    await asyncio.gather(*writes)
    slow.value = b"the last"
    assert await value_of(tier) == b"the last"


async def test_a_disk_that_hangs_is_not_waited_for(tier: TieredSource) -> None:
    slow: Any = tier._source
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

    tier._disk = Hung()  # type: ignore[assignment]
    try:
        assert await value_of(tier) == b"old"
        before = asyncio.get_running_loop().time()
        assert await value_of(tier) == b"old"
        assert asyncio.get_running_loop().time() < before + tier._patience, "it is left alone"
        assert slow.gets == 2
        assert tier.stats()["disk_failures"] == 1
    finally:
        put_back.set()


async def test_what_waits_for_a_slow_disk_is_bounded(
    tier: TieredSource, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    monkeypatch.setattr(tiered, "_BACKLOG_BYTES", 5)
    slow: Any = tier._source
    busy = threading.Event()
    for _ in range(2):
        tier._writers.submit(busy.wait, 30)
    try:
        for key in "abc":
            assert await tier.get(key, None)
        assert tier._backlog == 3
    finally:
        busy.set()
    await asyncio.to_thread(eventually, lambda: len(files(folder)) == 1)
    while tier._backlog:
        await asyncio.sleep(0)
    assert await tier.get("d", None)
    assert slow.gets == 4


def test_who_is_alone_with_a_key() -> None:
    changes = Changes()
    with changes.reading("a/k") as reading, changes.reading("a/k") as other:
        with changes.changing(["b", "c"]):
            pass
        assert reading.alone
        with changes.changing(["a/k"]) as (change,):
            assert change.alone
            with changes.reading("a/k") as late:
                assert not late.alone
        assert not reading.alone
        assert not other.alone
    with changes.reading("a/k") as reading:
        assert reading.alone
        with changes.changing_prefix("a/"), changes.reading("a/l") as late:
            assert not late.alone
        assert not reading.alone
    with changes.changing(["k", "k"]) as claims:
        assert not claims[0].alone
    assert not changes._claims


@pytest.mark.parametrize("believed", [True, False], ids=["forever", "always"])
async def test_a_look_at_an_object_finds_all_of_a_small_one(folder: Path, believed: bool) -> None:
    """What is asked of an object that nothing is known of is its beginning, which may be all."""
    objects = MemoryStore()
    await obstore.put_async(objects, "k", b"small")
    await obstore.put_async(objects, "large", b"l" * 100)
    source = ObjectSource(objects, "memory")
    tier = TieredSource(source, CacheDirectory(folder, 1 << 20), None if believed else 0.0, 2.0)
    try:
        look = Part(0, 64, "")
        first = await tier.get("k", look)
        assert first is not None
        await asyncio.to_thread(eventually, lambda: tier._disk.find("k") is not None)
        if believed:
            await obstore.delete_async(objects, "k")  # it is not asked for
        for part in (look, None):
            again = await tier.get("k", part)
            assert again is not None
            assert (bytes(again.buffer), again.etag, again.size) == (b"small", first.etag, 5)
        assert tier.stats()["disk_hits"] == 2
        # Of a large one it is not all, and never taken for that.
        for _ in range(2):
            found = await tier.get("large", look)
            assert found is not None
            assert (bytes(found.buffer), found.size) == (b"l" * 64, 100)
            whole = await tier.get("large", None)
            assert whole is not None
            assert bytes(whole.buffer) == b"l" * 100
        part = await tier.get("large", Part(0, 64, found.etag))
        assert part is not None
        assert bytes(part.buffer) == b"l" * 64
        # One that is another by now is fetched.
        await obstore.put_async(objects, "large", b"m" * 10)
        if not believed:
            other = await tier.get("large", look)
            assert other is not None
            assert (bytes(other.buffer), other.size) == (b"m" * 10, 10)
    finally:
        tier.close()
