"""What a grant opens, for every kind of request, over UCX and over the local plane.

A store does not look at what its grant opens: it asks for everything, as a hostile client would.
"""

import asyncio
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from obstore.store import MemoryStore
from zarr.abc.store import RangeByteRequest
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync

from tests.cli.command import run
from tests.conftest import address_of
from tests.eventually import eventually, nothing_happens
from tests.values import as_buffer, read
from ucxstore import (
    AuthenticationError,
    GrantError,
    NotMappedError,
    ReadOnlyServerError,
    ScratchEndedError,
    Secret,
    StorageError,
    UcxStore,
)
from ucxstore.base import grants
from ucxstore.base.address import Address
from ucxstore.base.grants import Credentials
from ucxstore.client import requests
from ucxstore.client.connect import Greeting
from ucxstore.pipeline.access import access_to
from ucxstore.server import Server

SECRET = Secret("correct horse battery staple")
GET, REQUEST, REPLY, ANY = 1, 1, 3, 2**64 - 1
OURS, THEIRS = bytes(range(256)) * 20, b"theirs" * 1000
LARGE = 3_000_000
PROTOTYPE = default_buffer_prototype()
OUTSIDE = r"is outside of the grant, which opens 'run-1/'"


@dataclass
class Case:
    """A server and a plane, with values of two runs."""

    server: Server
    local: str

    def store(self, secret: Secret, prefix: str = "", **options: Any) -> UcxStore:
        address = f"{self.server.address}/{prefix}".rstrip("/")
        return UcxStore(address, secret=secret, local=self.local, **options)


def memory(_: Path) -> str:
    return "memory://"


def directory(path: Path) -> Path:
    return path


def source(_: Path) -> MemoryStore:
    return MemoryStore()


@pytest.fixture(scope="module", params=[memory, directory, source], ids=lambda one: one.__name__)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    storage = request.param(tmp_path_factory.mktemp("grants"))
    with (
        Server(storage, secret=SECRET, local=True, scratch_limit="unlimited") as server,
        UcxStore(server.address, secret=SECRET, local="off") as kept,
    ):
        kept.ping_sync()  # a connection for all tests, as in conftest.py
        yield server


@pytest.fixture(params=["off", "auto"])
def case(server: Server, request: pytest.FixtureRequest) -> Iterator[Case]:
    case = Case(server, request.param)
    with case.store(SECRET) as store:
        sync(store.clear())
        for key, value in {
            "run-1/a": OURS,
            "run-1/b/c": OURS,
            "run-1/large": bytes(LARGE),
            "run-17/a": THEIRS,
            "run-17/large": bytes(LARGE),
            "a": THEIRS,
            "run-1": THEIRS,
        }.items():
            if not (isinstance(server._storage, Path) and key == "run-1"):  # a folder's name
                store.set_sync(key, as_buffer(value))
        yield case


@pytest.fixture
def run_1(case: Case) -> Iterator[UcxStore]:
    """A store of everything, with a grant of run-1/ alone."""
    with case.store(SECRET.grant("run-1/", expires="1h")) as store:
        store.ping_sync()
        expected = ["local"] if case.local == "auto" else store.stats()["lanes"]
        assert store.stats()["lanes"] == expected
        yield store


@pytest.fixture
def reader(case: Case) -> Iterator[UcxStore]:
    with case.store(SECRET.grant("run-1/", read_only=True)) as store:
        yield store


async def collect(names: Any) -> list[str]:
    return sorted([name async for name in names])


def read_into(store: UcxStore, key: str) -> bytes:
    out = np.zeros(len(OURS), "u1")
    size = store.get_into_sync(key, out)
    assert size is not None
    return out[:size].tobytes()


def commit(store: UcxStore, key: str, size: int = LARGE) -> None:
    with store.allocate_sync(key, size) as value:
        value.view("u1", (size,))[:] = 7
        value.commit_sync()


