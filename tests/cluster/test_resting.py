"""Connections of a cluster over a network: made when they are wanted, and closed when idle."""

import asyncio
import os
import pickle
import random
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
import zarr
from obstore.store import LocalStore
from zarr.core.sync import sync

from tests.conftest import address_of
from tests.eventually import eventually, nothing_happens
from tests.proc import in_child
from tests.stopping import stop
from tests.values import as_buffer, read
from ucxstore import ServerLostError, ServerRestartedError, UcxStore
from ucxstore.client import connections, idle
from ucxstore.client.idle import IdleWatch
from ucxstore.cluster.placement import Placement
from ucxstore.server import Server

IDLE = 0.3


@pytest.fixture(autouse=True)
def _idle_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle, "IDLE_SECONDS", IDLE)
    # Another test's thread may sleep for longer.
    monkeypatch.setattr(connections, "idle_watch", IdleWatch(connections.close_idle))


@pytest.fixture
def servers() -> Iterator[list[Server]]:
    with ExitStack() as stack:
        yield [
            stack.enter_context(Server("memory://", local=False, network="ucx")) for _ in range(3)
        ]


@pytest.fixture(params=["tcp", "ucx"])
def network(request: pytest.FixtureRequest) -> str:
    return request.param


def open_store(servers: list[Server], network: str = "tcp", **options: object) -> UcxStore:
    return UcxStore(address_of(servers), local="off", network=network, **options)


def tell(store: UcxStore, servers: list[Server]) -> UcxStore:
    """Let a store rely on the servers, as those of a Dask cluster do."""
    told = {server.address.removeprefix("ucx://"): server.identity for server in servers}
    store.rely_on({place: told[str(place)] for place in store.servers})
    return store


def sessions(servers: list[Server]) -> list[int]:
    return [server.sessions for server in servers]


def rested(servers: list[Server]) -> bool:
    return sessions(servers) == [0] * len(servers)


def key_of(servers: list[Server], wanted: int) -> str:
    """Return a key that a new set of these servers places at one of them."""
    placement = Placement([server.address.removeprefix("ucx://") for server in servers])
    keys = map("c/{}".format, range(1000))
    return next(key for key in keys if placement.servers_of([key]) == [wanted])


# ---- what is connected ----


def test_idle_connections_are_closed_and_made_again(servers: list[Server], network: str) -> None:
    store = open_store(servers, network)
    keys = [key_of(servers, number) for number in range(3)]
    for key in keys:
        store.set_sync(key, as_buffer(key.encode()))
    assert sessions(servers) == [1, 1, 1]  # a new set: all of them get its record
    eventually(lambda: rested(servers))
    assert store.stats()["lanes"] == []
    assert store.get_sync(keys[1]).to_bytes() == keys[1].encode()
    assert sessions(servers) == [0, 1, 0]
    eventually(lambda: rested(servers))
    assert sync(store.getsize(keys[2])) == len(keys[2])
    assert sessions(servers) == [0, 0, 1]
    store.ping_sync()
    assert sessions(servers) == [1, 1, 1]


def test_a_store_that_knows_its_servers_meets_only_those_that_it_wants(
    servers: list[Server], network: str
) -> None:
    store = tell(open_store(servers, network), servers)
    store.set_sync(key_of(servers, 1), as_buffer(b"value"))
    assert sessions(servers) == [0, 1, 0]
    with pickle.loads(pickle.dumps(store)) as other:
        assert other.get_sync(key_of(servers, 2)) is None
    assert sessions(servers) == [0, 1, 1]
    store.set_sync("zarr.json", as_buffer(b"{}"))
    assert sessions(servers) == [1, 1, 1]


def test_arrays_are_read_and_written_after_a_rest(servers: list[Server], network: str) -> None:
    """By all ways to begin a request: in a loop, in a thread, and in those of a pool."""
    store = open_store(servers, network, strict=True)
    values = np.random.default_rng(0).integers(0, 9, (64, 64), "i4")
    arrays = [
        zarr.create_array(
            store, name=name, shape=values.shape, chunks=(4, 4), dtype="i4", compressors=codec
        )
        for name, codec in (("raw", None), ("zstd", "auto"))
    ]
    for array in arrays:
        eventually(lambda: rested(servers))
        array[:] = values
        eventually(lambda: rested(servers))
        np.testing.assert_array_equal(array[:], values)


