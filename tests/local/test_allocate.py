"""Values that are computed into memory of the store's, and then committed."""

import asyncio
import gc
import os
import pickle
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import zarr
from zarr.core.sync import sync

from tests.adversity.scripts import Script
from tests.eventually import eventually
from tests.fixtures import store_of_the_server as store_of_the_server
from tests.local.servers import local_server_of_its_own as local_server_of_its_own
from tests.values import as_buffer
from ucxstore import (
    Allocation,
    ConnectError,
    InvalidKeyError,
    ReadOnlyServerError,
    ServerLostError,
    StorageError,
    UcxStore,
)
from ucxstore.base.native import core
from ucxstore.server import Server

SIZE = 3_000_000


def pattern(size: int = SIZE, seed: int = 0) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, size, "u1")


def read(store: UcxStore, key: str = "c/0") -> npt.NDArray[np.uint8] | None:
    value = store.get_sync(key)
    return None if value is None else np.asarray(value.as_numpy_array())


def written(store: UcxStore, value: npt.NDArray[np.uint8], key: str = "c/0") -> Allocation:
    allocation = store.allocate_sync(key, value.size)
    allocation.array[:] = value
    return allocation


def adopted(store: UcxStore) -> int:
    return sync(store.server_stats())["adopted"]


class Files:
    """Files with values that this process has made since, and has open or mapped."""

    def __init__(self) -> None:
        self._before = set(self._inodes())

    @staticmethod
    def _inodes() -> Iterator[int]:
        for each in Path("/proc/self/fd").iterdir():
            try:
                if "ucxstore-value" in str(each.readlink()):
                    yield each.stat().st_ino
            except FileNotFoundError:  # the one that lists them
                continue
        for line in Path("/proc/self/maps").read_text().splitlines():
            if "memfd:ucxstore-value" in line:
                yield int(line.split()[4])

    def count(self) -> int:
        """Count descriptors and mappings; not those of servers of other tests in this process."""
        return sum(inode not in self._before for inode in self._inodes())


@pytest.fixture
def files() -> Files:
    return Files()


@pytest.fixture
def distant() -> Iterator[UcxStore]:
    """A store of a server in a process of its own."""
    with Server.spawn("memory://", local=True) as server, UcxStore(server.address) as store:
        yield store


@pytest.fixture(params=["memory", "ucx", "directory", "object", "three servers"])
def any_store(request: pytest.FixtureRequest, prefix: str) -> Iterator[UcxStore]:
    """A store by every way that a value can take."""
    match request.param:
        case "three servers":
            servers = request.getfixturevalue("three_servers")
            places = ",".join(server.address.removeprefix("ucx://") for server in servers)
            address = f"ucx://{places}"
        case "ucx":
            address = request.getfixturevalue("memory_server").address
        case name:
            address = request.getfixturevalue(f"{name}_server").address
    with UcxStore(
        f"{address}/{prefix}", local="off" if request.param == "ucx" else "auto"
    ) as store:
        yield store


# ---- whatever way it takes ----


@pytest.mark.parametrize("size", [0, 1, 100_000, (1 << 20) - 1, 1 << 20, 20_000_003])
def test_a_value_of_any_size(any_store: UcxStore, size: int) -> None:
    value = pattern(size)
    with written(any_store, value) as allocation:
        kept = allocation.array
        assert read(any_store) is None
        before = any_store.stats()["bytes_written"]
        assert allocation.commit_sync() is True
    assert any_store.stats()["bytes_written"] == before + size
    np.testing.assert_array_equal(read(any_store), value)
    kept[:] = 1
    np.testing.assert_array_equal(read(any_store), value)
    assert (kept == 1).all()


def test_asynchronously(any_store: UcxStore) -> None:
    async def act() -> bool:
        allocation = await any_store.allocate("c/0", SIZE)
        allocation.array[:] = pattern()
        return await allocation.commit()

    assert asyncio.run(act()) is True
    np.testing.assert_array_equal(read(any_store), pattern())


def test_if_absent(any_store: UcxStore) -> None:
    assert written(any_store, pattern(seed=1)).commit_sync(if_absent=True) is True
    assert written(any_store, pattern(seed=2)).commit_sync(if_absent=True) is False
    second = written(any_store, pattern(seed=2))
    assert asyncio.run(second.commit(if_absent=True)) is False
    np.testing.assert_array_equal(read(any_store), pattern(seed=1))
    assert written(any_store, pattern(seed=2)).commit_sync() is True
    np.testing.assert_array_equal(read(any_store), pattern(seed=2))