def box(store: UcxStore, key: str) -> bytes:
    """Read the first bytes as a box of an array of bytes."""
    value = sync(store.get(key, PROTOTYPE, RangeByteRequest(0, 10)))
    assert value is not None
    return value.to_bytes()


# Each reads of one key.
READS: dict[str, Callable[[UcxStore, str], object]] = {
    "get": read,
    "get_async": lambda store, key: sync(store.get(key, PROTOTYPE)),
    "range": box,
    "ranges": lambda store, key: store.get_ranges_sync(
        key, [RangeByteRequest(0, 4), RangeByteRequest(6, 9)], prototype=PROTOTYPE
    ),
    "get_into": read_into,
    "view": lambda store, key: store.view_sync(key),
    "view of a file": lambda store, key: store.view_sync(key, map_files=True),
    "exists": lambda store, key: sync(store.exists(key)),
    "getsize": lambda store, key: sync(store.getsize(key)),
}
# Each reads of one prefix.
LISTINGS: dict[str, Callable[[UcxStore, str], object]] = {
    "list_prefix": lambda store, prefix: sync(collect(store.list_prefix(prefix))),
    "list_dir": lambda store, prefix: sync(collect(store.list_dir(prefix))),
    "measure": lambda store, prefix: sync(store.measure(prefix)),
    "is_empty": lambda store, prefix: sync(store.is_empty(prefix)),
}
# Each changes one key.
WRITES: dict[str, Callable[[UcxStore, str], object]] = {
    "set": lambda store, key: store.set_sync(key, as_buffer(b"new")),
    "set of a large one": lambda store, key: store.set_sync(key, as_buffer(bytes(LARGE))),
    "set of many segments": lambda store, key: store.set_sync(key, as_buffer(bytes(40_000_000))),
    "add": lambda store, key: sync(store.add(key, as_buffer(b"new"))),
    "commit": commit,
    "delete": lambda store, key: store.delete_sync(key),
    "delete_dir": lambda store, key: sync(store.delete_dir(key)),
}


def state(case: Case) -> dict[str, int]:
    """Return the sizes of all values, as who has the secret finds them."""
    with case.store(SECRET) as store:
        keys = sync(collect(store.list()))
        return {key: size for key in keys if (size := sync(store.getsize(key))) is not None}


# ---- reads ----


@pytest.mark.parametrize("way", READS)
def test_reads(way: str, case: Case, run_1: UcxStore) -> None:
    with case.store(SECRET) as whole:
        for key in ("run-1/a", "run-1/b/c"):
            expected, found = READS[way](whole, key), READS[way](run_1, key)
            if not way.startswith("view") and isinstance(found, bytes | int | bool):
                assert found == expected
    for key in ("run-17/a", "a", "run-1", "run-17/missing", "missing", "__ucxscratch__"):
        with pytest.raises(GrantError, match=OUTSIDE) as caught:
            READS[way](run_1, key)
        assert f"'{key}'" in str(caught.value)
        assert "until " in str(caught.value)


@pytest.mark.parametrize("way", ["ours", "theirs", "both"])
def test_many_in_one_request(way: str, run_1: UcxStore) -> None:
    keys = {"ours": ["run-1/a", "run-1/b/c"], "theirs": ["run-17/a", "a"]}
    wanted = keys.get(way, [*keys["ours"], *keys["theirs"]])
    outs = [np.zeros(len(THEIRS), "u1") for _ in wanted]
    into = [(key, out, None) for key, out in zip(wanted, outs, strict=True)]
    if way == "ours":
        assert run_1.get_many_into_sync(into) == [len(OURS)] * 2
        assert list(sync(run_1.getsizes(wanted))) == [len(OURS)] * 2
        return
    with pytest.raises(GrantError, match=OUTSIDE):
        run_1.get_many_into_sync(into)
    with pytest.raises(GrantError, match=OUTSIDE) as caught:
        sync(run_1.getsizes(wanted))
    assert "'run-17/a'" in str(caught.value)
    for key, out in zip(wanted, outs, strict=True):
        assert key.startswith("run-1/") or not out.any()


