"""The limit of a server's memory, by every way of writing, over UCX and over the local plane."""

import asyncio
import contextlib
import re
import threading
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pytest
import zarr
from zarr.core.buffer import Buffer, cpu
from zarr.core.sync import sync

from tests.cli.command import run
from tests.eventually import eventually
from tests.values import keys_of
from ucxstore import StorageError, UcxStore
from ucxstore.server import Server
from ucxstore.server.options.available import default_memory

MIB = 1 << 20
LIMIT = 32 * MIB
FULL = r"no room for \d+ bytes: values take \d+ of 33554432 bytes of memory.*\(--memory, "


@pytest.fixture
def server() -> Iterator[Server]:
    with Server("memory://", memory="32MiB", threads=2) as server:
        yield server


@pytest.fixture(params=["off", "auto"])
def store(
    request: pytest.FixtureRequest, server: Server, monkeypatch: pytest.MonkeyPatch
) -> Iterator[UcxStore]:
    with UcxStore(server.address, local=request.param) as store:
        store.set_sync("there", buffer(1000))
        assert (store.stats()["lanes"] == ["local"]) == (request.param == "auto")
        yield store


def buffer(size: int) -> Buffer:
    return cpu.Buffer.from_bytes(bytes(size))


def used(server: Server) -> int:
    stats = server.stats()
    assert stats["memory_limit"] == LIMIT
    return stats["memory_used"]


def fill(store: UcxStore, size: int = 4 * MIB) -> list[str]:
    """Set values until there is no more room."""
    keys: list[str] = []
    while _is_stored(store, f"full/{len(keys)}", size):
        keys.append(f"full/{len(keys)}")
    with pytest.raises(StorageError, match=FULL):
        store.set_sync(f"full/{len(keys)}", buffer(size))
    return keys


def test_writes_are_refused_and_reads_go_on(server: Server, store: UcxStore) -> None:
    keys = fill(store)
    assert len(keys) == 7
    assert 28 * MIB < used(server) <= LIMIT
    for key in keys:
        assert len(store.get_sync(key) or b"") == 4 * MIB
    assert store.get_sync(f"full/{len(keys)}") is None
    assert len(sync(keys_of(store))) == len(keys) + 1
    store.set_sync("small", buffer(1000))
    store.delete_sync(keys[0])
    eventually(lambda: _is_stored(store, "again", 4 * MIB))
    assert used(server) <= LIMIT
    stats = sync(store.server_stats())
    assert (stats["memory_limit"], stats["value_count"]) == (LIMIT, len(keys) + 2)
    assert stats["value_bytes"] == 28 * MIB + 2000


def _is_stored(store: UcxStore, key: str, size: int) -> bool:
    with contextlib.suppress(StorageError):
        store.set_sync(key, buffer(size))
        return True
    return False


def test_values_are_replaced_at_the_limit(server: Server, store: UcxStore) -> None:
    keys = fill(store, MIB)
    for key in keys:
        eventually(partial(_is_stored, store, key, MIB))
        assert used(server) <= LIMIT
    assert server.stats()["value_count"] == len(keys) + 1


# ---- every way of writing ----


def _set(store: UcxStore, key: str) -> None:
    store.set_sync(key, buffer(4 * MIB))


def _set_if_not_exists(store: UcxStore, key: str) -> None:
    sync(store.set_if_not_exists(key, buffer(4 * MIB)))


def _small_values(store: UcxStore, key: str) -> None:
    for number in range(400):
        store.set_sync(f"{key}/{number}", buffer(10_000))


def _allocated(store: UcxStore, key: str) -> None:
    with store.allocate_sync(key, 4 * MIB) as value:
        value.view(np.uint8)[:] = 1
        value.commit_sync()


def _array(store: UcxStore, key: str) -> None:
    array = zarr.create_array(
        store, name=key, shape=(4 * MIB,), chunks=(MIB,), dtype="u1", compressors=None
    )
    array[:] = np.ones(4 * MIB, "u1")


def _parts_of_chunks(store: UcxStore, key: str) -> None:
    array = zarr.create_array(
        store, name=key, shape=(4 * MIB,), chunks=(2 * MIB,), dtype="u1", compressors=None
    )
    array[5 : 3 * MIB] = np.ones(3 * MIB - 5, "u1")