def test_metadata(any_store: UcxStore) -> None:
    """Each of several servers has a copy."""
    assert written(any_store, pattern(), "a/zarr.json").commit_sync(if_absent=True) is True
    np.testing.assert_array_equal(read(any_store, "a/zarr.json"), pattern())
    assert written(any_store, pattern(seed=1), "a/zarr.json").commit_sync() is True
    np.testing.assert_array_equal(read(any_store, "a/zarr.json"), pattern(seed=1))


def test_a_second_commit(any_store: UcxStore) -> None:
    allocation = written(any_store, pattern())
    allocation.commit_sync()
    for call in (allocation.commit_sync, lambda: allocation.array, lambda: allocation.view("f4")):
        with pytest.raises(ValueError, match="'c/0' was committed or dropped"):
            call()
    with pytest.raises(ValueError, match="was committed or dropped"):
        asyncio.run(allocation.commit())
    allocation.drop()
    np.testing.assert_array_equal(read(any_store), pattern())


def test_one_that_is_left_is_dropped(any_store: UcxStore) -> None:
    any_store.set_sync("c/0", as_buffer(b"before"))
    with written(any_store, pattern()):
        pass
    with pytest.raises(ZeroDivisionError), written(any_store, pattern()):
        _ = 1 / 0
    with written(any_store, pattern()) as allocation:
        kept = allocation.array
        allocation.drop()
        with pytest.raises(ValueError, match="committed or dropped"):
            allocation.commit_sync()
    np.testing.assert_array_equal(kept, pattern())
    del allocation
    allocation = written(any_store, pattern())
    del allocation
    gc.collect()
    found = read(any_store)
    assert found is not None
    assert found.tobytes() == b"before"


def test_its_memory(any_store: UcxStore) -> None:
    with any_store.allocate_sync("c/0", 24_000_000) as allocation:
        assert allocation.nbytes == 24_000_000
        assert allocation.key == "c/0"
        numbers = allocation.view("f8", (1000, 3000))
        numbers[...] = np.arange(3_000_000).reshape(1000, 3000)
        assert allocation.view("i2").shape == (12_000_000,)
        assert memoryview(allocation).nbytes == 24_000_000
        assert not memoryview(allocation).readonly
        np.testing.assert_array_equal(np.asarray(allocation).view("f8"), numbers.ravel())
        with pytest.raises(ValueError, match="reshape"):
            allocation.view("f8", (1000, 3001))
        allocation.commit_sync()
    np.testing.assert_array_equal(
        read(any_store), numbers.view("u1").ravel(), err_msg="as it was committed"
    )


def test_a_chunk_of_an_array(any_store: UcxStore) -> None:
    array = zarr.create_array(
        any_store, name="a", shape=(2000, 1000), chunks=(1000, 1000), dtype="f8", compressors=None
    )
    with any_store.allocate_sync("a/c/1/0", 8_000_000) as chunk:
        chunk.view("f8", (1000, 1000))[...] = 7
        chunk.commit_sync()
    assert (array[1000:] == 7).all()
    assert (array[:1000] == 0).all()


@pytest.mark.parametrize(
    ("nbytes", "error"), [(-1, ValueError), (1.5, TypeError), ("8", ValueError), (True, TypeError)]
)
def test_no_size(store: UcxStore, nbytes: int, error: type[Exception]) -> None:
    with pytest.raises(error, match="nbytes"):
        store.allocate_sync("c/0", nbytes)


def test_a_size_with_its_unit(store: UcxStore) -> None:
    with store.allocate_sync("c/0", "1MiB") as allocation:
        assert allocation.nbytes == 1 << 20


def test_what_is_refused(server: Server, store: UcxStore) -> None:
    with pytest.raises(InvalidKeyError):
        store.allocate_sync("../c/0", SIZE)
    with pytest.raises(ValueError, match="read-only"):
        store.with_read_only(True).allocate_sync("c/0", SIZE)
    with pytest.raises(MemoryError):
        store.allocate_sync("c/0", 1 << 60)
    with pytest.raises(TypeError, match="belongs to one process"):
        pickle.dumps(store.allocate_sync("c/0", 10))


def test_a_read_only_server() -> None:
    with (
        Server("memory://", local=True, read_only=True, scratch_limit="unlimited") as server,
        UcxStore(server.address) as store,
    ):
        allocation = written(store, pattern())
        with pytest.raises(ReadOnlyServerError):
            allocation.commit_sync()
        np.testing.assert_array_equal(allocation.array, pattern())


# ---- by a server that takes it over ----