@pytest.mark.parametrize("way", LISTINGS)
def test_listings(way: str, case: Case, run_1: UcxStore) -> None:
    with case.store(SECRET) as whole:
        for prefix in ("run-1/", "run-1/b/", "run-1/missing/"):
            assert LISTINGS[way](run_1, prefix) == LISTINGS[way](whole, prefix)
    for prefix in ("", "run-17/", "run-17", "r", "missing/"):
        with pytest.raises(GrantError, match=OUTSIDE):
            LISTINGS[way](run_1, prefix)
    if way == "list_prefix":
        assert LISTINGS[way](run_1, "run-1/l") == ["run-1/large"]
        with pytest.raises(GrantError, match=OUTSIDE):
            LISTINGS[way](run_1, "run-1")


@pytest.mark.parametrize(
    "cursor", ["", "a", "run-1/", "run-17/", "run-17/a", "run-1/../run-17", "~"]
)
@pytest.mark.parametrize("delimited", [False, True])
def test_a_cursor_leads_nowhere_else(cursor: str, delimited: bool, run_1: UcxStore) -> None:
    """It is what an earlier page has said, and a hostile client says what it likes."""
    page = requests.list_page("run-1/", delimited=delimited, cursor=cursor)
    names: list[str] = []
    with suppress(StorageError) if ".." in cursor else nullcontext():  # obstore refuses that
        names, *_ = access_to(run_1).channel.ask_sync(page)
    allowed = {"a", "b", "large"} if delimited else {"run-1/a", "run-1/b/c", "run-1/large"}
    assert set(names) <= allowed


# ---- writes ----


@pytest.mark.parametrize("way", WRITES)
def test_writes(way: str, case: Case, run_1: UcxStore) -> None:
    before = state(case)
    for key in ("run-17/a", "a", "run-17/new", "new"):
        with pytest.raises(GrantError, match=OUTSIDE):
            WRITES[way](run_1, key)
    assert state(case) == before
    WRITES[way](run_1, "run-1/b/c")
    WRITES[way](run_1, "run-1/new")
    after = state(case)
    assert {key: size for key, size in after.items() if not key.startswith("run-1/")} == {
        key: size for key, size in before.items() if not key.startswith("run-1/")
    }
    assert ("run-1/new" in after) == (not way.startswith("delete"))


def test_no_more_is_deleted_than_it_opens(case: Case, run_1: UcxStore) -> None:
    before = state(case)
    with pytest.raises(GrantError, match=OUTSIDE):
        sync(run_1.clear())
    assert state(case) == before
    sync(run_1.delete_dir("run-1"))
    assert state(case) == {
        key: size for key, size in before.items() if not key.startswith("run-1/")
    }


@pytest.mark.parametrize("way", WRITES)
def test_a_reader_changes_nothing(way: str, case: Case, reader: UcxStore) -> None:
    before = state(case)
    for key in ("run-1/a", "run-1/b", "run-1/new"):
        with pytest.raises(
            GrantError, match="was not changed: the grant opens 'run-1/', read-only"
        ):
            WRITES[way](reader, key)
    for key in ("run-17/a", "a"):
        with pytest.raises(GrantError, match="outside of the grant"):
            WRITES[way](reader, key)
    assert state(case) == before
    assert read(reader, "run-1/a") == OURS


def test_a_reader_of_everything(case: Case) -> None:
    before = state(case)
    with case.store(SECRET.grant(None, read_only=True)) as store:
        assert read(store, "run-17/a") == THEIRS
        assert sync(collect(store.list())) == sorted(before)
        sync(store.server_stats())
        for write in WRITES.values():
            with pytest.raises(GrantError, match="the grant opens everything, read-only"):
                write(store, "run-1/b")
        with pytest.raises(GrantError, match="a scratch space"):
            store.scratch_sync("1MB")
    assert state(case) == before