def _encoded(store: UcxStore, key: str) -> None:
    array = zarr.create_array(store, name=key, shape=(4 * MIB,), chunks=(MIB,), dtype="u1")
    array[:] = np.random.default_rng(0).integers(0, 255, 4 * MIB, "u1")


def _sharded(store: UcxStore, key: str) -> None:
    array = zarr.create_array(
        store,
        name=key,
        shape=(4 * MIB,),
        chunks=(MIB // 4,),
        shards=(2 * MIB,),
        dtype="u1",
        compressors=None,
    )
    array[:] = np.ones(4 * MIB, "u1")


WAYS: list[Callable[[UcxStore, str], None]] = [
    _set,
    _set_if_not_exists,
    _small_values,
    _allocated,
    _array,
    _parts_of_chunks,
    _encoded,
    _sharded,
]


@pytest.mark.parametrize("way", WAYS)
def test_no_way_of_writing_passes_it(
    server: Server, store: UcxStore, way: Callable[[UcxStore, str], None]
) -> None:
    most = 0
    for number in range(64):
        try:
            way(store, f"way/{number}")
        except StorageError as error:
            refusal = str(error)
            break
        finally:
            most = max(most, used(server))
    else:
        pytest.fail("256 MiB went into 32")
    assert re.search(FULL, refusal)
    assert MIB * 14 < most <= LIMIT
    assert store.get_sync("there") is not None
    assert server.failures()["full"] >= 1


def test_writers_cannot_pass_it_together(server: Server, store: UcxStore) -> None:
    most = 0
    done = threading.Event()

    def watch() -> None:
        nonlocal most
        while not done.wait(0.002):
            most = max(most, used(server))

    async def write(number: int) -> bool:
        try:
            await store.set(f"c/{number}", buffer(3 * MIB))
        except StorageError:
            return False
        return True

    async def write_all() -> list[bool]:
        return await asyncio.gather(*map(write, range(30)))

    watcher = threading.Thread(target=watch)
    watcher.start()
    stored = sync(write_all())
    done.set()
    watcher.join()
    assert 4 <= sum(stored) <= 10
    assert 0 < most <= LIMIT
    assert server.stats()["value_count"] == sum(stored) + 1


def test_scratch_spaces_are_within_it(server: Server, store: UcxStore) -> None:
    with store.scratch_sync("1GB") as scratch, store.scratch_sync("1GB") as other:
        assert len(fill(scratch.store())) == 7
        assert 28 * MIB < used(server) <= LIMIT
        with pytest.raises(StorageError, match=FULL):
            other.store().set_sync("a", buffer(4 * MIB))
        with pytest.raises(StorageError, match=FULL):
            store.set_sync("a", buffer(4 * MIB))
        assert used(server) <= LIMIT
    eventually(lambda: _is_stored(store, "a", 4 * MIB))


def test_scratch_with_a_limit_of_its_own_is_within_it() -> None:
    with (
        Server("memory://", memory=LIMIT, scratch_limit="8MiB") as server,
        UcxStore(server.address) as store,
        store.scratch_sync("1GB") as scratch,
    ):
        with pytest.raises(StorageError, match="of 8388608 bytes of scratch space"):
            scratch.store().set_sync("a", buffer(9 * MIB))
        scratch.store().set_sync("a", buffer(7 * MIB))
        assert 7 * MIB < used(server) < 8 * MIB
        assert server.stats()["scratch_bytes"] == 7 * MIB


# ---- the option ----


def test_the_default() -> None:
    with Server("memory://") as server:
        assert server.stats()["memory_limit"] == default_memory()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"memory": "much"}, "memory: 'much'"),
        ({"memory": 1000}, "memory: 1000 is less than 1048576 bytes"),
        ({"memory": True}, "memory: "),
    ],
)
def test_what_is_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=f"^{message}"):
        Server("memory://", **given)


def test_only_of_memory(tmp_path: object) -> None:
    done = run("serve", tmp_path, "--memory", "1GB")
    assert (done.returncode, done.stdout) == (2, "")
    assert "memory: only memory:// has this limit" in done.stderr


def test_the_command_tells_of_it(server: Server, store: UcxStore) -> None:
    store.set_sync("a", buffer(8 * MIB))
    printed = run("stats", server.address).stdout
    assert "of 33.6 MB used (26%), 2 values of 8.4 MB" in printed
