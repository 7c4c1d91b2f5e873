"""Servers of one source, each with a cache: what was changed through one is seen through all."""

import asyncio
import itertools
import math
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from obstore.store import LocalStore

from tests.adversity.transfers import Background
from tests.backdoor import believes, carrier_of
from tests.cluster.clients import Clients
from tests.conftest import address_of
from tests.eventually import eventually, nothing_happens
from tests.register import Op, is_linearizable
from tests.server.sources.http_objects import HttpObjects
from tests.stopping import stop
from tests.values import read, write
from ucxstore import Secret, UcxStore
from ucxstore.base.errors import (
    ChangeLostError,
    InvalidKeyError,
    StorageError,
    UcxStoreError,
    UnknownOutcomeError,
)
from ucxstore.cluster.placement import Placement
from ucxstore.server import Server
from ucxstore.server.peers import ledger, times
from ucxstore.server.peers.presence import Presence
from ucxstore.server.peers.times import FENCE_SECONDS
from ucxstore.server.source_thread.links import Link
from ucxstore.server.source_thread.peer_driver import PeerDriver
from ucxstore.server.source_thread.presence import FOLDER

Spawn = Callable[..., Any]


def members_of(server: Server) -> PeerDriver:
    return carrier_of(server).members


def presences(bucket: Path) -> list[Path]:
    return sorted((bucket / FOLDER).glob("*"))


@pytest.fixture
def bucket(tmp_path: Path) -> Path:
    (tmp_path / "bucket").mkdir()
    return tmp_path / "bucket"


@pytest.fixture
def start(bucket: Path) -> Iterator[Callable[..., Server]]:
    """Start servers of one bucket in this process; `spawn=True` in a process of its own."""
    with ExitStack() as stack:

        def make(*, spawn: bool = False, **options: Any) -> Any:
            begin = Server.spawn if spawn else Server
            return stack.enter_context(begin(LocalStore(bucket), shared=True, **options))

        yield make


@pytest.fixture
def connect() -> Iterator[Callable[..., UcxStore]]:
    with ExitStack() as stack:

        def make(*servers: Any, prefix: str = "", **options: Any) -> UcxStore:
            return stack.enter_context(UcxStore(address_of(servers, prefix), **options))

        yield make


def delete_dir(store: UcxStore) -> None:
    asyncio.run(store.delete_dir("a/c"))


def overwrite(store: UcxStore) -> None:
    zarr.create_array(
        store, name="a", shape=(100,), chunks=(1,), dtype="i4", fill_value=-1, overwrite=True
    )


def mode_w(store: UcxStore) -> None:
    zarr.open_array(store, path="a", mode="w", shape=(100,), chunks=(1,), dtype="i4", fill_value=-1)


@pytest.mark.parametrize("remove", [delete_dir, overwrite, mode_w])
def test_what_was_removed_through_one_is_gone_from_all(
    remove: Callable[[UcxStore], None], start: Spawn, connect: Callable[..., UcxStore]
) -> None:
    servers = [start() for _ in range(3)]
    stores = [connect(server) for server in servers]
    array = zarr.create_array(
        stores[0],
        name="a",
        shape=(100,),
        chunks=(1,),
        dtype="i4",
        fill_value=-1,
        compressors=None,
    )
    array[:] = np.arange(100)
    for store in stores:  # all caches are warm
        for _ in range(2):
            assert (zarr.open_array(store, path="a", mode="r")[:] == np.arange(100)).all()
    remove(connect(*servers))
    for store in stores:
        assert [store.get_sync(f"a/c/{chunk}") for chunk in range(100)] == [None] * 100
        assert (zarr.open_array(store, path="a", mode="r")[:] == -1).all()


def test_caches_answer_while_nothing_changes(
    start: Spawn, connect: Callable[..., UcxStore]
) -> None:
    first, second = start(), start()
    one, other = connect(first), connect(second)
    write(one, "k", b"1")
    for _ in range(20):
        assert read(one, "k") == read(other, "k") == b"1"
    assert first.stats()["cache_hits"] >= 19
    assert second.stats()["cache_hits"] >= 19
    write(other, "k", b"2")
    assert read(one, "k") == b"2"