def test_many_written_in_one_request(case: Case, run_1: UcxStore) -> None:
    with pytest.raises(GrantError, match=OUTSIDE):
        sync(run_1.set_many([("run-1/x", as_buffer(b"1")), ("run-17/x", as_buffer(b"2"))]))
    assert "run-17/x" not in state(case)


def test_many_deleted_in_one_request(case: Case, run_1: UcxStore) -> None:
    """None of them is, as all are refused: the error names the one, and not only the first."""
    before = state(case)
    request = requests.delete(["run-1/a", "run-17/a"])
    with pytest.raises(GrantError, match="came with 'run-17/a', which is outside of the grant"):
        access_to(run_1).channel.ask_sync(request)
    assert state(case) == before


# ---- everything else ----


def test_the_counters_tell_of_others(run_1: UcxStore) -> None:
    with pytest.raises(GrantError, match=r"counters.* is outside of the grant"):
        sync(run_1.server_stats())


def test_no_scratch_space(case: Case, run_1: UcxStore) -> None:
    with pytest.raises(GrantError, match=r"a scratch space.* is outside of the grant"):
        run_1.scratch_sync("1MB")
    with case.store(SECRET) as whole, whole.scratch_sync("1MB") as scratch:
        inside = scratch.store()
        inside.set_sync("a", as_buffer(OURS))
        prefix = inside.address.rpartition("/ucx://")[2].split("/", 3)[3]
        with case.store(SECRET.grant("run-1/"), prefix) as other:
            with pytest.raises(GrantError, match=OUTSIDE):
                read(other, "a")
            with pytest.raises(GrantError, match=OUTSIDE):
                other.set_sync("b", as_buffer(OURS))
            for request in (requests.renew_space(scratch.name), requests.end_space(scratch.name)):
                with pytest.raises(GrantError, match="outside of the grant"):
                    access_to(other).channel.ask_sync(request)
        assert read(inside, "a") == OURS


@pytest.mark.parametrize("read_only", [False, True])
def test_the_grant_of_a_scratch_space(case: Case, read_only: bool) -> None:
    with (
        case.store(SECRET) as whole,
        whole.scratch_sync("1MB") as scratch,
        whole.scratch_sync("1MB") as two,
    ):
        inside = scratch.store()
        inside.set_sync("a", as_buffer(OURS))
        two.store().set_sync("a", as_buffer(THEIRS))
        prefix, other = (one.store().address.split("/", 3)[3] for one in (scratch, two))
        granted = scratch.grant(read_only=read_only, expires="8h")
        with case.store(granted, prefix) as store:
            assert read(store, "a") == OURS
            assert sync(collect(store.list())) == ["a"]
            if read_only:
                with pytest.raises(GrantError, match="was not changed"):
                    store.set_sync("b", as_buffer(OURS))
            else:
                store.set_sync("b", as_buffer(OURS))
                assert read(inside, "b") == OURS
        with case.store(granted, other) as store, pytest.raises(GrantError, match="outside"):
            read(store, "a")
        with case.store(granted) as store, pytest.raises(GrantError, match="outside"):
            read(store, "run-1/a")
        scratch.close()
        with case.store(granted, prefix) as store, pytest.raises(ScratchEndedError):
            read(store, "a")


def test_no_grant_of_a_space_without_a_secret() -> None:
    with (
        Server("memory://") as server,
        UcxStore(server.address) as store,
        store.scratch_sync("1MB") as scratch,
        pytest.raises(ValueError, match="the store has no secret"),
    ):
        scratch.grant()