def test_it_is_not_copied(files: Files, distant: UcxStore) -> None:
    written(distant, pattern()).commit_sync()
    assert files.count() == 0
    assert adopted(distant) == 1
    stats = sync(distant.server_stats())
    assert stats["sets"] == 1
    assert stats["bytes_received"] == SIZE
    assert SIZE <= stats["adopted_bytes"] <= stats["arena_bytes"]
    np.testing.assert_array_equal(read(distant), pattern())
    assert files.count() == 2  # mapped by its reader, who can map pages of it into results


def test_it_is_mapped_into_a_result(distant: UcxStore) -> None:
    x = pattern(20_000_000)
    z = zarr.create_array(
        distant, name="a", shape=x.shape, chunks=x.shape, dtype="u1", compressors=None
    )
    written(distant, x, "a/c/0").commit_sync()
    assert adopted(distant) == 1
    found = z[:]
    assert distant.stats()["mapped"] == 1
    found[:100] += 1
    np.testing.assert_array_equal(found[100:], x[100:])
    np.testing.assert_array_equal(z[:], x)


def test_a_small_one_is_copied(store: UcxStore) -> None:
    written(store, pattern(100_000)).commit_sync()
    assert adopted(store) == 0


def test_what_is_kept_is_the_writers_own(files: Files, distant: UcxStore) -> None:
    store = distant
    allocation = written(store, pattern())
    kept, part = allocation.array, allocation.view("i4")[100:]
    allocation.commit_sync()
    np.testing.assert_array_equal(read(store), pattern())
    kept[:1000] = 0
    part[:] = -1
    np.testing.assert_array_equal(read(store), pattern())
    assert adopted(store) == 1
    store.delete_sync("c/0")
    store.close()
    eventually(lambda: files.count() == 1)  # no more than what is kept
    assert not kept[:400].any()
    assert (part == -1).all()
    del kept, part, allocation
    assert files.count() == 0


def test_written_while_it_is_committed(store: UcxStore) -> None:
    """Neither faults, nor changes what is stored after the commit."""
    allocation = written(store, np.zeros(40_000_000, "u1"))
    array, done = allocation.array, threading.Event()

    def scribble() -> None:
        byte = 0
        while not done.is_set():
            byte = (byte + 1) % 256
            array[::4096] = byte

    threads = [threading.Thread(target=scribble) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        allocation.commit_sync()
        first = read(store)
        for _ in range(5):
            np.testing.assert_array_equal(read(store), first)
    finally:
        done.set()
        for thread in threads:
            thread.join()


def test_it_is_replaced_while_it_is_read(server: Server, store: UcxStore) -> None:
    done, failures = threading.Event(), list[object]()
    written(store, np.full(SIZE, 0, "u1")).commit_sync()

    def look() -> None:
        with UcxStore(server.address) as mine:
            out = np.empty(SIZE, "u1")
            while not done.is_set():
                if mine.get_into_sync("c/0", out) != SIZE or (out != out[0]).any():
                    failures.append(out.copy())
                    return

    threads = [threading.Thread(target=look) for _ in range(3)]
    for thread in threads:
        thread.start()
    for byte in range(1, 60):
        allocation = written(store, np.full(SIZE, byte, "u1"))
        kept = allocation.array
        allocation.commit_sync()
        kept[:] = 255
    done.set()
    for thread in threads:
        thread.join(60)
    assert not failures


def test_memory_goes_back(files: Files, distant: UcxStore) -> None:
    store = distant
    value = pattern(20_000_000)
    for _ in range(20):
        written(store, value).commit_sync()
        assert store.get_into_sync("c/0", np.empty_like(value)) == value.size
    assert adopted(store) <= 3  # some wait for the next look at what is being read
    for key in ("c/1", "c/2"):
        written(store, value, key).commit_sync()
    for key in ("c/0", "c/1", "c/2"):
        store.delete_sync(key)
    eventually(lambda: adopted(store) <= 1)
    store.close()
    eventually(lambda: files.count() == 0)


def test_many_are_copied_beyond_a_bound(store: UcxStore) -> None:
    value = pattern(1 << 20)
    for number in range(300):
        value[:8] = np.frombuffer(number.to_bytes(8, "little"), "u1")
        written(store, value, f"c/{number}").commit_sync()
    assert 16 <= adopted(store) <= 256
    for number in range(300):
        found = read(store, f"c/{number}")
        assert found is not None
        assert int.from_bytes(found[:8].tobytes(), "little") == number
        np.testing.assert_array_equal(found[8:], value[8:])


def test_it_counts_as_other_values_do() -> None:
    with (
        Server(core.MemoryStorage(2 * SIZE, visible=True), local=True) as server,
        UcxStore(server.address) as store,
    ):
        written(store, pattern()).commit_sync()
        written(store, pattern(), "c/1").commit_sync()
        third = written(store, pattern(), "c/2")
        with pytest.raises(StorageError, match="no room"):
            third.commit_sync()
        store.delete_sync("c/1")
        eventually(lambda: committed(third))
        np.testing.assert_array_equal(read(store, "c/2"), pattern())


def committed(allocation: Allocation) -> bool:
    try:
        return allocation.commit_sync()
    except StorageError:
        return False


def test_over_ucx_it_is_read_as_any_other(server: Server, store: UcxStore) -> None:
    written(store, pattern(20_000_000)).commit_sync()
    assert adopted(store) == 1
    with UcxStore(server.address, local="off") as other:
        np.testing.assert_array_equal(read(other), pattern(20_000_000))
        assert other.stats()["lanes"] != ["local"]


# ---- ends ----


def test_a_server_that_is_killed() -> None:
    with Server.spawn("memory://", local=True) as server, UcxStore(server.address) as store:
        written(store, pattern()).commit_sync()
        held = store.get_sync("c/0")
        allocation = written(store, pattern())
        os.kill(server.pid, signal.SIGKILL)
        with pytest.raises((ServerLostError, ConnectError)):
            allocation.commit_sync()
        # It is as it was; what is written now counts in the next attempt.
        np.testing.assert_array_equal(allocation.array, pattern())
        allocation.array[:1000] = 0
        assert held is not None
        np.testing.assert_array_equal(held.as_numpy_array(), pattern())
        place = server.address.removeprefix("ucx://")
        with Server.spawn("memory://", place, local=True):
            store.accept_restarted_sync()
            assert allocation.commit_sync() is True
            found = read(store)
            assert found is not None
            assert not found[:1000].any()
            np.testing.assert_array_equal(found[1000:], pattern()[1000:])


def test_a_server_that_is_killed_meanwhile() -> None:
    with Server.spawn("memory://", local=True) as server, UcxStore(server.address) as store:
        rounds: list[int] = []
        failures: list[BaseException] = []

        def forever() -> None:
            try:
                while True:
                    written(store, np.full(20_000_000, 7, "u1")).commit_sync()
                    rounds.append(1)
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=forever)
        thread.start()
        eventually(lambda: len(rounds) > 3)
        os.kill(server.pid, signal.SIGKILL)
        thread.join(60)
        assert isinstance(failures[0], (ServerLostError, ConnectError))


