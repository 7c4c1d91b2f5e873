"""What operators ask of a server that serves, over UCX and over the local plane."""

import gc
import json
import logging
import os
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from obstore.store import MemoryStore
from zarr.abc.store import RangeByteRequest
from zarr.core.buffer import cpu
from zarr.core.sync import sync

from tests.adversity.scripts import Script
from tests.backdoor import threads_of
from tests.eventually import eventually
from tests.hosts.intruder import NOBODY
from tests.server.slow_store import SlowStore
from tests.values import read, write
from ucxstore import (
    AuthenticationError,
    GrantError,
    InvalidKeyError,
    NotMappedError,
    Secret,
    ServerLostError,
    UcxStore,
    UnknownOutcomeError,
)
from ucxstore.base import grants, logs
from ucxstore.base.grants import Credentials
from ucxstore.client import requests
from ucxstore.pipeline.access import access_to
from ucxstore.server import Server
from ucxstore.server.operating import Operating

SECRET = Secret("correct horse battery staple")
LARGE = 3_000_000

REQUESTS: list[dict[str, Any]] = [
    {"do": "sessions", "after": 0},
    {"do": "kick", "session": 2**40},
    {"do": "kick", "origin": "nobody's"},
    {"do": "flush", "name": ""},
    {"do": "log-level"},
]


def ask(store: UcxStore, **what: object) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(ask_text(store, json.dumps(what)))
    return answer


def ask_text(store: UcxStore, text: str) -> bytes:
    answer: bytes = access_to(store).channel.ask_sync(requests.operate(text))
    return answer


def sessions(store: UcxStore) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = ask(store, do="sessions", after=0)["sessions"]
    return listed


def got_again(store: UcxStore, key: str) -> bytes | None:
    """Read as a client does that has been kicked, and may not have noticed."""
    try:
        return read(store, key)
    except ServerLostError:
        return None


# ---- who may ----


@pytest.fixture
def secured() -> Iterator[Server]:
    with Server("memory://", secret=SECRET, local=True) as server:
        yield server


@pytest.mark.parametrize("what", REQUESTS, ids=json.dumps)
def test_the_secret_and_an_operators_grant_may(
    secured: Server, plane: Any, what: dict[str, Any]
) -> None:
    for secret in (
        SECRET,
        SECRET.grant(None, operator=True),
        SECRET.grant(None, operator=True, expires="1h"),
        SECRET.grant(None, operator=True).grant(None, expires="1h"),
    ):
        with UcxStore(secured.address, secret=secret, local=plane) as store:
            answer = ask(store, **what)
            if what["do"] == "flush":
                assert "no cache" in answer["refused"]
            else:
                assert "refused" not in answer


@pytest.mark.parametrize("what", REQUESTS, ids=json.dumps)
def test_no_other_grant_may(secured: Server, plane: Any, what: dict[str, Any]) -> None:
    for granted in (
        SECRET.grant("run-1/"),
        SECRET.grant(None, read_only=True),
        SECRET.grant(None, expires="1h"),
    ):
        with UcxStore(secured.address, secret=granted, local=plane) as store:
            with pytest.raises(GrantError, match="is for operators alone, and the grant opens"):
                ask(store, **what)
            with pytest.raises(GrantError, match="operators"):
                ask_text(store, "nonsense")  # nobody looks at it
            store.ping_sync()


def test_an_operators_grant_ends(secured: Server, plane: Any) -> None:
    granted = SECRET.grant(None, operator=True, expires=1.0)
    with UcxStore(secured.address, secret=granted, local=plane) as store:
        assert len(sessions(store)) == 1

        def has_ended() -> bool:
            try:
                sessions(store)
            except GrantError as error:
                return "has expired, it opened requests of operators, until" in str(error)
            return False

        eventually(has_ended)