def test_a_store_of_one_server_keeps_its_connection(network: str) -> None:
    with Server("memory://", local=False, network="ucx") as server:
        store = open_store([server], network)
        store.set_sync("c/0", as_buffer(b"value"))
        nothing_happens(3 * IDLE)
        assert server.sessions == 1
        assert store.get_sync("c/0").to_bytes() == b"value"


def test_connections_of_the_local_plane_stay() -> None:
    """The session's end would take the memory of views and mapped results back."""
    with Server("memory://") as one, Server("memory://") as other:
        store = UcxStore(address_of([one, other]), local="auto")
        value = np.arange(1 << 20)
        key = key_of([one, other], 0)
        store.set_sync(key, as_buffer(value))
        view = store.view_sync(key, map=True)
        nothing_happens(3 * IDLE)
        assert sessions([one, other]) == [1, 1]
        np.testing.assert_array_equal(np.asarray(view).view(value.dtype), value)


# ---- what is not closed, and what goes on ----


def test_a_request_under_way_keeps_its_connection(network: str) -> None:
    with ExitStack() as stack:
        spawned = [
            stack.enter_context(Server.spawn("memory://", local=False, network="ucx"))
            for _ in range(2)
        ]
        # Of connections of its own, since a store of one server keeps them.
        watching = [
            stack.enter_context(UcxStore(one.address, local="off", network="tcp", integrity=True))
            for one in spawned
        ]

        def ever() -> list[int]:
            return [store.server_stats_sync()["sessions"] for store in watching]

        def now() -> list[int]:
            return [store.server_stats_sync()["connected"] for store in watching]

        store = UcxStore(address_of(spawned), local="off", network=network, timeout=300)
        keys = [f"c/{number}" for number in range(20)]
        sync(store.set_many([(key, as_buffer(key.encode())) for key in keys]))
        eventually(lambda: now() == [1, 1])
        before = ever()
        outs = [bytearray(len(key)) for key in keys]
        wanted = list(zip(keys, outs, [None] * len(keys), strict=True))
        with ThreadPoolExecutor(1) as pool:
            store.ping_sync()
            stop(spawned[0].pid)
            reading = pool.submit(store.get_many_into_sync, wanted)
            nothing_happens(4 * IDLE)
            assert not reading.done()
            os.kill(spawned[0].pid, signal.SIGCONT)
            assert reading.result(60) == [len(key) for key in keys]
        assert [out.decode() for out in outs] == keys
        assert ever()[0] == before[0] + 1
        eventually(lambda: now() == [1, 1])


def test_requests_while_connections_are_closed_all_the_time(
    servers: list[Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle, "IDLE_SECONDS", 0.01)
    store = open_store(servers)
    over = time.monotonic() + 3

    def use(thread: int) -> int:
        number = 0
        while time.monotonic() < over:
            nothing_happens(random.uniform(0, 0.04))
            key = f"c/{thread}/{number}"
            if number % 2:
                store.set_sync(key, as_buffer(key.encode()))
                assert store.get_sync(key).to_bytes() == key.encode()
            else:
                asyncio.run(store.set(key, as_buffer(key.encode())))
                assert sync(store.getsize(key)) == len(key)
            number += 1
        return number

    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(use, range(4)))
    assert min(done) > 1
    made = sum(server.stats()["sessions"] for server in servers)
    assert made > 10  # some were closed between requests


def test_scratch_space_outlives_its_connections(servers: list[Server]) -> None:
    with open_store(servers) as store, store.scratch_sync("1MiB", timeout=8) as scratch:
        inside = scratch.store()
        inside.set_sync("c/0", as_buffer(b"value"))
        eventually(lambda: rested(servers))
        eventually(lambda: min(sessions(servers)) > 0)  # it is renewed every other second
        nothing_happens(8)
        assert inside.get_sync("c/0").to_bytes() == b"value"
    assert sum(server.stats()["scratch_bytes"] for server in servers) == 0