def test_a_writer_that_is_killed(server: Server, store: UcxStore) -> None:
    code = """
print("goes", flush=True)
number = 0
while True:
    number += 1
    with store.allocate_sync("c/0", 5_000_000) as value:
        value.view("i8")[:] = number
        value.commit_sync()
    print(number, flush=True)
"""
    assert read(store) is None  # its session has begun
    for _ in range(3):
        with Script(server.address, {}, code) as script:
            assert script.line() == "goes"
            last = int(script.line())
            script.kill()
        eventually(lambda: server.sessions == 1)
        found = read(store)
        assert found is not None
        numbers = found.view("i8")
        assert numbers.size == 625_000
        assert (numbers == numbers[0]).all()
        assert numbers[0] >= last
        written(store, pattern()).commit_sync()
        np.testing.assert_array_equal(read(store), pattern())
    store.delete_sync("c/0")
    eventually(lambda: sync(store.server_stats())["arena_bytes_used"] <= 40 << 20)


def test_a_child_that_is_forked_before_the_commit(server: Server, store: UcxStore) -> None:
    code = """
def spoil():
    assert (value.array == 5).all()
    value.array[:] = 6
    kept[:] = 6
    try:
        value.commit_sync()
    except RuntimeError as error:
        assert "forked child" in str(error), error
    else:
        raise AssertionError("committed")
    nothing_happens(0.2)
    assert (kept == 6).all()
value = store.allocate_sync("c/0", 5_000_000)
kept = value.array
kept[:] = 5
children = [in_child(spoil) for _ in range(2)]
value.commit_sync()
assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]
assert (kept == 5).all()
assert (store.get_sync("c/0").as_numpy_array() == 5).all()
def its_own():
    with store.allocate_sync("c/1", 5_000_000) as mine:
        mine.array[:] = 8
        mine.commit_sync()
assert os.waitpid(in_child(its_own), 0)[1] == 0
print("well", flush=True)
"""
    with Script(server.address, {}, code) as script:
        assert script.line() == "well"
        script.end()
    for key, byte in (("c/0", 5), ("c/1", 8)):
        found = read(store, key)
        assert found is not None
        assert (found == byte).all()
    assert adopted(store) >= 1
