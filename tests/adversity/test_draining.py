"""Servers that are told to end: they finish what they have begun, and clients go elsewhere."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import numpy as np
import pytest
import zarr

from tests.adversity.transfers import VALUE, Background, filled
from tests.adversity.ways import WAYS, any_way, most_ways, one_way, open_store, spawn
from tests.conftest import address_of, place_of
from tests.eventually import eventually, nothing_happens, nothing_happens_async
from tests.values import as_buffer
from ucxstore import ServerLostError, ServerRestartedError, UcxStore
from ucxstore.cluster import member
from ucxstore.server import Server
from ucxstore.server.spawn import ServerProcess


def end(server: ServerProcess, number: signal.Signals = signal.SIGTERM) -> None:
    """Tell a server to end, and see that it does so well."""
    os.kill(server.pid, number)
    eventually(lambda: server.returncode is not None, 30)
    assert server.returncode == 0, server.output
    assert "Traceback" not in server.output
    assert "still in flight" not in server.output


class Load(threading.Thread):
    """Reads and writes, each of which must succeed; each thread has keys of its own."""

    def __init__(self, store: UcxStore, name: str) -> None:
        super().__init__(name=name)
        self.acknowledged: dict[str, int] = {}
        self.rounds = 0
        self.slowest = 0.0
        self.error: Exception | None = None
        self._store = store
        self._stop = threading.Event()
        self._random = np.random.default_rng(sum(map(ord, name)))

    def run(self) -> None:
        try:
            while not self._stop.is_set():
                begun = time.monotonic()
                self._do()
                self.slowest = max(self.slowest, time.monotonic() - begun)
                self.rounds += 1
        except Exception as error:
            self.error = error

    def _do(self) -> None:
        key = f"{self.name}/{self._random.integers(50)}"
        number = self.acknowledged.get(key, 0)
        match self._random.integers(5):
            case 0 | 1:
                size = int(self._random.choice([8, 5000, 300_000, 3_000_000]))
                value = np.full(size // 8, number + 1)
                self._store.set_sync(key, as_buffer(value.view("u1")))
                self.acknowledged[key] = number + 1
            case 2 | 3:
                self.check(key)
            case _:
                sizes = asyncio.run(self._store.getsizes([key, f"{self.name}/none"]))
                assert (sizes[0] is not None) == (number > 0)
                assert sizes[1] is None
                names = asyncio.run(self._listed())
                assert names == set(self.acknowledged)

    async def _listed(self) -> set[str]:
        return {key async for key in self._store.list_prefix(f"{self.name}/")}

    def check(self, key: str) -> None:
        """See that a key has the value that was acknowledged last."""
        found = self._store.get_sync(key)
        if key not in self.acknowledged:
            assert found is None
        else:
            assert found is not None, f"{key} is gone"
            values = np.frombuffer(found.to_bytes(), "i8")
            assert (values == self.acknowledged[key]).all()

    def stop(self) -> None:
        self._stop.set()
        self.join(60)
        assert not self.is_alive()
        if self.error is not None:
            raise self.error


def _go_on(loads: list[Load], rounds: int = 5) -> None:
    """Wait until each load has done some more."""
    before = [load.rounds for load in loads]
    for load, done in zip(loads, before, strict=True):
        eventually(lambda: load.rounds > done + rounds or load.error)  # noqa: B023


@one_way
def test_no_request_is_lost_while_one_of_three_restarts(way: str, tmp_path: Path) -> None:
    with ExitStack() as stack:
        servers = [
            stack.enter_context(spawn(way, tmp_path / "data", shared=True)) for _ in range(3)
        ]
        address = address_of(servers)
        loads = []
        for number in range(4):
            store = stack.enter_context(open_store(way, address))
            loads.append(Load(store, f"load{number}"))
        try:
            for load in loads:
                load.start()
            for _ in range(4):
                _go_on(loads)
                bind = place_of(servers[1])
                begun = time.monotonic()
                end(servers[1])
                assert time.monotonic() - begun < 6, "it has waited for its grace"
                _go_on(loads)
                servers[1] = stack.enter_context(spawn(way, tmp_path / "data", bind, shared=True))
                _uses_again(loads[0], place_of(servers[1]))
        finally:
            for load in loads:
                load.stop()
        assert sum(load.rounds for load in loads) > 100
        fresh = stack.enter_context(open_store(way, address))
        for load in loads:
            load._store = fresh
            for key in load.acknowledged:
                load.check(key)


def _uses_again(load: Load, place: str) -> None:
    def requests() -> int:
        counted = load._store.stats()["servers"].get(place)
        return 0 if counted is None else int(counted["requests"])

    before = requests()
    eventually(lambda: requests() > before or load.error)


@most_ways
def test_all_restart_one_after_the_other(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member, "RETRY_SECONDS", 0.1)
    with ExitStack() as stack:
        servers = [
            stack.enter_context(spawn(way, tmp_path / "data", shared=True)) for _ in range(3)
        ]
        store = stack.enter_context(open_store(way, address_of(servers)))
        load = Load(store, "load")
        load.start()
        try:
            for position in range(3):
                bind = place_of(servers[position])
                end(servers[position])
                again = stack.enter_context(spawn(way, tmp_path / "data", bind, shared=True))
                servers[position] = again
                _uses_again(load, bind)
        finally:
            load.stop()
        for key in load.acknowledged:
            load.check(key)


@one_way
def test_arrays_are_read_and_written_while_a_server_restarts(way: str, tmp_path: Path) -> None:
    values = np.random.default_rng(1).integers(0, 1000, (600, 500), "i4")
    with ExitStack() as stack:
        servers = [
            stack.enter_context(spawn(way, tmp_path / "data", shared=True)) for _ in range(3)
        ]
        store = stack.enter_context(open_store(way, address_of(servers)))
        arrays = [
            zarr.create_array(store, name="raw", data=values, chunks=(50, 50), compressors=None),
            zarr.create_array(store, name="zstd", data=values, chunks=(50, 50)),
            zarr.create_array(
                store, name="shards", data=values, chunks=(25, 25), shards=(100, 100)
            ),
        ]
        stop = threading.Event()

        def go_on() -> None:
            while not stop.is_set():
                for array in arrays:
                    np.testing.assert_array_equal(array[...], values)
                    array[...] = values

        going = Background(go_on)
        for _ in range(3):
            nothing_happens(0.3)
            bind = place_of(servers[0])
            end(servers[0])
            nothing_happens(0.3)
            servers[0] = stack.enter_context(spawn(way, tmp_path / "data", bind, shared=True))
        stop.set()
        eventually(lambda: not going.running)
        assert going.error is None


@any_way
def test_a_single_server_that_keeps_its_values_is_waited_for(way: str, tmp_path: Path) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(spawn(way, tmp_path / "data"))
        bind = place_of(server)
        store = stack.enter_context(open_store(way, server.address, connect_timeout=30))
        store.set_sync("key", as_buffer(b"value"))
        end(server)
        reading = Background(lambda: store.get_sync("key"))
        nothing_happens(0.5)
        assert reading.running
        stack.enter_context(spawn(way, tmp_path / "data", bind))
        eventually(lambda: not reading.running)
        assert reading.error is None
        assert reading.result.to_bytes() == b"value"


@any_way
def test_a_single_server_that_does_not_come_back(way: str, tmp_path: Path) -> None:
    with (
        spawn(way, tmp_path / "data") as server,
        open_store(way, server.address, connect_timeout=3.0) as store,
    ):
        store.set_sync("key", as_buffer(b"value"))
        end(server)
        for least, most in ((2.5, 20.0), (0.0, 2.5)):  # it is waited for once
            begun = time.monotonic()
            with pytest.raises(ServerLostError, match=place_of(server)):
                store.get_sync("key")
            assert least <= time.monotonic() - begun < most


@any_way
def test_a_server_of_memory_is_not_waited_for(way: str) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(spawn(way, "memory://"))
        bind = place_of(server)
        store = stack.enter_context(open_store(way, server.address, connect_timeout=30))
        store.set_sync("key", as_buffer(b"value"))
        end(server)
        begun = time.monotonic()
        with pytest.raises(ServerLostError, match=bind):
            store.get_sync("key")
        assert time.monotonic() - begun < 10
        stack.enter_context(spawn(way, "memory://", bind))
        with pytest.raises(ServerRestartedError):
            store.get_sync("key")


@any_way
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_what_is_under_way_is_finished(way: str, number: signal.Signals, tmp_path: Path) -> None:
    with (
        spawn(way, tmp_path) as server,
        open_store(way, server.address) as store,
    ):
        store.ping_sync()
        value = as_buffer(filled(VALUE, 200_000_000))
        writing = Background(lambda: store.set_sync("large", value))
        eventually(lambda: _has_begun(server) or not writing.running, pause=0)
        end(server, number)
        eventually(lambda: not writing.running)
        assert writing.error is None
    assert (tmp_path / "large").stat().st_size == 200_000_000


def _has_begun(server: ServerProcess) -> bool:
    """Whether it receives a value, into a file without a name."""
    files = []
    for entry in Path(f"/proc/{server.pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            files.append(str(entry.readlink()))
    return any("(deleted)" in file and "memfd" not in file for file in files)


class _Slow(zarr.storage.MemoryStore):
    """A source that takes its time to store a value."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    async def set(self, key: str, value: object, byte_range: object = None) -> None:
        await nothing_happens_async(self.seconds)
        await super().set(key, value)