def test_a_forked_child_connects_by_itself(servers: list[Server]) -> None:
    store = open_store(servers)
    keys = [key_of(servers, number) for number in range(3)]
    for key in keys:
        store.set_sync(key, as_buffer(b"value"))
    eventually(lambda: rested(servers))
    assert store.get_sync(keys[0]) is not None

    def read() -> None:
        for key in keys:
            assert store.get_sync(key).to_bytes() == b"value"
        eventually(lambda: store.stats()["lanes"] == [])  # the child has a watch of its own
        assert store.get_sync(keys[1]).to_bytes() == b"value"

    child = in_child(read)
    assert os.waitpid(child, 0)[1] == 0
    assert store.get_sync(keys[0]) is not None


# ---- what others have changed meanwhile ----


@pytest.fixture(params=["memory", "directory", "cache"])
def several(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[Server]]:
    """Servers with values of their own, of one directory, and with caches of one source."""

    def start() -> Server:
        if request.param == "memory":
            return Server("memory://", local=False)
        source = tmp_path if request.param == "directory" else LocalStore(tmp_path)
        return Server(source, shared=True, local=False)

    with ExitStack() as stack:
        yield [stack.enter_context(start()) for _ in range(3)]


def test_changes_are_seen_after_a_rest(several: list[Server]) -> None:
    """Nobody tells a resting store of changes, so it must not have kept anything."""
    shape = (64, 64)
    reader = open_store(several)
    with open_store(several, integrity=True) as writer:  # over connections of its own
        kinds = {"raw": {}, "zstd": {"compressors": "auto"}, "shards": {"shards": (32, 32)}}
        written = {
            name: zarr.create_array(
                writer,
                name=name,
                shape=shape,
                chunks=(8, 8),
                dtype="i4",
                **({"compressors": None} | options),
            )
            for name, options in kinds.items()
        }
        for turn in range(1, 6):
            for array in written.values():
                array[:] = turn
                if turn == 3:
                    array.update_attributes({"turn": turn})
            for name in kinds:  # of shards, the second time by an index that it knows
                found = zarr.open_array(reader, path=name, mode="r")
                assert (found[:] == turn).all()
                assert (found[8:16, 3:5] == turn).all()
                assert found.attrs.get("turn", 0) == (3 if turn >= 3 else 0)
            if turn % 2:
                connections.close_idle(time.monotonic() + 10 * IDLE)
                assert reader.stats()["lanes"] == []


def test_what_was_deleted_is_gone_after_a_rest(several: list[Server]) -> None:
    reader = open_store(several)
    keys = [f"c/{number}" for number in range(30)]
    with open_store(several, integrity=True) as writer:
        sync(writer.set_many([(key, as_buffer(b"value")) for key in keys]))
        assert [read(reader, key) for key in keys] == [b"value"] * len(keys)
        connections.close_idle(time.monotonic() + 10 * IDLE)
        sync(writer.delete_many(keys))
    assert [read(reader, key) for key in keys] == [None] * len(keys)


# ---- servers that are gone when they are wanted again ----


def test_one_that_is_lost_does_not_hide_those_that_rest(servers: list[Server]) -> None:
    with open_store(servers) as store:
        for number in range(3):
            store.set_sync(key_of(servers, number), as_buffer(b"value"))
    store = tell(open_store(servers), servers)
    assert store.get_sync(key_of(servers, 0)) is not None
    servers[0].close()
    place = servers[0].address.removeprefix("ucx://")
    eventually(lambda: store.stats()["lanes"] == [])
    assert store.get_sync(key_of(servers, 1)) is not None
    assert store.get_sync(key_of(servers, 2)) is not None
    with pytest.raises(ServerLostError, match=place):
        store.get_sync(key_of(servers, 0))


