"""Servers whose source is another server, or a set of them."""

import asyncio
import itertools
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import obstore
import pytest
import zarr
from obstore.store import MemoryStore
from zarr.abc.store import OffsetByteRequest, RangeByteRequest, SuffixByteRequest

from tests.backdoor import believes, carrier_of
from tests.conftest import address_of, place_of
from tests.eventually import eventually
from tests.server.sources.http_objects import HttpObjects
from tests.stopping import stop
from tests.values import as_buffer, keys_of, noise, read, write
from ucxstore import Secret, UcxStore
from ucxstore.base.errors import (
    EvictedError,
    ReadOnlyServerError,
    ServerRestartedError,
    StorageError,
    UnknownOutcomeError,
)
from ucxstore.server import Server

KINDS = ["memory", "directory", "source", "set", "shared"]

type Start = Callable[..., Server]


@pytest.fixture
def start() -> Iterator[Start]:
    with ExitStack() as stack:
        yield lambda *args, **options: stack.enter_context(Server(*args, **options))


@pytest.fixture
def connect() -> Iterator[Callable[..., UcxStore]]:
    with ExitStack() as stack:
        yield lambda *args, **options: stack.enter_context(UcxStore(*args, **options))


@pytest.fixture(params=KINDS)
def upstream(request: pytest.FixtureRequest, start: Start, tmp_path: Path) -> str:
    """The address of servers of one storage of each kind, or of a set of several."""
    (tmp_path / "served").mkdir()
    match request.param:
        case "memory":
            servers = [start("memory://")]
        case "directory":
            servers = [start(tmp_path / "served")]
        case "source":
            servers = [start(MemoryStore())]
        case "set":
            servers = [start("memory://") for _ in range(3)]
        case _:
            servers = [start(tmp_path / "served", shared=True) for _ in range(2)]
    return address_of(servers)


def test_a_server_of_servers_is_like_any_other(
    upstream: str, start: Start, connect: Callable[..., UcxStore]
) -> None:
    direct = connect(f"{upstream}/run")
    store = connect(start(f"{upstream}/run").address)
    values = np.random.default_rng(0).random((300, 300), "f4")
    for shards in (None, (150, 150)):
        name = f"g/{'shards' if shards else 'chunks'}"
        array = zarr.create_array(
            store, name=name, shape=(300, 300), chunks=(50, 50), shards=shards, dtype="f4"
        )
        array[:] = values
        array[7:60, 3] = 1.5
        expected = values.copy()
        expected[7:60, 3] = 1.5
        for one in (store, direct):
            np.testing.assert_array_equal(zarr.open_array(one, path=name, mode="r")[:], expected)

    async def compare(one: UcxStore) -> list[object]:
        names = sorted([name async for name in one.list_dir("g/chunks/c")])
        sizes = [await one.getsize(key) for key in ("g/zarr.json", "g/shards/c/0/0")]
        return [sorted(await keys_of(one)), names, sizes, await one.measure("g/chunks/c/0")]

    assert asyncio.run(compare(store)) == asyncio.run(compare(direct))
    assert asyncio.run(store.add("g/zarr.json", as_buffer(b"other"))) is False
    assert asyncio.run(store.add("new", as_buffer(b"1"))) is True
    assert read(direct, "new") == b"1"
    asyncio.run(store.delete_many(["new", "missing"]))
    asyncio.run(store.delete_dir("g/chunks"))
    for one in (store, direct):
        assert read(one, "new") is None
        assert {key for key in asyncio.run(keys_of(one)) if key.startswith("g/chunks")} == set()
        assert asyncio.run(one.is_empty("g/chunks"))
        with pytest.raises(FileNotFoundError):
            asyncio.run(one.getsize("new"))


def test_parts_of_large_values(
    upstream: str, start: Start, connect: Callable[..., UcxStore]
) -> None:
    direct = connect(upstream)
    server = start(upstream, block_size="64KiB")
    store = connect(server.address, local="off")
    value = noise(1_000_000)
    write(direct, "large", value)
    write(direct, "empty", b"")
    for part, expected in [
        (RangeByteRequest(5, 10), value[5:10]),
        (RangeByteRequest(700_000, 800_000), value[700_000:800_000]),
        (OffsetByteRequest(999_990), value[999_990:]),
        (SuffixByteRequest(3), value[-3:]),
    ]:
        found = store.get_sync("large", byte_range=part)
        assert found is not None
        assert found.to_bytes() == expected
    assert server.stats()["cached_bytes"] < 600_000
    assert read(store, "large") == value
    assert read(store, "empty") == b""
    assert store.get_sync("missing", byte_range=RangeByteRequest(0, 1)) is None


