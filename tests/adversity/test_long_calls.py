"""Deleting, measuring and listing many keys: nobody else waits, and it can be cancelled."""

import asyncio
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import zarr

from tests.adversity.ways import WAYS, any_way, most_ways, one_way, open_store, spawn
from tests.eventually import eventually, eventually_async, nothing_happens, nothing_happens_async
from tests.proc import resident
from tests.values import as_buffer
from ucxstore import UcxStore
from ucxstore.server import Server
from ucxstore.server.spawn import ServerProcess

# Seconds without progress. Short, so that a call that takes longer shows whether it reports some.
TIMEOUT = 2.0


def make_files(folder: Path, count: int) -> None:
    """Make empty files, in folders as zarr has them.

    Those of a folder are links to one: file systems take long to find room for as many.
    """
    for row in range(0, count, 1000):
        path = folder / "c" / str(row // 1000)
        path.mkdir(parents=True)
        at = os.open(path, os.O_DIRECTORY)
        os.close(os.open("0", os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=at))
        for column in range(1, min(1000, count - row)):
            os.link("0", str(column), src_dir_fd=at, dst_dir_fd=at)
        os.close(at)


def count_files(folder: Path) -> int:
    return sum(len(names) for _, _, names in os.walk(folder))


class Others(threading.Thread):
    """Another client, which asks the server for something small all the time."""

    def __init__(self, store: UcxStore) -> None:
        super().__init__()
        self.worst = 0.0
        self.rounds = 0
        self.error: Exception | None = None
        self._store = store
        self._stop = threading.Event()

    def run(self) -> None:
        value = as_buffer(b"other")
        try:
            while not self._stop.is_set():
                begun = time.monotonic()
                self._store.set_sync("others/value", value)  # no way does without the server
                found = self._store.get_sync("others/value")
                assert found is not None
                assert found.to_bytes() == b"other"
                self.worst = max(self.worst, time.monotonic() - begun)
                self.rounds += 1
                nothing_happens(0.001)
        except Exception as error:
            self.error = error

    def __enter__(self) -> "Others":
        self.start()
        eventually(lambda: self.rounds > 10 or self.error)
        self.worst = 0.0
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self.join()
        if self.error is not None:
            raise self.error


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """Keep the machine busy."""
    code = "while True: pass"
    running = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(processes)]
    try:
        yield
    finally:
        for one in running:
            one.kill()
            one.wait()


def delete_dir(store: UcxStore, prefix: str) -> None:
    asyncio.run(store.delete_dir(prefix))