def test_an_operators_grant_opens_no_values(secured: Server, plane: Any) -> None:
    with UcxStore(secured.address, secret=SECRET, local=plane) as store:
        write(store, "a", bytes(LARGE))
    granted = SECRET.grant(None, operator=True)
    with UcxStore(secured.address, secret=granted, local=plane) as store:
        for use in (
            lambda: read(store, "a"),
            lambda: write(store, "b"),
            lambda: store.delete_sync("a"),
            lambda: sync(store.exists("a")),
            lambda: sync(store.measure("")),
            lambda: sync(store.clear()),
        ):
            with pytest.raises(GrantError, match="which opens requests of operators"):
                use()
        with pytest.raises(GrantError, match="a scratch space"):
            store.scratch_sync("1MB")
        with pytest.raises((GrantError, NotMappedError)):
            store.view_sync("a", map=True)
        assert sync(store.server_stats())["value_count"] == 1


def test_nobody_makes_it_of_another_grant(secured: Server, plane: Any) -> None:
    for granted in (
        SECRET.grant("run-1/"),
        SECRET.grant(None, read_only=True),
        SECRET.grant(None, expires="1h"),
    ):
        with pytest.raises(ValueError, match="only the secret itself"):
            granted.grant(None, operator=True)
        # As somebody would who has written a program for it.
        caveats = grants.credentials_of(granted.reveal()).caveats
        caveats += grants.caveats_of(None, operator=True)
        key = grants.key_of(SECRET.reveal(), caveats)  # found from the other grant's, too
        forged = Secret("x" * 32)
        forged._text = grants.text_of(Credentials(key, caveats))
        with (
            UcxStore(secured.address, secret=forged, local=plane) as store,
            pytest.raises(AuthenticationError, match="only the secret itself"),
        ):
            sessions(store)


@pytest.mark.parametrize("more", [{"prefix": "a/"}, {"prefix": None, "read_only": True}])
def test_it_is_not_narrowed_to_values(more: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="opens no values to be narrowed"):
        SECRET.grant(**{"operator": True, **more})
    with pytest.raises(ValueError, match="opens no values to be narrowed"):
        SECRET.grant(None, operator=True).grant(**more)


OTHER = """
store = UcxStore({address!r}, connect_timeout=20, local={local!r})
from ucxstore.client import requests
from ucxstore import GrantError
from ucxstore.pipeline.access import access_to
store.set_sync("key", __import__("zarr").core.buffer.cpu.Buffer.from_bytes(b"value"))
try:
    print(access_to(store).channel.ask_sync(requests.operate('{{"do": "sessions", "after": 0}}')))
except GrantError as error:
    print(error)
"""
BECOME = "import encodings.idna, zarr.core.sync\nfrom tests.hosts import intruder\n"
BECOME += "intruder.become_nobody()\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_another_user_does_not_operate_an_open_server(plane: Any) -> None:
    with Server("memory://", insecure=True, local=True) as server:
        code = OTHER.format(address=server.address, local=plane)
        with Script(server.address, {}, BECOME + code) as script:
            said = script.end()
        assert "is for operators alone, and this client has no secret" in said
        with UcxStore(server.address, local=plane) as store:
            assert read(store, "key") == b"value"  # it was let in
            assert len(sessions(store)) >= 1
        assert str(NOBODY) not in said


def test_the_own_user_operates_a_server_without_a_secret(plane: Any) -> None:
    with Server("memory://", local=True) as server, UcxStore(server.address, local=plane) as store:
        assert len(sessions(store)) == 1