def test_a_listing_of_many_pages(start: Start, connect: Callable[..., UcxStore]) -> None:
    up = start("memory://")
    direct = connect(f"{up.address}/p")
    keys = [f"{'k' * 900}/{number:05}" for number in range(3000)]
    asyncio.run(direct.set_many((key, as_buffer(b"1")) for key in keys))
    write(connect(up.address), "beside", b"1")
    store = connect(start(f"{up.address}/p").address)
    assert asyncio.run(keys_of(store)) == keys
    assert asyncio.run(store.measure("")) == (3000, 3000)
    asyncio.run(store.delete_dir("k" * 900))
    assert asyncio.run(keys_of(direct)) == []


def test_each_value_comes_once_and_a_look_moves_no_bytes(
    start: Start, connect: Callable[..., UcxStore]
) -> None:
    up = start("memory://")
    direct = connect(up.address)
    write(direct, "k", noise(300_000))
    reader = connect(start(up.address, freshness="always").address)
    before = up.stats()["bytes_sent"]
    for _ in range(20):
        assert read(reader, "k") == noise(300_000)
    assert 300_000 <= up.stats()["bytes_sent"] - before < 400_000
    write(direct, "k", noise(300_000, 1))
    assert read(reader, "k") == noise(300_000, 1)


def test_a_change_by_one_is_seen_through_all(
    upstream: str, start: Start, connect: Callable[..., UcxStore]
) -> None:
    servers = [start(f"{upstream}/run") for _ in range(2)]
    stores = [connect(server.address) for server in servers]
    for turn in range(20):
        write(stores[turn % 2], "k", b"%d" % turn)
        assert [read(store, "k") for store in stores] == [b"%d" % turn] * 2
    eventually(lambda: all(believes(server, "k") for server in servers))
    hits = servers[0].stats()["cache_hits"]
    for _ in range(10):
        read(stores[0], "k")
    assert servers[0].stats()["cache_hits"] >= hits + 9
    assert servers[0].identity == servers[1].identity
    both = connect(address_of(servers))  # they stand in for one another
    assert read(both, "k") == b"19"


def test_records_are_no_keys_and_go_with_their_server(
    upstream: str, start: Start, connect: Callable[..., UcxStore], tmp_path: Path
) -> None:
    direct = connect(upstream)
    with Server(upstream) as server:
        write(connect(server.address), "k", b"1")
        asyncio.run(connect(server.address).delete_dir(""))
        assert asyncio.run(keys_of(direct)) == []
        assert asyncio.run(_names(direct)) == []
        assert carrier_of(server).members.machine.state.phase == "member"
        write(connect(server.address), "k", b"2")
    assert not [path for path in (tmp_path / "served").rglob("*") if "tiers" in path.name]


async def _names(store: UcxStore) -> list[str]:
    return [name async for name in store.list_dir("")]


def test_servers_of_different_prefixes_do_not_meet(start: Start) -> None:
    up = start("memory://")
    states = [carrier_of(start(f"{up.address}/{p}")).members.machine.state for p in ("a", "b")]
    assert [state.phase for state in states] == ["member"] * 2
    assert not any(state.peers for state in states)


# ---- secrets ----


def test_the_secret_of_the_source(
    start: Start, connect: Callable[..., UcxStore], tmp_path: Path
) -> None:
    theirs, ours = Secret("of the source, 0123456789"), Secret("of this server, 0123456789")
    (tmp_path / "secret").write_text("of the source, 0123456789")
    (tmp_path / "secret").chmod(0o600)
    up = start("memory://", secret=theirs)
    for options in [
        {"secret": theirs},
        {"secret": ours, "storage_options": {"secret_file": str(tmp_path / "secret")}},
        {"secret": ours, "storage_options": {"secret": theirs.reveal().decode()}},
        {"storage_options": {"secret_file": str(tmp_path / "secret")}},
    ]:
        server = start(up.address, **options)
        store = connect(server)
        write(store, "k", b"1")
        assert read(store, "k") == b"1"
        assert "0123456789" not in repr(server)
        server.close()  # servers of different secrets do not meet, and wait for one another
    for options in [{}, {"secret": ours}]:
        with pytest.raises(StorageError, match=rf"storage: {up.address}: .*secret") as caught:
            start(up.address, **options)
        assert "0123456789" not in str(caught.value)