def test_servers_find_one_another_by_a_secret_and_no_grant_will_do(
    start: Spawn, connect: Callable[..., UcxStore]
) -> None:
    secret = Secret("of-the-servers-0123456789")
    first, second = start(secret=secret), start(secret=secret)
    one, other = connect(first, secret=secret), connect(second, secret=secret)
    write(one, "k", b"1")
    assert read(other, "k") == b"1"
    write(one, "k", b"2")
    assert read(other, "k") == b"2"
    assert (
        len(members_of(first).machine.state.peers)
        == len(members_of(second).machine.state.peers)
        == 1
    )

    grant = secret.grant(None, expires="1h").reveal()
    host, port = first.address.removeprefix("ucx://").split(":")
    presence = Presence(
        server="x", epoch=1, asks=False, addresses=(host,), port=int(port), process=("", "", 0, 0)
    )
    with pytest.raises(UcxStoreError, match="does not make it a server"):
        asyncio.run(Link.dial(presence, grant))


def test_clients_name_the_servers_as_they_like(
    start: Spawn, connect: Callable[..., UcxStore]
) -> None:
    servers = [start() for _ in range(3)]
    by_address = connect(*servers)
    names = ",".join(server.address.removeprefix("ucx://") for server in reversed(servers))
    by_name = UcxStore(f"ucx://{names.replace('127.0.0.1', 'localhost')}/")
    alone = connect(servers[1])
    with by_name:
        stores = [by_address, by_name, alone]
        for turn in range(3):
            for key in range(20):
                for store in stores:
                    read(store, str(key))
                write(stores[turn], str(key), f"{turn}/{key}".encode())
                for store in stores:
                    assert read(store, str(key)) == f"{turn}/{key}".encode()


def test_a_server_that_joins_knows_of_changes_under_way(
    objects: HttpObjects, connect: Callable[..., UcxStore]
) -> None:
    objects.objects["k"] = b"old"
    with Server(objects.store(), shared=True) as first:
        writer = connect(first)
        objects.gate.clear()
        writing = threading.Thread(target=write, args=(writer, "k", b"new"))
        writing.start()
        eventually(lambda: objects.requests["PUT", "k"] == 1)
        with Server(objects.store(), shared=True) as second:
            reader = connect(second)
            assert believes(second, "other")
            assert not believes(second, "k")
            objects.gate.set()
            writing.join()
            assert read(reader, "k") == b"new"
            eventually(lambda: believes(second, "k"))


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_failover_brings_nothing_back(
    how: signal.Signals, start: Spawn, connect: Callable[..., UcxStore]
) -> None:
    """A server that was passed over for a while answers with what was written meanwhile."""
    first, second = start(), start(spawn=True)
    both = connect(first, second, timeout=20)
    other = connect(second, timeout=20)
    for key in range(10):
        write(both, str(key), b"1")
        for _ in range(2):
            assert read(both, str(key)) == read(other, str(key)) == b"1"
    stop(second.pid) if how is signal.SIGSTOP else os.kill(second.pid, how)
    one = connect(first, timeout=40)
    for key in range(10):  # read, modify, write
        value = read(one, str(key))
        assert value is not None
        write(one, str(key), value + b"2")
    if how is signal.SIGSTOP:
        os.kill(second.pid, signal.SIGCONT)
        assert [read(other, str(key)) for key in range(10)] == [b"12"] * 10
        for key in range(10):
            write(other, str(key), b"3")
        assert [read(one, str(key)) for key in range(10)] == [b"3"] * 10
    assert [read(both, str(key)) for key in range(10)] == [
        b"12" if how is signal.SIGKILL else b"3"
    ] * 10