def test_the_record_of_a_set_is_not_made_by_a_grant() -> None:
    """Where all keys are follows from it, also those that the grant does not open."""
    granted = SECRET.grant("run-1/")
    with ExitStack() as stack:
        servers = [stack.enter_context(Server("memory://", secret=SECRET)) for _ in range(3)]
        address = address_of(servers, "run-1")
        with (
            UcxStore(address, secret=granted) as store,
            pytest.raises(AuthenticationError, match=r"opens 'run-1/', does not open the record"),
        ):
            store.set_sync("0", as_buffer(OURS))
        with UcxStore(address, secret=SECRET) as store:
            assert read(store, "7") is None
        with UcxStore(address, secret=granted) as store:
            for number in range(30):
                store.set_sync(f"{number}", as_buffer(OURS))
            assert len(sync(collect(store.list()))) == 30
        with (
            UcxStore(address_of(servers), secret=granted) as store,
            pytest.raises(GrantError, match=OUTSIDE),
        ):
            sync(collect(store.list()))
        with UcxStore(address, secret=SECRET) as store:
            assert read(store, "7") == OURS


def test_a_server_that_is_read_only_for_all(tmp_path: Path) -> None:
    with (
        Server(tmp_path, secret=SECRET, read_only=True) as server,
        UcxStore(server.address, secret=SECRET.grant("run-1/")) as store,
    ):
        with pytest.raises(ReadOnlyServerError):
            store.set_sync("run-1/a", as_buffer(OURS))
        with pytest.raises(GrantError):
            store.set_sync("a", as_buffer(OURS))


# ---- what a client of the host is let see ----


@pytest.mark.parametrize(
    ("granted", "sees"),
    [
        (SECRET, True),
        (SECRET.grant(None, read_only=True), True),
        (SECRET.grant("run-1/"), False),
        (SECRET.grant("run-1/", read_only=True), False),
        (SECRET.grant(None, expires="1h"), False),
    ],
    ids=["secret", "reader", "prefix", "prefix, reader", "expires"],
)
def test_who_is_shown_memory_or_the_directory(server: Server, granted: Secret, sees: bool) -> None:
    """What is shown cannot be taken back, and what else lies in it cannot be hidden."""
    with UcxStore(server.address, secret=SECRET, local="off") as store:
        store.set_sync("run-1/large", as_buffer(bytes(LARGE)))
    case = Case(server, "auto")
    with case.store(granted) as store:
        assert read(store, "run-1/large") == bytes(LARGE)
        assert read(store, "run-1/large") == bytes(LARGE)
        assert store.stats()["lanes"] == ["local"]
        if sees:
            with store.view_sync("run-1/large", map=True, map_files=True) as view:
                assert view is not None
                assert view.mapped
        else:
            with pytest.raises(NotMappedError):
                store.view_sync("run-1/large", map=True, map_files=True)
            assert what_is_passed(server, granted) == set()


def what_is_passed(server: Server, granted: Secret) -> set[int]:
    """Return the kinds of messages with descriptors that a client gets that asks for a value."""
    [place] = Address.parse(server.address).servers
    with Greeting(place, granted, 20.0) as greeting:
        token = greeting.welcome.token
        fd = greeting.join()
        assert fd is not None
    key = b"run-1/large"
    item = struct.pack("<H", len(key)) + key + struct.pack("<4Q", ANY, 16 << 20, ANY, 0) + b"\0\0\0"
    header = token + struct.pack("<QIIII", 1, GET, 0, 1, 0)
    kinds: set[int] = set()
    with socket.socket(fileno=fd) as sock:
        sock.settimeout(20)
        sock.sendall(struct.pack("<IIIIQ", REQUEST, 0, len(header), 0, len(item)) + header + item)
        data, wanted = b"", LARGE
        while wanted > 0:
            part, rights, _, _ = sock.recvmsg(1 << 20, socket.CMSG_SPACE(64))
            assert part
            data += part
            if rights:
                kinds.add(-1)
            while len(data) >= 24:
                kind, passed, head, _, body = struct.unpack_from("<IIIIQ", data)
                if len(data) < 24 + head + body:
                    break
                kinds |= {kind} if passed else set()
                wanted -= body if kind == REPLY else 0
                data = data[24 + head + body :]
    return kinds


