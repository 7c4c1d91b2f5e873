"""Any zarr store behind a server."""

import asyncio
import gc
import weakref
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import zarr
from zarr.abc.store import ByteRequest, Store
from zarr.core.buffer import Buffer, BufferPrototype, cpu, default_buffer_prototype
from zarr.storage import LocalStore, MemoryStore, WrapperStore

from tests.eventually import eventually
from tests.server.sources.test_cache import get, put
from ucxstore import UcxStore
from ucxstore.base.errors import StorageError
from ucxstore.server import Server

PROTOTYPE = default_buffer_prototype()


class Watched(WrapperStore[Store]):
    """Counts gets, and fails where it is told to."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.gets: Counter[str] = Counter()
        self.broken: set[str] = set()

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        self.gets[key] += 1
        if key in self.broken:
            raise OSError(5, "the disk is on fire")
        return await super().get(key, prototype, byte_range)


class Array(np.ndarray):
    """An array that takes weak references."""


class Passing(MemoryStore):
    """Makes a new array for each get, and keeps only a weak reference to it."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[weakref.ref[Array]] = []

    async def get(  # type: ignore[override]
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        array = np.full(100_000, 7, "u1").view(Array)
        self.made.append(weakref.ref(array))
        return cpu.Buffer(array)

    def alive(self) -> int:
        """Count the arrays that something still has."""
        gc.collect()
        return sum(reference() is not None for reference in self.made)


@pytest.mark.parametrize("kind", ["memory", "local"])
@pytest.mark.parametrize("shards", [None, (200, 200)])
def test_an_array(kind: str, shards: tuple[int, int] | None, tmp_path: Path) -> None:
    behind: Store = MemoryStore() if kind == "memory" else LocalStore(tmp_path)
    values = np.random.default_rng(0).random((300, 300))
    with Server(behind) as server, UcxStore(server.address) as store:
        array = zarr.create_array(
            store, name="group/a", shape=(300, 300), shards=shards, chunks=(100, 100), dtype="f8"
        )
        array[:] = values
        np.testing.assert_array_equal(array[50:250, ::3], values[50:250, ::3])
        assert asyncio.run(store.exists("group/a/zarr.json"))
        assert sorted(zarr.open_group(store, path="group", mode="r").array_keys()) == ["a"]
    np.testing.assert_array_equal(zarr.open_array(behind, path="group/a", mode="r")[:], values)


def test_one_request_for_each_value() -> None:
    behind = MemoryStore()
    watched = Watched(behind)
    array = zarr.create_array(behind, shape=(100,), chunks=(10,), dtype="f8")
    array[:] = np.arange(100)
    with Server(watched) as server, UcxStore(server.address) as store:
        for _ in range(3):
            np.testing.assert_array_equal(zarr.open_array(store, mode="r")[:], np.arange(100))
    assert {watched.gets[f"c/{i}"] for i in range(10)} == {1}


def test_a_failure_is_told() -> None:
    watched = Watched(MemoryStore())
    watched.broken.add("k")
    with (
        Server(watched) as server,
        UcxStore(server.address) as store,
        pytest.raises(StorageError, match=r"'k' failed .*OSError: .*the disk is on fire"),
    ):
        get(store, "k")


def test_the_contract_of_other_methods(tmp_path: Path) -> None:
    async def check(store: UcxStore) -> None:
        for key in ("a/b", "a/c/d", "e"):
            await store.set(key, PROTOTYPE.buffer.from_bytes(b"123"))
        await store.set_if_not_exists("e", PROTOTYPE.buffer.from_bytes(b"other"))
        assert sorted([key async for key in store.list()]) == ["a/b", "a/c/d", "e"]
        assert [key async for key in store.list_prefix("a/c")] == ["a/c/d"]
        assert sorted([name async for name in store.list_dir("a")]) == ["b", "c"]
        assert await store.getsize("e") == 3
        assert await store.getsize_prefix("a") == 6
        await store.delete("missing")
        await store.delete_dir("a")
        assert [key async for key in store.list()] == ["e"]

    with Server(LocalStore(tmp_path)) as server, UcxStore(server.address) as store:
        asyncio.run(check(store))
        assert get(store, "e") == b"123"
        put(store, "e", b"4")
        assert get(store, "e") == b"4"


def test_values_are_sent_as_they_are_and_released() -> None:
    behind = Passing()

    with Server(behind, cache=250_000) as server:
        with UcxStore(server.address) as store:
            assert get(store, "a") == b"\7" * 100_000
            assert behind.alive() == 1, "the cache holds the buffer itself"
            for key in "bcdefgh":
                get(store, key)
        eventually(lambda: behind.alive() <= 2)
        assert len(behind.made) == 8
    eventually(lambda: behind.alive() == 0)