def test_a_change_that_may_have_been_made_is_not_made_again(
    objects: HttpObjects, connect: Callable[..., UcxStore]
) -> None:
    """By then another client may have written the key, whose value would be lost."""
    with (
        Server(objects.store(), shared=True) as first,
        Server.spawn(objects.store(), shared=True) as second,
    ):
        both = connect(first, second, timeout=20)
        places = [server.address.removeprefix("ucx://") for server in (first, second)]
        servers_of = Placement(places).servers_of
        key = next(key for key in map(str, itertools.count()) if servers_of([key]) == [1])
        objects.gate.clear()
        writing = Background(lambda: write(both, key, b"new"))
        eventually(lambda: objects.requests["PUT", key] == 1)
        os.kill(second.pid, signal.SIGKILL)
        error, message = writing.failure()
        objects.gate.set()
        assert error is ChangeLostError
        assert places[1] in message
        assert repr(key) in message
        assert objects.requests["PUT", key] == 1
        write(both, key, b"newer")  # the next server takes it
        assert read(both, key) == b"newer"


def test_readers_of_a_stopped_server_see_nothing_old(
    start: Spawn, connect: Callable[..., UcxStore]
) -> None:
    """They read shared memory without asking, and must not once its lease is over."""
    first, second = start(), start(spawn=True)
    writer = connect(first, timeout=40)
    reader = connect(second, local="auto", timeout=2)
    write(writer, "k", b"old")
    for _ in range(3):
        assert read(reader, "k") == b"old"
    assert reader.stats()["lanes"] == ["local"] or "local" in str(reader.stats()["lanes"])
    stop(second.pid)
    try:
        assert read(reader, "k") == b"old"  # it is still the value
        write(writer, "k", b"new")
        with pytest.raises((UcxStoreError, OSError)):
            read(reader, "k")
    finally:
        os.kill(second.pid, signal.SIGCONT)
    again = connect(second, local="auto", timeout=20)
    assert read(again, "k") == b"new"


def test_a_server_that_was_shut_out_forgets_all_and_joins_anew(
    bucket: Path, start: Spawn, connect: Callable[..., UcxStore]
) -> None:
    server = start()
    store = connect(server)
    write(store, "k", b"old")
    assert read(store, "k") == b"old"
    (mine,) = presences(bucket)
    mine.write_bytes(b'{"fenced": true}')
    # What another server could have written after it has waited.
    nothing_happens(FENCE_SECONDS)
    (bucket / "k").write_bytes(b"of another")
    assert read(store, "k") == b"of another"
    eventually(lambda: [one for one in presences(bucket) if one.name.endswith("-2")])
    write(store, "k", b"new")
    assert read(store, "k") == b"new"
    assert members_of(server).machine.state.phase == "member"


def test_a_lost_link_is_made_anew(start: Spawn, connect: Callable[..., UcxStore]) -> None:
    first, second = start(), start()
    one, other = connect(first), connect(second)
    for turn in range(5):
        write(one, "k", f"{turn}".encode())
        assert read(other, "k") == f"{turn}".encode()
        members = members_of(first)
        loop = members._loop
        assert loop is not None
        for link in list(members._links.values()):
            loop.call_soon_threadsafe(link.close)
        begun = time.monotonic()
        write(other, "k", b"between")
        assert read(one, "k") == b"between"
        assert time.monotonic() - begun < FENCE_SECONDS  # nobody was shut out


