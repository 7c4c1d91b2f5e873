"""Stores that are closed: what was under way fails, and the next use connects again."""

import asyncio
import os
import pickle
import signal
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from zarr.core.buffer import cpu
from zarr.core.sync import sync
from zarr.storage import FsspecStore, MemoryStore

from tests.backdoor import is_open
from tests.conftest import address_of
from tests.eventually import eventually, loop_turns
from tests.fixtures import memory_alone as memory_alone
from tests.pipeline.arrays import store_of
from tests.stopping import stop
from tests.values import as_buffer, keys_of
from ucxstore import (
    ScratchEndedError,
    ServerRestartedError,
    StoreClosedError,
    UcxStore,
)
from ucxstore.client.channel import Channel
from ucxstore.obspec import ObspecStore
from ucxstore.server import Server
from ucxstore.stores.store import connectors_of

# Seconds for an operation to fail once its store is closed, however busy the machine is. The
# store's own time-outs are far longer.
SOON = 60.0
LONG = 3000.0

LARGE = 30_000_000

LOCAL = pytest.mark.parametrize("local", ["auto", "off"])


def channel_of(store: UcxStore) -> Channel | None:
    """Return what a store is connected by; ``None`` if it is closed."""
    return store._made


def under_way(channel: Channel | None) -> int:
    """Count the operations that have begun and not ended."""
    return 0 if channel is None else len(channel._pending)


@contextmanager
def stopped(servers: list[Any]) -> Iterator[None]:
    """Let servers in processes of their own stand still."""
    for server in servers:
        stop(server.pid)
    try:
        yield
    finally:
        for server in servers:
            os.kill(server.pid, signal.SIGCONT)


@pytest.fixture(scope="module", params=[1, 3], ids=["one server", "three servers"])
def servers(request: pytest.FixtureRequest) -> Iterator[list[Any]]:
    with ExitStack() as stack:
        yield [stack.enter_context(Server.spawn("memory://")) for _ in range(request.param)]


# ---- used again ----


def test_it_is_used_again_as_zarrs_own_stores_are(address: str) -> None:
    """Whatever is done first. zarr's `MemoryStore` says what is right."""
    x = np.arange(40.0)

    def uses(store: Any) -> list[Callable[[], object]]:
        z = zarr.create_array(store, data=x, chunks=8)
        get = store_of(z).get_sync
        return [
            lambda: z[:].tolist(),
            lambda: z.__setitem__(slice(0, 3), 7),
            lambda: z[:4].tolist(),
            lambda: zarr.open_array(store, mode="r")[-1].tolist(),
            lambda: zarr.open_array(store)[0].tolist(),
            lambda: store.set_sync("k", as_buffer(b"1")),
            lambda: get("k").to_bytes(),
            lambda: sync(store.exists("k")),
            lambda: sync(store.is_empty("none")),
            lambda: store.with_read_only(True).get_sync("k").to_bytes(),
            lambda: store.delete_sync("k"),
            lambda: sync(store.exists("k")),
        ]

    with UcxStore(address) as ours:
        theirs = MemoryStore()
        for use, expected in zip(uses(ours), uses(theirs), strict=True):
            ours.close()
            theirs.close()
            assert (ours.closed, is_open(ours)) == (True, is_open(theirs)) == (True, False)
            assert use() == expected()


def test_it_tells_whether_it_is_closed(address: str) -> None:
    store = UcxStore(address)
    assert not store.closed
    store.set_sync("k", as_buffer(b"1"))
    counted = store.stats().bytes_written
    store.close()
    store.close()
    assert store.closed
    assert store.stats().lanes == []
    assert store.stats().bytes_written == counted
    assert store.get_sync("k").to_bytes() == b"1"
    assert not store.closed
    assert "connected over" in repr(store)
    with store:
        pass
    assert store.closed
    copy = pickle.loads(pickle.dumps(store))
    assert not copy.closed
    assert copy.get_sync("k").to_bytes() == b"1"
    assert store.closed
    copy.close()


def test_the_connection_closes_and_comes_back() -> None:
    with Server("memory://") as server:
        store = UcxStore(server.address)
        for _ in range(3):
            store.set_sync("k", as_buffer(b"1"))
            assert server.sessions == 1
            store.close()
            eventually(lambda: server.sessions == 0)