def test_a_space_is_shown_to_who_may_use_all_of_it(server: Server) -> None:
    case = Case(server, "auto")
    with case.store(SECRET) as whole, whole.scratch_sync("10MB") as scratch:
        scratch.store().set_sync("a", as_buffer(bytes(LARGE)))
        prefix = scratch.store().address.split("/", 3)[3]
        with case.store(scratch.grant(), prefix) as store:
            view = store.view_sync("a", map=True)
            assert view is not None
            assert view.mapped
        for granted in (scratch.grant(expires="1h"), scratch.grant().grant("b/")):
            with case.store(granted, prefix) as store, pytest.raises((NotMappedError, GrantError)):
                store.view_sync("a", map=True)


# ---- the end ----


def ends_in(seconds: float) -> Secret:
    """Return a grant of run-1/ that ends at a whole second, so many from now."""
    return SECRET.grant("run-1/", expires=seconds)


def test_it_ends_while_its_session_lasts(case: Case) -> None:
    granted = ends_in(1.0)
    end = grants.bounds_of(grants.credentials_of(granted.reveal()).caveats).expires
    assert end is not None
    with case.store(granted) as store:
        assert read(store, "run-1/a") == OURS
        nothing_happens(max(end - time.time(), 0) + 0.01)
        for use in (
            lambda: read(store, "run-1/a"),
            lambda: store.set_sync("run-1/x", as_buffer(OURS)),
            lambda: store.delete_sync("run-1/a"),
            lambda: sync(store.exists("run-1/a")),
            lambda: sync(collect(store.list_prefix("run-1/"))),
            lambda: sync(store.delete_dir("run-1/")),
            lambda: commit(store, "run-1/x"),
            lambda: sync(store.server_stats()),
        ):
            with pytest.raises(
                GrantError, match="the grant has expired, it opened 'run-1/', until"
            ):
                use()
    assert state(case)["run-1/a"] == len(OURS)
    assert "run-1/x" not in state(case)
    [place] = Address.parse(case.server.address).servers
    with pytest.raises(AuthenticationError, match="the grant has expired"):
        Greeting(place, granted, 20.0)


def test_a_value_that_is_still_coming_at_the_end(case: Case) -> None:
    """It is not stored: nothing is acknowledged that was not allowed when it was complete."""
    granted = ends_in(1.0)
    end = grants.bounds_of(grants.credentials_of(granted.reveal()).caveats).expires
    assert end is not None
    with case.store(granted) as store, store.allocate_sync("run-1/x", LARGE) as value:
        value.view("u1", (LARGE,))[:] = 1
        nothing_happens(max(end - time.time(), 0) + 0.01)
        with pytest.raises(GrantError, match="has expired"):
            value.commit_sync()
    assert "run-1/x" not in state(case)


@pytest.mark.parametrize("local", [pytest.param("ucx", marks=pytest.mark.full), "auto"])
def test_the_session_goes_some_time_after_the_end(local: str) -> None:
    """So an idle client costs nothing any more; one that asks meanwhile is told why."""
    with Server("memory://", secret=SECRET, local=True) as server:
        case = Case(server, local)
        with case.store(SECRET.grant("run-1/", expires=1.0)) as store:
            assert read(store, "run-1/a") is None
            assert server.sessions == 1
            eventually(lambda: server.sessions == 0, 60.0, 0.1)
            with pytest.raises(AuthenticationError, match="the grant has expired"):
                read(store, "run-1/a")


# ---- with other tools ----


def test_zarr_in_its_prefix(case: Case) -> None:
    data = np.arange(10_000, dtype="i4").reshape(100, 100)
    with case.store(SECRET.grant("run-1/"), "run-1") as store:
        z = zarr.create_array(
            store, name="z", shape=data.shape, chunks=(30, 30), dtype=data.dtype, overwrite=True
        )
        z[...] = data
        assert np.array_equal(zarr.open_array(store, path="z")[...], data)
    with case.store(SECRET.grant("run-1/", read_only=True), "run-1") as store:
        z = zarr.open_array(store, path="z", mode="r")
        assert np.array_equal(z[3:50, 7], data[3:50, 7])
    url = f"{case.server.address}/run-1/z"
    options = {"secret": SECRET.grant("run-1/", read_only=True), "local": case.local}
    opened = zarr.open_array(url, mode="r", storage_options=options)
    assert np.array_equal(opened[::7, 3], data[::7, 3])
    with pytest.raises(GrantError):
        zarr.open_array(f"{case.server.address}/run-17/z", mode="r", storage_options=options)


