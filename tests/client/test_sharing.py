"""Threads, event loops and processes that use a store at once; connections that they share."""

import asyncio
import gc
import os
import pickle
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from zarr.core.buffer import cpu, default_buffer_prototype
from zarr.core.sync import sync

from tests.conftest import address_of
from tests.eventually import eventually, loop_turns, nothing_happens_async
from tests.proc import descriptors
from tests.values import as_buffer
from ucxstore import (
    AuthenticationError,
    ConnectError,
    ReadOnlyServerError,
    ServerLostError,
    UcxStore,
)
from ucxstore.server import Server

PROTOTYPE = default_buffer_prototype()
ROOT = Path(__file__).parents[2]


def run_python(script: str, stdin: bytes = b"") -> str:
    """Run a script in a process of its own, and return what it printed."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", script],
        input=stdin,
        capture_output=True,
        timeout=240,
        env={**os.environ, "PYTHONPATH": path},
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


@pytest.fixture(params=["memory", "directory", "three servers"])
def address(request: pytest.FixtureRequest, prefix: str) -> str:
    if request.param == "three servers":
        return address_of(request.getfixturevalue("three_servers"), prefix)
    return f"{request.getfixturevalue(f'{request.param}_server').address}/{prefix}"


# ---- processes ----


def test_a_pickled_store_works_in_another_process(ucx_store: UcxStore) -> None:
    ucx_store.set_sync("key", as_buffer(b"from the parent"))
    script = """
import pickle, sys
from zarr.core.buffer import cpu
store = pickle.loads(sys.stdin.buffer.read())
print(store.get_sync("key").to_bytes())
store.set_sync("other", cpu.Buffer.from_bytes(b"from the child"))
"""
    assert run_python(script, pickle.dumps(ucx_store)) == "b'from the parent'\n"
    found = ucx_store.get_sync("other")
    assert found is not None
    assert found.to_bytes() == b"from the child"


def test_a_forked_child_opens_anew(address: str) -> None:
    script = f"""
import asyncio, os
from zarr.core.buffer import cpu
from ucxstore import UcxStore
store = UcxStore({address!r})
store.set_sync("key", cpu.Buffer.from_bytes(b"before"))
asyncio.run(store.exists("key"))
children = []
for number in range(3):
    child = os.fork()
    if child == 0:
        try:
            assert store.stats()["lanes"] == []
            assert store.get_sync("key").to_bytes() == b"before"
            asyncio.run(store.set(f"child/{{number}}", cpu.Buffer.from_bytes(b"child")))
            status = 0
        finally:
            os._exit(status)
    children.append(child)
    assert store.get_sync("key").to_bytes() == b"before"  # the parent's is untouched
print([os.waitpid(child, 0)[1] for child in children])

async def names():
    return sorted([name async for name in store.list_dir("child")])

print(asyncio.run(names()))
"""
    assert run_python(script).splitlines() == ["[0, 0, 0]", "['0', '1', '2']"]


def test_importing_loads_no_ucx_and_no_server() -> None:
    script = """
import sys, ucxstore
late = ("ucxstore._core", "ucxstore.base.native", "ucxstore.server")
print([name for name in late if name in sys.modules])
print(any("libucp" in line for line in open("/proc/self/maps")))
"""
    assert run_python(script).splitlines() == ["[]", "False"]


def test_the_interpreter_exits_with_requests_in_flight(ucx_store: UcxStore) -> None:
    ucx_store.set_sync("key", as_buffer(bytes(30_000_000)))
    script = """
import asyncio, pickle, sys, threading
store = pickle.loads(sys.stdin.buffer.read())
ready = threading.Event()

def read():
    while True:
        out = bytearray(30_000_000)
        ready.set()
        store.get_into_sync("key", out)