async def test_async_with_again(address: str) -> None:
    store = UcxStore(address)
    for number in range(3):
        async with store:
            assert is_open(store)
            await store.set(f"{number}", as_buffer(b"1"))
        assert store.closed
    assert [key async for key in store.list()] == ["0", "1", "2"]
    store.close()


def test_through_a_url_and_by_obspec(address: str) -> None:
    z = zarr.create_array(f"{address}/z", data=np.arange(6), chunks=2)
    assert isinstance(z.store, FsspecStore)
    z.store.close()
    assert z[:].tolist() == [*range(6)]
    with ObspecStore(address) as store:
        store.put("a", b"12")
    assert store.closed
    assert bytes(store.get("a").buffer()) == b"12"
    assert not store.closed
    store.close()


def test_what_was_handed_out_stays(address: str) -> None:
    value = np.random.default_rng(0).integers(0, 256, LARGE, "u1").tobytes()
    with UcxStore(address, local="auto") as store:
        z = zarr.create_array(
            store, name="z", data=np.frombuffer(value, "u1"), chunks=LARGE, compressors=None
        )
        found = z[:]
        view = store.view_sync("z/c/0", map=True)
        allocation = store.allocate_sync("allocated", LARGE)
        allocation.view("u1")[:] = found
    assert found.tobytes() == value
    assert view is not None
    assert view.array.tobytes() == value
    assert allocation.commit_sync()
    assert store.get_sync("allocated").to_bytes() == value
    z[:] = 0
    assert view.array.tobytes() == found.tobytes() == value
    store.close()


def test_a_forked_child_leaves_what_is_under_way_to_its_parent(servers: list[Any]) -> None:
    with UcxStore(address_of(servers), timeout=LONG) as store, ThreadPoolExecutor(1) as pool:
        store.set_sync("k", as_buffer(b"1"))
        with stopped(servers):
            pending = pool.submit(store.get_sync, "k")
            eventually(lambda: under_way(channel_of(store)))
            child = os.fork()
            if child == 0:
                signal.alarm(int(SOON))
                store.close()
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
            assert not pending.done()
        assert pending.result(SOON).to_bytes() == b"1"


# ---- what was under way ----


LARGE_VALUE = cpu.Buffer.from_array_like(np.ones(LARGE, "u1"))

# What has to ask the servers: no value is there that could be seen without them.
CALLS: dict[str, Callable[[UcxStore, zarr.Array], object]] = {
    "get_sync": lambda store, _: store.get_sync("none"),
    "get": lambda store, _: asyncio.run(store.get("none")),
    "get_into_sync": lambda store, _: store.get_into_sync("none", np.zeros(1, "u1")),
    "set_sync": lambda store, _: store.set_sync("large", LARGE_VALUE),
    "set": lambda store, _: asyncio.run(store.set("large", LARGE_VALUE)),
    "list": lambda store, _: sync(keys_of(store)),
    "decoded": lambda _, z: z[:],
    "written": lambda _, z: z.__setitem__(slice(None), 5),
    "view_sync": lambda store, _: store.view_sync("none"),
    "ping_sync": lambda store, _: store.ping_sync(),
}


@LOCAL
@pytest.mark.parametrize("call", CALLS)
def test_what_is_under_way_fails(servers: list[Any], local: str, call: str) -> None:
    """At once; what was sent may have been made."""
    address = address_of(servers, uuid.uuid4().hex)
    with (
        UcxStore(address, timeout=LONG, connect_timeout=LONG, local=local) as store,
        ThreadPoolExecutor(1) as pool,
    ):
        z = zarr.create_array(store, name="z", shape=640, chunks=2, dtype="i4")
        channel = channel_of(store)
        with stopped(servers):
            begun = pool.submit(CALLS[call], store, z)
            eventually(lambda: under_way(channel))
            store.close()
            error = begun.exception(SOON)
            assert isinstance(error, StoreClosedError)
            assert str(error) == f"{store}: the store was closed meanwhile"
            assert store.closed
            assert not under_way(channel)
        store.set_sync("k", as_buffer(b"1"))
        assert store.get_sync("k").to_bytes() == b"1"
        assert set(z[:].tolist()) <= {0, 5}