# ---- what is asked ----


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not a request of an operator"),
        ("nonsense", "not a request of an operator"),
        ("[]", "is not an object"),
        ("{}", "no 'do'"),
        ('{"do": 1}', "'do' is 1"),
        ('{"do": "dance"}', "there is no 'dance': sessions, kick, flush, log-level"),
        ('{"do": "sessions"}', "no 'after'"),
        ('{"do": "sessions", "after": -1}', "'after' is -1"),
        ('{"do": "sessions", "after": true}', "'after' is True"),
        ('{"do": "sessions", "after": 1e999}', "not a finite number"),
        ('{"do": "sessions", "after": 18446744073709551616}', "more than 64 bits"),
        ('{"do": "sessions", "after": 0, "before": 1}', "unknown fields: 'before'"),
        ('{"do": "kick"}', "no 'session'"),
        ('{"do": "kick", "session": "1"}', "'session' is '1'"),
        ('{"do": "kick", "session": 1.5}', "'session' is 1.5"),
        ('{"do": "kick", "session": 1, "origin": "x"}', "unknown fields: 'session'"),
        ('{"do": "kick", "origin": ["x"]}', "'origin' is ['x']"),
        ('{"do": "kick", "origin": "\\ud800"}', "'origin' is"),
        ('{"do": "flush"}', "no 'name'"),
        ('{"do": "flush", "name": null}', "'name' is None"),
        ('{"do": "log-level", "level": "loud"}', "there is no level 'loud': debug, info"),
        ('{"do": "log-level", "levels": "info"}', "unknown fields: 'levels'"),
        ('{"do": ' + "[" * 2000, "not a request of an operator"),
        ('{"do": "x\\n\\u001b[31m"}', "there is no"),
    ],
)
def test_a_malformed_request_is_refused(plane: Any, text: str, why: str) -> None:
    with Server("memory://", local=True) as server, UcxStore(server.address, local=plane) as store:
        assert why in json.loads(ask_text(store, text))["refused"]
        assert len(sessions(store)) == 1  # the same session goes on
        assert server.stats()["messages_refused"] == 0


@pytest.mark.parametrize("name", ["/", "a/", "../a", "a//b", "a\0b", "x" * 2000])
def test_a_name_that_no_key_has_is_not_flushed(name: str) -> None:
    with Server(MemoryStore()) as server, UcxStore(server.address) as store:
        assert "it" in ask(store, do="flush", name=name)["refused"]


def test_a_request_that_is_too_long(plane: Any) -> None:
    with Server("memory://", local=True) as server, UcxStore(server.address, local=plane) as store:
        with pytest.raises(InvalidKeyError, match="longer than 4096 bytes"):
            ask_text(store, " " * 5000)
        assert len(sessions(store)) == 1


def test_bytes_that_are_no_text() -> None:
    operating: Any = Operating(None, None)
    for request in (b"\xff", b'{"do": "\xff"}', b"\0", b"{" * 5000):
        assert "not a request" in json.loads(operating(request, 1, "peer"))["refused"]