def test_the_command_line(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with UcxStore(server.address, secret=SECRET) as store:
        store.set_sync("run-1/a", as_buffer(OURS))
    granted = tmp_path / "grant"
    granted.write_bytes(SECRET.grant("run-1/", read_only=True).reveal())
    granted.chmod(0o600)
    done = run("ls", f"{server.address}/run-1", "--secret-file", granted)
    assert (done.returncode, done.stderr) == (0, "")
    assert "a" in done.stdout.split()
    done = run("ls", server.address, "--secret-file", granted)
    assert done.returncode == 4
    assert "outside of the grant, which opens 'run-1/', read-only" in done.stderr
    monkeypatch.setenv("UCXSTORE_SECRET_FILE", str(granted))
    assert run("du", f"{server.address}/run-1").returncode == 0
    assert run("du", f"{server.address}/run-17").returncode == 4


# ---- forged ones ----


@pytest.mark.parametrize("local", ["ucx", "auto"])
def test_forged_grants(server: Server, local: str) -> None:
    real = grants.credentials_of(SECRET.grant("run-1/", expires="1h").reveal())
    wider = {
        "no end": grants.split(real.caveats)[0],
        "no prefix": grants.split(real.caveats)[1],
        "a shorter prefix": struct.pack("<BH", 1, 2) + b"r/",
        "a later end": grants.split(real.caveats)[0] + struct.pack("<BHQ", 3, 8, 2**33),
        "unknown": real.caveats + struct.pack("<BH", 200, 0),
    }
    for name, caveats in wider.items():
        forged = Secret(grants.text_of(Credentials(real.key, caveats)))
        with UcxStore(server.address, secret=forged, local=local) as store:
            with pytest.raises(
                AuthenticationError, match="refused this client, which has a grant"
            ) as caught:
                read(store, "run-1/a")
            assert "is of another secret, or was changed" in str(caught.value), name
    sessions = server.sessions
    with (
        UcxStore(server.address, secret=real.key.hex(), local=local) as store,
        pytest.raises(AuthenticationError, match="the secret is wrong"),
    ):
        read(store, "run-1/a")
    assert server.sessions <= sessions


def test_stores_of_different_grants_share_no_connection(case: Case) -> None:
    with (
        case.store(SECRET.grant("run-1/")) as one,
        case.store(SECRET.grant("run-17/")) as two,
        case.store(SECRET) as whole,
    ):
        for _ in range(3):
            assert read(whole, "run-17/a") == read(two, "run-17/a") == THEIRS
            with pytest.raises(GrantError):
                read(one, "run-17/a")
            with pytest.raises(GrantError):
                read(two, "run-1/a")


def test_a_child_has_its_parents_grant(case: Case) -> None:
    with case.store(SECRET.grant("run-1/")) as store:
        assert read(store, "run-1/a") == OURS
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                assert read(store, "run-1/a") == OURS
                try:
                    read(store, "run-17/a")
                except GrantError:
                    status = 0
            finally:
                os._exit(status)
        assert os.waitpid(pid, 0)[1] == 0


def test_in_an_event_loop(case: Case) -> None:
    async def use(store: UcxStore) -> None:
        assert await store.get("run-1/a", PROTOTYPE) is not None
        with pytest.raises(GrantError):
            await store.get("run-17/a", PROTOTYPE)

    with case.store(SECRET.grant("run-1/")) as store:
        asyncio.run(use(store))