def run_client(way: str, server: ServerProcess, timeout: float, *calls: str) -> list[str]:
    """Have another process call methods of a store, and return what it printed."""
    code = "\n".join(
        [
            "import asyncio; from tests.adversity.ways import open_store",
            "async def listed(prefix): return [key async for key in store.list_prefix(prefix)]",
            f"store = open_store({way!r}, {server.address!r}, timeout={timeout})",
            "store.ping_sync()",
            *(f"print(asyncio.run({call}))" for call in calls),
        ]
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=200
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@one_way
def test_others_go_on_while_many_files_are_deleted(way: str, tmp_path: Path) -> None:
    make_files(tmp_path / "a", 60_000)
    with (
        spawn(way, tmp_path) as server,
        open_store(way, server.address, timeout=TIMEOUT, connect_timeout=20) as other,
        Others(other) as others,
    ):
        counts = run_client(way, server, TIMEOUT, "store.measure('a')", "listed('a/')")
        assert counts[0] == "(60000, 0)"
        assert counts[1].count(",") == 60_000 - 1
        run_client(way, server, TIMEOUT, "store.delete_dir('a')")
        assert others.worst < TIMEOUT / 2
    assert not (tmp_path / "a").exists()


@pytest.mark.full
@any_way
def test_a_hundred_thousand_chunks_on_a_busy_machine(way: str, tmp_path: Path) -> None:
    make_files(tmp_path / "a", 100_000)
    with (
        spawn(way, tmp_path) as server,
        open_store(way, server.address) as other,
        busy(2 * (os.cpu_count() or 1)),
        Others(other) as others,
    ):
        run_client(way, server, 30, "store.delete_dir('a')")
        assert others.worst < 30 / 4
    assert not (tmp_path / "a").exists()


@one_way
def test_others_go_on_while_much_memory_is_freed(way: str) -> None:
    with spawn(way, "memory://") as server, open_store(way, server.address) as store:
        value = as_buffer(b"v" * 100)
        for part in range(20):
            keys = (f"a/{part}/{i}" for i in range(3000))
            asyncio.run(store.set_many([(key, value) for key in keys]))
        with Others(store) as others:
            calls = ["store.measure('a')", "store.delete_dir('a')", "store.is_empty('a')"]
            printed = run_client(way, server, TIMEOUT, *calls)
            assert printed == ["(60000, 6000000)", "None", "True"]
            assert others.worst < TIMEOUT / 2


class _SlowStore(zarr.storage.MemoryStore):
    """A source of which each key takes a while."""

    async def delete(self, key: str) -> None:
        await nothing_happens_async(0.01)
        await super().delete(key)

    async def getsize(self, key: str) -> int:
        await nothing_happens_async(0.01)
        return await super().getsize(key)


@pytest.mark.parametrize("way", ["local", "shared-memory"])
def test_no_time_out_strikes_what_moves_at_a_source(way: str) -> None:
    stored = {f"a/{i}": as_buffer(b"v") for i in range(400)}
    with (
        Server(_SlowStore(stored), source_timeout=1.5, **WAYS[way]) as server,
        open_store(way, server.address, timeout=1.8) as store,
    ):
        assert asyncio.run(store.measure("a")) == (400, 400)
        delete_dir(store, "a")
    assert not stored


@one_way
@pytest.mark.parametrize("kind", ["directory", "source"])
def test_a_cancelled_deletion_stops_soon(way: str, kind: str, tmp_path: Path) -> None:
    source: Any = tmp_path
    stored = {f"a/{i}": as_buffer(b"v") for i in range(3000)}
    if kind == "directory":
        make_files(tmp_path / "a", 20_000)
    else:
        source = _SlowStore(stored)

    def left() -> int:
        return count_files(tmp_path) if kind == "directory" else len(stored)

    with Server(source, **WAYS[way]) as server, open_store(way, server.address) as store:
        store.ping_sync()
        before = left()

        async def delete_and_cancel() -> None:
            deleting = asyncio.create_task(store.delete_dir("a"))
            await eventually_async(lambda: left() != before, pause=0)
            deleting.cancel()
            with suppress(asyncio.CancelledError):
                await deleting

        asyncio.run(delete_and_cancel())
        # A directory is left alone at once: what is stored from now on stays.
        store.set_sync("a/9999", as_buffer(b"new"))
        if kind == "source":
            nothing_happens(0.3)
        after = left()
        assert 0 < after < before + 1
        nothing_happens(0.3)
        assert left() == after
        if kind == "directory":
            found = store.get_sync("a/9999")
            assert found is not None
            assert found.to_bytes() == b"new"


@most_ways
def test_a_deletion_stops_with_its_client(way: str, tmp_path: Path) -> None:
    make_files(tmp_path / "a", 20_000)
    with spawn(way, tmp_path) as server:
        code = (
            "import asyncio; from tests.adversity.ways import open_store\n"
            f"store = open_store({way!r}, {server.address!r})\n"
            "asyncio.run(store.delete_dir('a'))\n"
        )
        client = subprocess.Popen([sys.executable, "-c", code])
        first = tmp_path / "a" / "c" / "0" / "0"
        eventually(lambda: not first.exists(), pause=0)
        client.kill()
        client.wait()
        _stops(lambda: count_files(tmp_path))
        assert count_files(tmp_path) > 0


@most_ways
def test_a_deletion_stops_with_its_server(way: str, tmp_path: Path) -> None:
    make_files(tmp_path / "a", 20_000)
    with spawn(way, tmp_path, grace=0.2) as server, open_store(way, server.address) as store:
        deleting = threading.Thread(target=_quietly, args=(lambda: delete_dir(store, "a"),))
        deleting.start()
        first = tmp_path / "a" / "c" / "0" / "0"
        eventually(lambda: not first.exists(), pause=0)
        os.kill(server.pid, signal.SIGTERM)
        eventually(lambda: server.returncode == 0)
        deleting.join(60)
        assert not deleting.is_alive()


def _quietly(call: Callable[[], object]) -> None:
    with suppress(ConnectionError):
        call()


def _stops(count: Callable[[], int]) -> None:
    """Wait until the count does not change any more, which must be soon."""
    deadline = time.monotonic() + 20
    last = -1
    while last != (last := count()):
        assert time.monotonic() < deadline
        nothing_happens(0.3)


@pytest.mark.full
@any_way
def test_memory_is_bounded_however_many_names_are_listed(way: str, tmp_path: Path) -> None:
    count = 1_000_000
    folder = tmp_path / "flat"
    folder.mkdir()
    at = os.open(folder, os.O_DIRECTORY)
    for number in range(count):
        os.close(os.open(f"{number:064d}", os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=at))
    os.close(at)
    with spawn(way, tmp_path) as server, open_store(way, server.address, timeout=TIMEOUT) as store:
        asyncio.run(store.exists("none"))
        before = resident(server)
        most = 0

        async def walk() -> int:
            nonlocal most
            found = 0
            async for _ in store.list_prefix("flat/"):
                found += 1
                if found % 10_000 == 0:
                    most = max(most, resident(server))
            return found

        mine = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        assert asyncio.run(walk()) == count
        assert asyncio.run(store.measure("flat")) == (count, 0)
        most = max(most, resident(server))
        assert most - before < 32 << 20
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - mine < 32 << 20