def test_what_fails_in_the_server_is_told(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def sessions_json(self, after: int) -> bytes:
            raise MemoryError("no memory")

        kick: Any = None

    answer = json.loads(Operating(Broken(), None)(b'{"do": "sessions", "after": 0}', 1, "peer"))
    assert answer == {"refused": "the server has failed: no memory"}
    assert "a request of an operator has failed" in caplog.text


# ---- sessions ----


def test_the_sessions(plane: Any) -> None:
    with (
        Server("memory://", local=True) as server,
        UcxStore(server.address, local=plane) as one,
        UcxStore(server.address, integrity=True, local="off") as other,
    ):
        write(one, "a", bytes(1000))
        assert read(other, "a") == bytes(1000)
        first, second = sessions(one)
        assert first["id"] < second["id"]
        assert (first["sets"], first["bytes_received"]) == (1, 1000)
        assert (second["gets"], second["bytes_sent"], second["sets"]) == (1, 1000, 0)
        assert first["lanes"] == one.stats()["lanes"]
        assert second["lanes"] == other.stats()["lanes"]
        assert not first["encrypted"]
        assert first["origin"] == f"user {os.geteuid()}"
        assert 0 <= first["silent_s"] <= first["age_s"] < 240
        assert second["age_s"] <= first["age_s"]
        assert first["held"]["calls"] == 1  # the request itself
        assert ask(one, do="sessions", after=first["id"])["sessions"][0]["id"] == second["id"]
        assert ask(one, do="sessions", after=second["id"]) == {"sessions": [], "more": False}


def test_whether_a_session_is_encrypted() -> None:
    with (
        Server("memory://", secret=SECRET, encrypt=True) as server,
        UcxStore(server.address, secret=SECRET, local="off") as store,
    ):
        assert store.stats()["encrypted"] is False  # not connected yet
        assert [one["encrypted"] for one in sessions(store)] == [True]


def test_values_that_are_read_where_they_lie_are_told() -> None:
    with Server("memory://", local=True) as server, UcxStore(server.address, local="auto") as store:
        write(store, "a", bytes(1000))
        for _ in range(20):
            assert read(store, "a") == bytes(1000)
        [own] = sessions(store)
        assert own["gets"] + own["gets_seen"] >= 20
        assert own["gets_seen"] >= 18


# ---- kick ----


def test_an_idle_session_ends_and_its_client_comes_back(plane: Any) -> None:
    with (
        Server("memory://", local=True) as server,
        UcxStore(server.address, local=plane) as store,
        UcxStore(server.address, integrity=True, local="off") as other,
    ):
        write(other, "a")
        assert read(store, "a") == b"value"
        theirs = next(one for one in sessions(store) if one["sets"] == 1)
        assert ask(store, do="kick", session=theirs["id"]) == {"ended": 1}
        eventually(lambda: theirs["id"] not in [one["id"] for one in sessions(store)])
        assert server.stats()["sessions_ended"] == 1
        assert server.stats()["sessions_lost"] == 0
        eventually(lambda: got_again(other, "a") == b"value")
        assert ask(store, do="kick", session=theirs["id"]) == {"ended": 0}


def test_a_busy_session_ends(plane: Any) -> None:
    source = SlowStore()
    with (
        Server(source, local=True) as server,
        UcxStore(server.address, local=plane) as busy,
        UcxStore(server.address, integrity=True, local="off") as store,
        ThreadPoolExecutor(2) as threads,
    ):
        write(busy, "a", bytes(1000))
        own = {one["id"] for one in sessions(store)} - {sessions(busy)[0]["id"]}
        assert len(own) == 1
        source.goes_on.clear()
        try:
            reading = threads.submit(read, busy, "missing")
            writing = threads.submit(write, busy, "b", bytes(1000))
            eventually(lambda: "b" in source.sets and "missing" in source.gets)
            [theirs] = [one for one in sessions(store) if one["id"] not in own]
            assert theirs["held"]["fetches"] == 1
            assert ask(store, do="kick", session=theirs["id"]) == {"ended": 1}
            with pytest.raises(UnknownOutcomeError):
                writing.result(60)
            with pytest.raises(ServerLostError):
                reading.result(60)
        finally:
            source.goes_on.set()
        assert {one["id"] for one in sessions(store)} == own
        eventually(lambda: got_again(busy, "a") == bytes(1000))


def test_an_origin_ends_but_for_who_asks(plane: Any) -> None:
    with (
        Server("memory://", local=True) as server,
        UcxStore(server.address, local=plane) as store,
        UcxStore(server.address, integrity=True, local="off") as one,
        UcxStore(server.address, integrity=False, local="off") as two,
    ):
        write(one, "a")
        write(two, "b")
        [own] = [each["id"] for each in sessions(store) if not each["sets"]]
        origin = sessions(store)[0]["origin"]
        assert ask(store, do="kick", origin=f"{origin}0") == {"ended": 0}
        assert ask(store, do="kick", origin=origin) == {"ended": 2}
        eventually(lambda: [each["id"] for each in sessions(store)] == [own])


def test_a_session_does_not_end_itself(plane: Any) -> None:
    with Server("memory://", local=True) as server, UcxStore(server.address, local=plane) as store:
        [own] = sessions(store)
        refused = ask(store, do="kick", session=own["id"])["refused"]
        assert refused == f"session {own['id']} is the one that asks"
        assert [one["id"] for one in sessions(store)] == [own["id"]]


def test_what_a_kicked_client_has_mapped_stays() -> None:
    value = np.arange(LARGE, dtype="u1").tobytes()
    with (
        Server("memory://", local=True) as server,
        UcxStore(server.address, local="auto") as reader,
        UcxStore(server.address, local="off") as store,
    ):
        write(store, "a", value)
        view = reader.view_sync("a", map=True)
        assert view is not None
        assert view.mapped
        theirs = next(one for one in sessions(store) if one["lanes"] == ["local"])
        assert ask(store, do="kick", session=theirs["id"]) == {"ended": 1}
        eventually(lambda: len(sessions(store)) == 1)
        write(store, "a", bytes(LARGE))
        assert bytes(memoryview(view)) == value


# ---- flush ----


def test_a_flushed_value_is_asked_for_again(plane: Any) -> None:
    source = MemoryStore()
    for key in ("a/1", "a/2", "ab", "b"):
        source.put(key, b"old")
    with Server(source, local=True) as server, UcxStore(server.address, local=plane) as store:
        keys = ("a/1", "a/2", "ab", "b")
        assert [read(store, key) for key in keys] == [b"old"] * 4
        for key in keys:
            source.put(key, b"new")
        assert [read(store, key) for key in keys] == [b"old"] * 4  # believed, and cached
        answer = ask(store, do="flush", name="a")
        assert answer["freed"] > 0
        assert answer["disk_freed"] == 0
        assert [read(store, key) for key in keys] == [b"new", b"new", b"old", b"old"]
        assert ask(store, do="flush", name="b")["freed"] > 0  # a key itself
        assert [read(store, key) for key in keys] == [b"new", b"new", b"old", b"new"]
        ask(store, do="flush", name="")
        assert read(store, "ab") == b"new"


def test_blocks_of_large_values_are_flushed_too(plane: Any) -> None:
    source = MemoryStore()
    source.put("a/large", bytes(LARGE))
    with (
        Server(source, block_size=1 << 16, local=True) as server,
        UcxStore(server.address, local=plane) as store,
    ):
        out = np.zeros(10, "u1")

        def read() -> bytes:
            store.get_into_sync("a/large", out, RangeByteRequest(5, 15))
            return out.tobytes()

        assert read() == bytes(10)
        source.put("a/large", b"\1" * LARGE)
        assert read() == bytes(10)
        assert ask(store, do="flush", name="a")["freed"] >= 1 << 16
        assert read() == b"\1" * 10


def test_the_cache_directory_is_flushed(plane: Any, tmp_path: Path) -> None:
    source = MemoryStore()
    for key in ("a/1", "b"):
        source.put(key, bytes(100_000))
    with (
        Server(source, cache_dir=tmp_path, cache_dir_size=10 << 20, local=True) as server,
        UcxStore(server.address, local=plane) as store,
    ):
        assert read(store, "a/1") == read(store, "b") == bytes(100_000)
        eventually(lambda: len(list(tmp_path.glob("*-cached"))) == 2)
        for key in ("a/1", "b"):
            source.put(key, b"new")
        answer = ask(store, do="flush", name="a")
        assert answer["disk_freed"] >= 100_000
        eventually(lambda: len(list(tmp_path.glob("*-cached"))) == 1)
        assert read(store, "a/1") == b"new"
        assert ask(store, do="flush", name="")["disk_freed"] >= 100_000
        assert read(store, "b") == b"new"


def test_what_clients_have_mapped_stays_and_is_free_later() -> None:
    source = MemoryStore()
    value = np.arange(LARGE, dtype="u1").tobytes()
    source.put("a", value)
    with (
        Server(source, local=True) as server,
        UcxStore(server.address, local="auto") as reader,
        UcxStore(server.address, local="off") as store,
    ):
        assert read(reader, "a") == value
        view = reader.view_sync("a", map=True)
        assert view is not None
        assert view.mapped
        source.put("a", b"new")
        assert ask(store, do="flush", name="")["read"] >= LARGE
        assert bytes(memoryview(view)) == value
        assert read(reader, "a") == read(store, "a") == b"new"
        assert bytes(memoryview(view)) == value
        del view
        eventually(lambda: ask(store, do="flush", name="")["read"] == 0)
        eventually(lambda: server.stats()["cached_bytes"] < LARGE)


def test_what_is_still_to_be_written_is_written(plane: Any) -> None:
    source = SlowStore()
    with (
        Server(source, local=True) as server,
        UcxStore(server.address, local=plane) as store,
        ThreadPoolExecutor(1) as threads,
    ):
        source.goes_on.clear()
        try:
            writing = threads.submit(write, store, "a", bytes(100_000))
            eventually(lambda: source.sets == ["a"])
            ask(store, do="flush", name="")
            assert not writing.done()
        finally:
            source.goes_on.set()
        writing.result(60)
        stored = sync(source.get("a", cpu.buffer_prototype))
        assert stored is not None
        assert stored.to_bytes() == bytes(100_000)
        assert read(store, "a") == bytes(100_000)


def test_what_is_on_its_way_is_not_kept(plane: Any) -> None:
    source = SlowStore()
    sync(source.set("a", cpu.Buffer.from_bytes(b"old")))
    with (
        Server(source, local=True) as server,
        UcxStore(server.address, local=plane) as store,
        ThreadPoolExecutor(1) as threads,
    ):
        source.goes_on.clear()
        try:
            reading = threads.submit(read, store, "a")
            eventually(lambda: source.gets.count("a") == 1)
            ask(store, do="flush", name="a")
        finally:
            source.goes_on.set()
        assert reading.result(60) == b"old"
        sync(source.set("a", cpu.Buffer.from_bytes(b"new")))
        assert read(store, "a") == b"new"


@pytest.mark.parametrize("storage", ["memory", "directory"])
def test_a_server_without_a_cache_says_so(plane: Any, storage: str, tmp_path: Path) -> None:
    served = "memory://" if storage == "memory" else tmp_path
    with Server(served, local=True) as server, UcxStore(server.address, local=plane) as store:
        write(store, "a")
        refused = ask(store, do="flush", name="")["refused"]
        assert refused == "the server has no cache: it serves memory, or a directory"
        assert read(store, "a") == b"value"


# ---- the log's level ----


def test_the_level_changes_while_it_serves(plane: Any) -> None:
    with (
        Server.spawn("memory://", local=True) as server,
        UcxStore(server.address, local=plane) as store,
    ):
        write(store, "quiet")
        assert ask(store, do="log-level")["level"] == "warning"
        assert ask(store, do="log-level", level="debug") == {"level": "debug", "before": "warning"}
        write(store, "loud")
        eventually(lambda: "set ok 'loud', keys: 1, bytes: 5, " in server.output)
        assert "quiet" not in server.output
        assert ask(store, do="log-level", level="warning")["before"] == "debug"
        write(store, "still")
        ask(store, do="log-level", level="debug")
        write(store, "last")
        eventually(lambda: "'last'" in server.output)
        assert "as an operator, asks for" in server.output
        assert "still" not in server.output


def test_a_process_that_logs_nothing_says_so() -> None:
    handlers = [one for one in logs.root.handlers if not isinstance(one, logging.NullHandler)]
    assert not handlers
    rooted, logging.root.handlers = logging.root.handlers, []
    try:
        with Server("memory://") as server, UcxStore(server.address) as store:
            refused = ask(store, do="log-level", level="debug")["refused"]
            assert refused == "nothing in the server's process takes what is logged at debug"
            assert logs.server.level == logging.NOTSET
    finally:
        logging.root.handlers = rooted
        logs.refresh()


# ---- its end ----


def test_a_server_closes_while_it_is_asked() -> None:
    """The source's thread is held up, so that the answer takes as long as it may."""
    source = SlowStore()
    server = Server(source, local=True, grace=0.5)
    with UcxStore(server.address, local="auto") as store, ThreadPoolExecutor(1) as threads:
        assert len(sessions(store)) == 1
        asking = threads.submit(ask, store, do="flush", name="")
        server.close(0.5)
        try:
            answer = asking.result(60)
            assert "freed" in answer or "refused" in answer
        except (ServerLostError, ConnectionError, OSError):
            pass  # it was gone before it could answer


def test_servers_go_with_their_operators() -> None:
    """The core holds what answers, and that holds the core: close() parts them."""
    server = Server(MemoryStore())
    native = weakref.ref(threads_of(server))
    server.close()
    del server
    gc.collect()
    assert native() is None