def test_a_server_that_ended_while_it_was_not_wanted(servers: list[Server]) -> None:
    store = open_store(servers)
    keys = [key_of(servers, number) for number in range(3)]
    for key in keys:
        store.set_sync(key, as_buffer(b"value"))
    eventually(lambda: rested(servers))
    place = servers[1].address.removeprefix("ucx://")
    servers[1].close()
    with pytest.raises(ServerLostError, match=place) as raised:
        store.get_sync(keys[1])
    assert repr(keys[1]) in str(raised.value)
    with pytest.raises(ServerLostError, match=place):
        sync(store.exists(keys[1]))
    assert store.get_sync(keys[0]) is not None
    store.close()
    with UcxStore(address_of(servers), local="off", network="tcp") as told:
        tell(told, servers)
        assert told.get_sync(keys[2]) is not None
        with pytest.raises(ServerLostError, match=place):
            told.get_sync(keys[1])


def test_others_stand_in_for_a_server_that_ended(tmp_path: Path) -> None:
    with ExitStack() as stack:
        servers = [
            stack.enter_context(Server(tmp_path, shared=True, local=False)) for _ in range(3)
        ]
        store = open_store(servers)
        keys = [f"c/{number}" for number in range(30)]
        sync(store.set_many([(key, as_buffer(key.encode())) for key in keys]))
        eventually(lambda: rested(servers))
        servers[0].close()
        for key in keys:
            assert store.get_sync(key).to_bytes() == key.encode()
        assert sum(one["failovers"] for one in store.stats()["servers"].values()) > 0
        told = tell(open_store(servers[1:], connect_timeout=9), servers[1:])
        assert told.get_sync(keys[0]) is not None
        assert sum(sessions(servers[1:])) >= 1


def test_a_server_that_was_restarted_while_it_was_not_wanted(servers: list[Server]) -> None:
    store = open_store(servers)
    key = key_of(servers, 1)
    store.set_sync(key, as_buffer(b"value"))
    eventually(lambda: rested(servers))
    place = servers[1].address.removeprefix("ucx://")
    servers[1].close()
    with Server("memory://", place, local=False):
        with pytest.raises(ServerRestartedError, match=place):
            store.get_sync(key)
        store.accept_restarted_sync()
        assert store.get_sync(key) is None


def test_a_failure_that_is_over_is_forgotten(tmp_path: Path) -> None:
    """Another store has connected since, and the connection was closed as idle."""
    with ExitStack() as stack:
        one, other = (
            stack.enter_context(Server(tmp_path, shared=True, local=False, create=True))
            for _ in range(2)
        )
        place = other.address.removeprefix("ucx://")
        first = tell(open_store([one, other]), [one, other])
        second = tell(open_store([one, other]), [one, other])
        first.set_sync("zarr.json", as_buffer(b"{}"))
        at_other = key_of([one, other], 1)
        other.close()
        keys = list(dict.fromkeys([at_other, *(f"c/{number}" for number in range(20))]))
        sync(first.set_many([(key, as_buffer(b"value")) for key in keys]))  # `one` takes all
        again = stack.enter_context(Server(tmp_path, place, shared=True, local=False))
        eventually(lambda: second.get_sync(at_other) is not None and again.sessions == 1)
        failovers = first.stats()["servers"][place]["failovers"]
        for _ in range(2):
            outs = [bytearray(5) for _ in keys]
            sizes = first.get_many_into_sync(list(zip(keys, outs, [None] * len(keys), strict=True)))
            assert sizes == [5] * len(keys)
            eventually(lambda: rested([one, again]))
        assert first.stats()["servers"][place]["failovers"] == failovers


def test_the_watch_ends_when_nothing_is_connected(servers: list[Server]) -> None:
    store = open_store(servers)
    store.ping_sync()
    eventually(lambda: rested(servers))
    eventually(lambda: "ucxstore-idle" not in [one.name for one in threading.enumerate()])
    store.ping_sync()
    assert "ucxstore-idle" in [one.name for one in threading.enumerate()]