threading.Thread(target=read, daemon=True).start()
ready.wait()
print("done")
"""
    assert run_python(script, pickle.dumps(ucx_store)) == "done\n"


# ---- event loops ----


def test_loops_come_and_go(ucx_store: UcxStore) -> None:
    async def use() -> None:
        await ucx_store.set("key", as_buffer(b"value"))
        assert await ucx_store.exists("key")

    asyncio.run(use())
    gc.collect()
    before = descriptors()
    for _ in range(50):
        asyncio.run(use())
    gc.collect()
    asyncio.run(use())
    assert descriptors() <= before + 3  # those of a loop that the collector has not seen yet


def test_loops_at_once(ucx_store: UcxStore) -> None:
    async def use(index: int) -> None:
        async def one(number: int) -> None:
            value = bytes([index, number]) * 500
            await ucx_store.set(f"{index}/{number}", as_buffer(value))
            found = await ucx_store.get(f"{index}/{number}", PROTOTYPE)
            assert found is not None
            assert found.to_bytes() == value

        await asyncio.gather(*(one(number) for number in range(40)))

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda index: asyncio.run(use(index)), range(6)))
        list(pool.map(lambda index: sync(use(index)), range(6)))  # zarr's own loop
    assert sync(ucx_store.getsize_prefix("")) == 6 * 40 * 1000


async def test_the_loop_goes_on_while_it_connects() -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await nothing_happens_async(0.001)

    with socket.create_server(("127.0.0.1", 0)) as silent:  # which accepts, and says nothing
        host, port = silent.getsockname()
        store = UcxStore(f"ucx://{host}:{port}", connect_timeout=0.3)
        ticking = asyncio.create_task(tick())
        with pytest.raises(ConnectError, match=str(port)):
            await store.exists("key")
        ticking.cancel()
    assert ticks > 5


# ---- cancellation ----

BIG = 60_000_000


@pytest.fixture
def big(ucx_store: UcxStore) -> UcxStore:
    ucx_store.set_sync("big", as_buffer(np.ones(BIG, "u1")))
    return ucx_store


@pytest.mark.parametrize("times", [1, 3])
async def test_a_cancelled_read_leaves_the_buffer_alone(big: UcxStore, times: int) -> None:
    out = np.zeros(BIG, "u1")
    task = asyncio.create_task(big.get_into("big", out))
    await loop_turns()
    for _ in range(times):
        await loop_turns()
        task.cancel()
    try:
        await task
        cancelled = False
    except asyncio.CancelledError:
        cancelled = True
    out[:] = 7
    assert await big.getsize("big") == BIG  # a round trip later
    assert cancelled
    assert (out == 7).all()


async def test_a_timeout_around_a_read(big: UcxStore) -> None:
    out = np.zeros(BIG, "u1")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await big.get_into("big", out)
    assert await big.get_into("big", out) == BIG
    assert out.all()


async def test_one_of_many_is_cancelled(big: UcxStore) -> None:
    tasks = [asyncio.create_task(big.get("big", PROTOTYPE)) for _ in range(4)]
    await loop_turns(2)
    tasks[1].cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(results[1], asyncio.CancelledError)
    assert [len(r) for r in results if isinstance(r, cpu.Buffer)] == [BIG] * 3


async def test_cancelled_operations_are_forgotten(big: UcxStore) -> None:
    await big.exists("big")
    out = bytearray(BIG)
    for _ in range(5):
        task = asyncio.create_task(big.get_into("big", out))
        await loop_turns(2)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    del task
    await loop_turns()  # asyncio itself holds the last task in the step that it woke
    out.append(0)  # BufferError, if anybody still held it


# ---- threads ----


def test_many_threads(ucx_store: UcxStore) -> None:
    def use(index: int) -> None:
        for number in range(50):
            value = bytes([index, number]) * (1 + 1000 * (number % 3))
            ucx_store.set_sync(f"{index}/{number}", as_buffer(value))
            out = bytearray(len(value))
            assert ucx_store.get_into_sync(f"{index}/{number}", out) == len(value)
            assert out == value
            if number % 2:
                ucx_store.delete_sync(f"{index}/{number}")

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(use, range(16)))
    assert ucx_store.stats()["lanes"]


# ---- connections ----


def test_one_connection_for_all_stores_and_threads() -> None:
    with Server("memory://") as server:
        stores = [UcxStore(f"{server.address}/{index}") for index in range(8)]
        barrier = threading.Barrier(len(stores))

        def use(store: UcxStore) -> None:
            barrier.wait()
            store.set_sync("key", as_buffer(b"value"))

        with ThreadPoolExecutor(len(stores)) as pool:
            list(pool.map(use, stores))
        assert server.sessions == 1
        assert server.stats()["sessions"] == 1
        other = UcxStore(server.address, integrity=True)
        assert other.get_sync("0/key") is not None
        assert server.sessions == 2
        reader = stores[0].with_read_only(True)
        assert reader.get_sync("key") is not None
        del stores, other
        gc.collect()
        eventually(lambda: server.sessions == 1)
        reader.close()
        eventually(lambda: server.sessions == 0)
        assert reader.closed


@pytest.mark.parametrize("tls", ["tcp", "tcp,sm,self"])
@pytest.mark.parametrize("progress", ["blocking", "polling"])
def test_transports_and_progress(tls: str, progress: str) -> None:
    ucx = {"TLS": tls}
    with Server("memory://", ucx=ucx, ucx_shared_memory=True, progress=progress) as server:
        store = UcxStore(server.address, local="ucx", ucx=ucx, progress=progress)
        value = np.random.default_rng(0).integers(0, 256, 9_000_000, "u1")
        store.set_sync("key", cpu.Buffer.from_array_like(value))
        out = np.zeros_like(value)
        assert store.get_into_sync("key", out) == len(value)
        np.testing.assert_array_equal(out, value)
        (lanes,) = {lane.split("/")[0] for lane in store.stats()["lanes"]} & {
            "tcp",
            "posix",
        }
        assert (lanes == "tcp") == (tls == "tcp")
        store.close()


async def test_a_server_that_comes_back(tmp_path: Path) -> None:
    # At an address of its own, where nobody takes the port meanwhile.
    own = f"127.{1 + os.getpid() % 250}.{1 + os.getpid() // 250 % 250}.1"
    with Server(tmp_path, bind=f"{own}:0") as server:
        bind = server.address.removeprefix("ucx://")
        store = UcxStore(server.address, timeout=30, connect_timeout=30)
        await store.set("key", as_buffer(b"value"))
    with pytest.raises(ServerLostError, match=bind):
        await store.exists("key")
    with pytest.raises(ServerLostError, match=bind):
        store.get_sync("key")
    with Server(tmp_path, bind=bind):
        assert await store.exists("key")
        store.close()


async def test_secrets() -> None:
    with Server("memory://", secret="right") as server:
        store = UcxStore(server.address, secret="right")
        await store.set("key", as_buffer(b"value"))
        with pytest.raises(AuthenticationError, match=server.address.removeprefix("ucx://")):
            await UcxStore(server.address, secret="wrong").exists("key")
        with pytest.raises(AuthenticationError):
            UcxStore(server.address).get_sync("key")  # although a connection with one is there
        assert await UcxStore(server.address, secret="right").exists("key")
        assert server.sessions == 1
        store.close()


async def test_a_server_that_only_reads(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"value")
    with Server(tmp_path, read_only=True) as server:
        store = UcxStore(server.address)
        assert await store.exists("key")
        for write in (
            store.set("key", as_buffer(b"")),
            store.set_if_not_exists("other", as_buffer(b"")),
            store.delete("key"),
            store.clear(),
        ):
            with pytest.raises(ReadOnlyServerError):
                await write
        assert (tmp_path / "key").read_bytes() == b"value"
        store.close()


async def test_thousands_of_requests_of_one_event_loop(ucx_store: UcxStore) -> None:
    """Requests that complete before the loop is woken are not forgotten."""
    await ucx_store.set("key", as_buffer(b"value"))
    requests = [asyncio.create_task(ucx_store.get("key", PROTOTYPE)) for _ in range(5000)]
    _, late = await asyncio.wait(requests, timeout=60)
    assert not late
    assert {(await each).to_bytes() for each in requests} == {b"value"}