def test_what_waits_for_a_server_does_not_come_back(tmp_path: Path) -> None:
    """A server of a directory that ends is expected back, and a write waits for it."""
    server = Server(tmp_path)
    bind = server.address.removeprefix("ucx://")
    store = UcxStore(server.address)
    store.set_sync("before", as_buffer(b"1"))
    server.close()
    failed: Future[None] = Future()

    def write() -> None:
        try:
            store.set_sync("k", as_buffer(b"2"))
        except BaseException as error:
            failed.set_exception(error)

    waiting = threading.Event()
    connect = connectors_of(store)[store.servers[0]].connect
    held = connectors_of(store)  # the connector lives as long as somebody uses it

    def noticed(timeout: float) -> Any:
        waiting.set()
        return connect(timeout)

    held[store.servers[0]].connect = noticed  # type: ignore[method-assign]
    thread = threading.Thread(target=write)
    thread.start()
    assert waiting.wait(SOON)
    store.close()
    with Server(tmp_path, bind):
        assert isinstance(failed.exception(SOON), StoreClosedError)
        thread.join()
        assert not (tmp_path / "k").exists()
        assert store.get_sync("before").to_bytes() == b"1"
        store.close()


async def test_a_task_that_closes_what_others_await() -> None:
    with Server.spawn("memory://") as server, UcxStore(server.address, timeout=LONG) as store:
        await store.set("k", as_buffer(b"1"))
        with stopped([server]):
            tasks = [asyncio.ensure_future(store.get("k")) for _ in range(5)]
            await loop_turns(2)
            store.close()
            done, _ = await asyncio.wait(tasks, timeout=SOON)
            assert len(done) == len(tasks)
            assert {type(one.exception()) for one in done} == {StoreClosedError}
        found = await store.get("k")
        assert found is not None
        assert found.to_bytes() == b"1"


def test_closed_at_any_time_by_another_thread(address: str) -> None:
    """Each use gets its value, or says that the store was closed."""
    keeper, store = UcxStore(address), UcxStore(address)
    keeper.set_sync("k", as_buffer(b"1"))  # and so keeps the connection
    done = threading.Event()

    def close() -> None:
        while not done.wait(1e-3):
            store.close()

    closing = threading.Thread(target=close)
    closing.start()
    values = 0

    def use() -> bool:
        nonlocal values
        try:
            assert store.get_sync("k").to_bytes() == b"1"
            values += 1
        except StoreClosedError:
            pass
        return values >= 100

    try:
        eventually(use, SOON, 0.0)
    finally:
        done.set()
        closing.join()
    store.close()
    keeper.close()
    assert store.closed
    assert channel_of(store) is None


# ---- what is gone ----


def test_a_server_that_has_restarted_is_refused() -> None:
    server = Server("memory://")
    bind = server.address.removeprefix("ucx://")
    store = UcxStore(server.address)
    store.set_sync("k", as_buffer(b"1"))
    store.close()
    server.close()
    with Server("memory://", bind):
        with pytest.raises(ServerRestartedError):
            store.get_sync("k")
        store.close()
        with pytest.raises(ServerRestartedError):
            store.get_sync("k")
        store.close()


def test_a_scratch_space_that_has_ended_does_not_come_back(servers: list[Any]) -> None:
    with UcxStore(address_of(servers)) as owner:
        scratch = owner.scratch_sync("1MB")
        store = scratch.store()
        store.set_sync("k", as_buffer(b"1"))
        store.close()
        owner.close()  # which ends no scratch space
        assert store.get_sync("k").to_bytes() == b"1"
        assert scratch.name not in repr(store)
        store.close()
        scratch.close()
        for _ in range(2):
            with pytest.raises(ScratchEndedError):
                store.get_sync("k")
            with pytest.raises(ScratchEndedError):
                store.set_sync("k", as_buffer(b"2"))
            store.close()
        with pytest.raises(ScratchEndedError, match="it was closed"):
            scratch.store()