@any_way
@pytest.mark.parametrize("slow", [1.0, 30.0])
def test_what_is_written_to_a_source(way: str, slow: float) -> None:
    source = _Slow(slow)
    server = Server(source, grace=3.0, **WAYS[way])
    with open_store(way, server.address, connect_timeout=1.0) as store:
        store.ping_sync()
        writing = Background(lambda: store.set_sync("key", as_buffer(b"value")))
        eventually(lambda: server.stats()["writing_bytes"])
        begun = time.monotonic()
        server.close()
        assert time.monotonic() - begun < 10
        eventually(lambda: not writing.running)
        if slow < 3:
            assert writing.error is None
            assert source.get_sync("key") is not None
        else:
            assert writing.error is not None
            assert issubclass(writing.error[0], ServerLostError)
            assert source.get_sync("key") is None


@any_way
def test_a_request_that_does_not_end_has_the_grace_and_no_more(way: str) -> None:
    with Server(_Slow(60.0), grace=1.0, **WAYS[way]) as server:
        assert server._grace == 1.0
        with open_store(way, server.address, connect_timeout=1.0) as store:
            store.ping_sync()
            writing = Background(lambda: store.set_sync("key", as_buffer(b"value")))
            eventually(lambda: server.stats()["writing_bytes"])
            begun = time.monotonic()
            assert not server.drain()
            assert 0.9 < time.monotonic() - begun < 5
            server.close(0.0)
            eventually(lambda: not writing.running)