def test_encryption_goes_on_to_the_source(start: Start, connect: Callable[..., UcxStore]) -> None:
    secret = Secret("a secret that is long enough")
    up = start("memory://", secret=secret, encrypt=True)
    server = start(up.address, secret=secret, encrypt=True, storage_options={"local": "off"})
    write(connect(server), "k", b"1")
    clients = up.stats()["clients"]
    assert clients
    assert all(client["encrypted"] for client in clients)
    plain = start("memory://", secret=secret)
    with pytest.raises(StorageError, match="encrypt"):
        start(plain.address, secret=secret, encrypt=True, storage_options={"local": "off"})
    start(plain.address, secret=secret, encrypt=True, storage_options={"encrypt": "no"})


def test_a_grant_reads_and_its_writes_fail(
    start: Start, connect: Callable[..., UcxStore], caplog: pytest.LogCaptureFixture
) -> None:
    """Who may not operate the source cannot meet others there, so they would miss its changes."""
    secret = Secret("a secret that is long enough")
    up = start("memory://", secret=secret)
    direct = connect(f"{up.address}/run", secret=secret)
    write(direct, "k", b"1")
    grant = secret.grant("run", expires="1h").reveal().decode()
    server = start(f"{up.address}/run", storage_options={"secret": grant})
    store = connect(server.address)
    assert read(store, "k") == b"1"
    write(direct, "k", b"2")
    assert read(store, "k") == b"2"
    with pytest.raises(StorageError, match="is for operators alone"):
        write(store, "k", b"3")
    assert "it asks the source about each value" in caplog.text
    reader = start(
        f"{up.address}/run",
        read_only=True,
        storage_options={
            "secret": secret.grant("run", read_only=True, expires="1h").reveal().decode()
        },
    )
    assert read(connect(reader.address), "k") == b"2"
    with pytest.raises(StorageError, match="outside of the grant"):
        start(f"{up.address}/other", storage_options={"secret": grant})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"endpoint": "x"}, "storage_options: 'endpoint' is no option .* secret_file"),
        ({"secret": "x", "secret_file": "y"}, "storage_options: secret and secret_file exclude"),
        ({"secret_file": "/nope"}, "storage_options: secret_file: .*No such file.*/nope"),
        ({"encrypt": "perhaps"}, "storage_options: encrypt: 'perhaps' is neither yes nor no"),
        ({"local": "moon"}, "storage_options: local: 'moon'"),
        ({"encrypt": "yes"}, "storage_options: encrypt: it needs a secret"),
    ],
)
def test_wrong_options(options: dict[str, str], message: str) -> None:
    with pytest.raises((ValueError, OSError), match=message):
        Server("ucx://127.0.0.1:1", storage_options=options)


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("ucx://", "storage: invalid address 'ucx://'"),
        ("ucx://host", "storage: .*names no port"),
        ("ucx:host:1", "did you mean 'ucx://host:1'"),
        ("ucx://h:1/__ucxscratch__/0123", "storage: a scratch space"),
    ],
)
def test_wrong_locations(location: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Server(location)


# ---- failures ----


def test_a_source_that_is_not_there(start: Start) -> None:
    with pytest.raises(StorageError, match=r"storage: ucx://127\.0\.0\.1:1: .*refused"):
        start("ucx://127.0.0.1:1", source_timeout=0.5)
    with pytest.raises(ValueError, match="check: a source at other servers"):
        start(start("memory://").address, check=False)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0"])
def test_a_server_that_is_its_own_source(host: str) -> None:
    with Server("memory://") as server:
        port = place_of(server).rpartition(":")[2]
    with pytest.raises(ValueError, match=f"storage: .*127.0.0.1:{port} is this server itself"):
        Server(f"ucx://127.0.0.1:{port}", bind=f"{host}:{port}", insecure=True)


def test_a_circle_of_servers(connect: Callable[..., UcxStore]) -> None:
    """One that takes the place of its source's source is another storage, so nothing goes round."""
    first = Server("memory://")
    bind = place_of(first)
    with Server(first.address, source_timeout=3.0) as second:
        store = connect(second.address)
        write(store, "k", b"1")
        first.close()
        with pytest.raises(StorageError), Server(second.address, bind=bind, source_timeout=3.0):
            read(connect(f"ucx://{bind}"), "other")


def test_a_source_that_lost_its_values_has_no_missing_keys(
    connect: Callable[..., UcxStore],
) -> None:
    up = Server("memory://")
    bind = place_of(up)
    with Server(up.address, source_timeout=5.0) as server:
        store = connect(server.address)
        write(store, "k", b"1")
        assert read(store, "k") == b"1"
        identity = server.identity
        up.close()
        with Server("memory://", bind=bind):
            for key in ("never read", "k2"):
                with pytest.raises(StorageError, match="ServerRestartedError"):
                    read(store, key)
            with pytest.raises(StorageError, match="ServerRestartedError"):
                write(store, "k", b"2")
            with pytest.raises(StorageError, match="ServerRestartedError"):
                asyncio.run(keys_of(store))
            eventually(lambda: not believes(server, "k"), 30)
            with pytest.raises(StorageError, match="ServerRestartedError"):
                read(store, "k")
            server.close()
            with Server(f"ucx://{bind}", bind=place_of(server)) as again:
                assert again.identity != identity
                with pytest.raises(ServerRestartedError):
                    read(store, "k")
                assert read(connect(again.address), "k") is None


def test_a_source_that_keeps_its_values_may_restart(
    tmp_path: Path, connect: Callable[..., UcxStore]
) -> None:
    up = Server(tmp_path)
    bind = place_of(up)
    with Server(up.address) as server:
        store = connect(server.address)
        write(store, "k", b"1")
        up.close()
        with Server(tmp_path, bind=bind):
            assert read(store, "k") == b"1"
            write(store, "k", b"2")
            assert (tmp_path / "k").read_bytes() == b"2"
            eventually(lambda: believes(server, "k"), 30)


def test_a_source_that_stands_still(connect: Callable[..., UcxStore]) -> None:
    with (
        Server.spawn("memory://") as up,
        Server(up.address, source_timeout=2.0, grace=0.1) as server,
    ):
        store = connect(server.address)
        write(store, "k", b"1")
        stop(up.pid)
        with pytest.raises(StorageError, match=rf"{up.address}: .*no answer within 2 s"):
            read(store, "other")
        with pytest.raises(UnknownOutcomeError, match="'k2'"):
            write(store, "k2", b"1")
        os.kill(up.pid, signal.SIGCONT)
        write(store, "k2", b"2")
        assert read(store, "k2") == b"2"


def test_an_unknown_outcome_at_the_source_is_one_here(
    objects: HttpObjects, start: Start, connect: Callable[..., UcxStore]
) -> None:
    up = start(objects.store(), source_timeout=1.0)
    store = connect(start(up.address, source_timeout=5.0).address)
    objects.status["k"] = 500
    with pytest.raises(UnknownOutcomeError, match=f"{up.address}"):
        write(store, "k", b"1")
    del objects.status["k"]
    write(store, "k", b"2")
    assert read(store, "k") == b"2"


def test_an_evicted_value_is_not_missing(start: Start, connect: Callable[..., UcxStore]) -> None:
    up = start("memory://", memory="16MiB", when_full="evict")
    direct = connect(up.address)
    for number in range(40):
        write(direct, str(number), noise(1_000_000, number))
    evicted = next(str(number) for number in itertools.count() if _is_evicted(direct, str(number)))
    store = connect(start(up.address).address)
    with pytest.raises(StorageError, match=f"EvictedError: .*'{evicted}'"):
        read(store, evicted)
    write(store, evicted, b"again")
    assert read(store, evicted) == b"again"


def _is_evicted(store: UcxStore, key: str) -> bool:
    try:
        return read(store, key) is None
    except EvictedError:
        return True


def test_a_read_only_source(start: Start, connect: Callable[..., UcxStore], tmp_path: Path) -> None:
    (tmp_path / "k").write_bytes(b"1")
    up = start(tmp_path, read_only=True)
    store = connect(start(up.address, read_only=True).address)
    assert read(store, "k") == b"1"
    with pytest.raises(ReadOnlyServerError):
        write(store, "k", b"2")
    writable = connect(start(up.address).address)
    assert read(writable, "k") == b"1"
    with pytest.raises(StorageError, match="read-only"):
        write(writable, "k", b"2")


def test_a_server_of_a_server_of_a_bucket(start: Start, connect: Callable[..., UcxStore]) -> None:
    bucket: Any = MemoryStore()
    middle = start(bucket)
    store = connect(start(start(f"{middle.address}/a").address + "/b").address)
    write(store, "k", b"1")
    assert obstore.get(bucket, "a/b/k").bytes() == b"1"
    assert read(store, "k") == b"1"