def test_servers_that_cannot_reach_each_other_ask_the_source(
    start: Spawn,
    connect: Callable[..., UcxStore],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They do not shut each other out for ever; and rely on their leases again, once they can."""
    dial = Link.dial

    async def fail(*_: object, **__: object) -> Link:
        raise ConnectionRefusedError("no way")

    monkeypatch.setattr(Link, "dial", fail)
    monkeypatch.setattr(times, "YIELD_SECONDS", 3.0)
    servers = [start(), start()]
    states = [members_of(server).machine.state for server in servers]
    stores = [connect(server, timeout=60) for server in servers]
    eventually(lambda: all(one.yields and one.phase == "member" for one in states), 90)
    epochs = [one.epoch for one in states]
    for turn in range(10):
        write(stores[turn % 2], "k", f"{turn}".encode())
        assert [read(store, "k") for store in stores] == [f"{turn}".encode()] * 2
    assert [one.epoch for one in states] == epochs
    monkeypatch.setattr(Link, "dial", dial)
    eventually(lambda: all(believes(server, "k") for server in servers), 60)
    write(stores[0], "k", b"new")
    assert [read(store, "k") for store in stores] == [b"new"] * 2


def test_a_write_is_told_anew_by_one_that_was_shut_out_meanwhile(
    objects: HttpObjects, connect: Callable[..., UcxStore]
) -> None:
    objects.objects["k"] = b"old"
    with Server(objects.store()) as first, Server(objects.store()) as second:
        writer, reader = connect(first), connect(second)
        objects.gate.clear()
        writing = threading.Thread(target=write, args=(writer, "k", b"new"))
        writing.start()
        eventually(lambda: objects.requests["PUT", "k"] == 1)
        machine = members_of(first).machine
        assert machine.state.presence is not None
        objects.presences[f"{FOLDER}{machine.state.presence.name}"] = b'{"fenced": true}'
        eventually(lambda: machine.state.phase == "member" and machine.state.epoch == 2)
        assert believes(second, "other")
        assert not believes(second, "k")
        assert writing.is_alive()
        objects.gate.set()
        writing.join()
        assert read(reader, "k") == read(writer, "k") == b"new"


def test_what_may_still_change_is_asked_for_until_it_has_changed(
    objects: HttpObjects, connect: Callable[..., UcxStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "MOST_LOST", 2)
    with (
        Server(objects.store(), source_timeout=1.0) as first,
        Server(objects.store(), source_timeout=1.0) as second,
    ):
        store = connect(first)
        both = (first, second)

        def believe(key: str) -> bool:
            return all(believes(one, key) for one in both)

        def fail_to_write(key: str) -> None:
            objects.status[key] = 500
            with pytest.raises(UnknownOutcomeError):
                write(store, key, b"1")
            del objects.status[key]

        fail_to_write("k1")
        fail_to_write("k2")
        assert not any(believes(one, key) for one in both for key in ("k1", "k2"))
        assert believe("other")
        write(store, "k1", b"2")
        eventually(lambda: believe("k1"))
        assert not believe("k2")
        for key in ("k1", "k3", "k4"):
            fail_to_write(key)
        # Too many to tell them apart.
        eventually(lambda: not any(believes(one, "other") for one in both))
        asyncio.run(store.delete_dir(""))
        eventually(lambda: believe("other") and believe("k2"))


def test_the_presence_goes_with_the_server_and_is_no_key(
    bucket: Path, start: Spawn, connect: Callable[..., UcxStore]
) -> None:
    server = start()
    store = connect(server)
    write(store, "k", b"1")
    assert len(presences(bucket)) == 1
    listed = asyncio.run(_collect(store.list()))
    assert listed == ["k"]
    assert asyncio.run(_collect(store.list_dir(""))) == ["k"]
    assert asyncio.run(store.getsize_prefix("")) == 1
    with pytest.raises(InvalidKeyError, match="reserved for servers"):
        read(store, f"{FOLDER}x")
    asyncio.run(store.delete_dir(""))
    assert len(presences(bucket)) == 1
    server.close()
    assert presences(bucket) == []


async def _collect(names: Any) -> list[str]:
    return [name async for name in names]


def test_one_that_was_killed_keeps_nobody_waiting(
    bucket: Path, start: Spawn, connect: Callable[..., UcxStore]
) -> None:
    """Its process is known to have ended, on this host."""
    killed = start(spawn=True)
    os.kill(killed.pid, signal.SIGKILL)
    eventually(lambda: not Path(f"/proc/{killed.pid}").exists() or _is_zombie(killed.pid))
    begun = time.monotonic()
    store = connect(start())
    write(store, "k", b"1")
    assert time.monotonic() - begun < FENCE_SECONDS
    assert len(presences(bucket)) == 1


def _is_zombie(pid: int) -> bool:
    return ") Z" in Path(f"/proc/{pid}/stat").read_text()


def test_a_source_without_listings_is_asked_at_each_hit(
    objects: HttpObjects, caplog: pytest.LogCaptureFixture, connect: Callable[..., UcxStore]
) -> None:
    objects.has_listings = False
    with Server(objects.store()) as first, Server(objects.store()) as second:
        assert "it asks the source about each value" in caplog.text
        one, other = connect(first), connect(second)
        for turn in range(3):
            write(one, "k", f"{turn}".encode())
            assert read(one, "k") == read(other, "k") == f"{turn}".encode()


def test_without_a_presence_there_are_no_writes(
    objects: HttpObjects, caplog: pytest.LogCaptureFixture, connect: Callable[..., UcxStore]
) -> None:
    """Others could not be told of them; what is read is asked for."""
    objects.presence_status = 503
    objects.objects["k"] = b"1"
    with Server(objects.store()) as server:
        store = connect(server)
        assert read(store, "k") == b"1"
        objects.objects["k"] = b"2"
        assert read(store, "k") == b"2"
        with pytest.raises(StorageError, match="throttled"):
            write(store, "k", b"3")
        assert "writes fail" in caplog.text
        objects.presence_status = 0
        write(store, "k", b"4")
        assert read(store, "k") == b"4"


def test_a_freshness_that_was_chosen_is_kept(
    bucket: Path, start: Spawn, connect: Callable[..., UcxStore]
) -> None:
    """A value that is changed behind the servers' backs is served for so long, and no longer."""
    store = connect(start(freshness=1.0))
    write(store, "k", b"old")
    assert read(store, "k") == b"old"
    (bucket / "k").write_bytes(b"longer")
    changed = time.monotonic()
    eventually(lambda: read(store, "k") == b"longer")
    assert time.monotonic() - changed < 3.0


def test_read_only_servers_believe_for_ever(
    bucket: Path, start: Spawn, connect: Callable[..., UcxStore]
) -> None:
    (bucket / "k").write_bytes(b"old")
    server = start(read_only=True)
    store = connect(server)
    assert read(store, "k") == b"old"
    (bucket / "k").write_bytes(b"longer")
    assert read(store, "k") == b"old"
    assert presences(bucket) == []


def test_a_disk_tier_follows(
    tmp_path: Path, start: Spawn, connect: Callable[..., UcxStore]
) -> None:
    first = start()
    second = start(cache=1, cache_dir=tmp_path / "tier", cache_dir_size="1MiB")
    one, other = connect(first), connect(second)
    write(one, "k", b"1" * 5000)

    def comes_from_disk() -> bool:
        assert read(other, "k") == b"1" * 5000
        return second.stats()["disk_hits"] > 0

    eventually(comes_from_disk)
    write(one, "k", b"2" * 5000)
    assert read(other, "k") == b"2" * 5000
    asyncio.run(one.delete_dir(""))
    assert read(other, "k") is None


@pytest.mark.parametrize("faults", ["none", "joins and leaves", "kill -9"])
def test_each_key_is_linearizable(
    faults: str, start: Spawn, connect: Callable[..., UcxStore]
) -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    servers = [start(spawn=True), start(), start()]
    first, second, third = servers
    stores = [
        connect(first, second, third),
        connect(third, first),
        connect(second, local="auto"),
        connect(second, third),
        connect(third, local="auto"),
    ]
    with Clients(stores, seed) as clients:
        nothing_happens(2)
        if faults == "joins and leaves":
            for _ in range(3):
                with start() as guest:
                    stores.append(connect(guest))
                    with Clients(stores[-1:], seed + 99) as more:
                        nothing_happens(0.7)
                    for key, history in more.history.items():
                        clients.history[key] += history
        elif faults == "kill -9":
            with suppress(ProcessLookupError):
                os.kill(first.pid, signal.SIGKILL)
            nothing_happens(2)
        nothing_happens(1)
    clients.check(seed)


def test_the_checker_finds_an_old_value() -> None:
    wrote = [Op(0, 1, True, b"1"), Op(2, 3, True, b"2")]
    assert is_linearizable([*wrote, Op(2.5, 4, False, b"1")])
    assert is_linearizable([*wrote, Op(4, 5, False, b"2")])
    assert not is_linearizable([*wrote, Op(4, 5, False, b"1")])
    unknown = Op(2, math.inf, True, b"3")
    assert is_linearizable([*wrote, unknown, Op(4, 5, False, b"2"), Op(6, 7, False, b"3")])
    assert not is_linearizable([*wrote, unknown, Op(4, 5, False, b"3"), Op(6, 7, False, b"2")])