@any_way
def test_a_second_signal_ends_it_at_once(way: str, tmp_path: Path) -> None:
    arguments = ["--no-local"] if not WAYS[way]["local"] else []
    command = [sys.executable, "-m", "ucxstore", "serve", *arguments, "--grace", "60"]
    with (
        subprocess.Popen([*command, str(tmp_path)], stdout=subprocess.PIPE, text=True) as server,
        ExitStack() as stack,
    ):
        stack.callback(server.kill)
        assert server.stdout is not None
        address = server.stdout.readline().split()[-1]
        store = stack.enter_context(open_store(way, address))
        store.ping_sync()
        stuck = stack.enter_context(_Stuck(address, way))
        server.send_signal(signal.SIGTERM)
        _refuses(address)
        nothing_happens(1.5)
        assert server.poll() is None  # it waits for what is under way
        server.send_signal(signal.SIGTERM)
        assert server.wait(5) == -signal.SIGTERM
        assert stuck.process.poll() is None


class _Stuck:
    """A client that has stopped in the middle of a value."""

    def __init__(self, address: str, way: str) -> None:
        code = (
            "import os, signal, threading, time, numpy as np\n"
            "from tests.adversity.ways import open_store\n"
            "from tests.adversity.transfers import filled\n"
            "from tests.values import as_buffer\n"
            f"store = open_store({way!r}, {address!r}); store.ping_sync()\n"
            "value = as_buffer(filled(1, 1_000_000_000)); print(flush=True)\n"
            "threading.Thread(target=lambda: store.set_sync('k', value), daemon=True).start()\n"
            "time.sleep(0.1); os.kill(os.getpid(), signal.SIGSTOP)\n"
        )
        self.process = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
        )
        stat = Path(f"/proc/{self.process.pid}/stat")
        eventually(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T")

    def __enter__(self) -> "_Stuck":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()


def _refuses(address: str) -> None:
    host, _, port = address.removeprefix("ucx://").rpartition(":")

    def refused() -> bool:
        try:
            socket.create_connection((host, int(port)), timeout=5).close()
        except OSError:
            return True
        return False

    eventually(refused)
