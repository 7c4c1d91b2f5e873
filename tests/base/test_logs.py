"""Logging: silent by default, and each kind of event gets to whoever listens."""

import gc
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from obstore.store import MemoryStore
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync

from tests.conftest import address_of
from tests.eventually import eventually
from tests.server.slow_store import SlowStore
from tests.stopping import stop
from ucxstore import AuthenticationError, Secret, UcxStore
from ucxstore.base import logs
from ucxstore.base.address import Address
from ucxstore.base.errors import EvictedError, UcxStoreError
from ucxstore.client.connect import Greeting
from ucxstore.server import Server

type Heard = list[logging.LogRecord]

PROTOTYPE = default_buffer_prototype()


class Recorder(logging.Handler):
    """Keeps what is logged. It can be held up."""

    def __init__(self) -> None:
        super().__init__()
        self.records: Heard = []
        self.goes_on = threading.Event()
        self.goes_on.set()

    def emit(self, record: logging.LogRecord) -> None:
        self.goes_on.wait()
        self.records.append(record)

    def of(self, logger: str, event: str) -> Heard:
        return [
            one
            for one in self.records
            if one.name == f"ucxstore.{logger}" and getattr(one, "event", None) == event
        ]

    def hears(self, logger: str, event: str) -> logging.LogRecord:
        """Wait for the first event of a kind."""
        eventually(lambda: self.of(logger, event))
        return self.of(logger, event)[0]


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    recorder = Recorder()
    logs.root.addHandler(recorder)
    logs.root.setLevel(logging.DEBUG)
    logs.refresh()
    yield recorder
    recorder.goes_on.set()
    logs.root.removeHandler(recorder)
    logs.root.setLevel(logging.NOTSET)
    logs.refresh()


def put(store: UcxStore, key: str, value: bytes = b"value") -> None:
    sync(store.set(key, PROTOTYPE.buffer.from_bytes(value)))


def get(store: UcxStore, key: str) -> bytes | None:
    value = sync(store.get(key, PROTOTYPE))
    return None if value is None else value.to_bytes()


def test_who_comes_and_goes(recorder: Recorder) -> None:
    with Server("memory://") as server:
        store = UcxStore(server.address)
        put(store, "a")
        there = recorder.hears("client", "connected")
        assert there.levelno == logging.INFO
        place = server.address.removeprefix("ucx://")
        assert there.peer == place  # type: ignore[attr-defined]
        assert there.getMessage().startswith(f"connected to {place} by ")
        assert recorder.hears("server", "connected").peer.startswith(  # type: ignore[attr-defined]
            "127.0.0.1:"
        )
        store.close()
        del store
        gc.collect()
        recorder.hears("client", "closed")
        recorder.hears("server", "closed")


def test_a_server_that_is_killed(recorder: Recorder) -> None:
    with Server.spawn("memory://") as server:
        store = UcxStore(server.address)
        put(store, "a")
        os.kill(server.pid, signal.SIGKILL)
        lost = recorder.hears("client", "lost")
        assert lost.levelno == logging.WARNING
        assert "the server is gone" in lost.getMessage()
        assert lost.peer in server.address  # type: ignore[attr-defined]


def test_failover(recorder: Recorder, tmp_path: Any) -> None:
    with Server.spawn(tmp_path, shared=True) as one, Server.spawn(tmp_path, shared=True) as other:
        store = UcxStore(address_of([one, other]))
        keys = [f"c/{i}" for i in range(16)]
        for key in keys:
            put(store, key)
        place = one.address.removeprefix("ucx://")

        def requests() -> int:
            return store.stats()["servers"][place]["requests"]

        asked = requests()
        stop(one.pid)
        with ThreadPoolExecutor(len(keys)) as threads:
            found = [threads.submit(get, store, key) for key in keys]
            eventually(lambda: requests() > asked)
            os.kill(one.pid, signal.SIGKILL)
            assert all(future.result() == b"value" for future in found)
        recorder.hears("client", "lost")
        failover = recorder.hears("cluster", "failover")
        assert failover.levelno == logging.WARNING
        assert failover.peer == place  # type: ignore[attr-defined]


def test_evictions(recorder: Recorder) -> None:
    source = MemoryStore()
    keys = [f"c/{i}" for i in range(8)]
    for key in keys:
        source.put(key, bytes(300_000))
    with Server(source, cache=1 << 20) as server:
        store = UcxStore(server.address)
        for key in keys:
            get(store, key)
        evicted = recorder.hears("server", "evicted")
        assert evicted.getMessage().startswith("the cache has evicted ")
        assert evicted.bytes >= 300_000  # type: ignore[attr-defined]
    assert len(recorder.of("server", "evicted")) < 8  # many are one event


def test_slow_requests(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UCXSTORE_SLOW_REQUEST", "1e-9")
    with Server(MemoryStore()) as server:
        store = UcxStore(server.address)
        put(store, "a", bytes(1000))
        slow = recorder.hears("client", "slow_request")
        assert slow.levelno == logging.WARNING
        assert slow.seconds > 0  # type: ignore[attr-defined]
        eventually(
            lambda: any(
                getattr(one, "key", "") == "a" for one in recorder.of("client", "slow_request")
            )
        )
        eventually(
            lambda: any(
                getattr(one, "key", "") == "a" for one in recorder.of("server", "slow_request")
            )
        )


def test_requests_are_not_slow_by_default(recorder: Recorder) -> None:
    with Server("memory://") as server:
        store = UcxStore(server.address)
        put(store, "a")
        recorder.hears("client", "connected")
    assert not recorder.of("client", "slow_request")


@pytest.mark.parametrize("text", ["-1", "soon", "nan", "inf"])
def test_a_threshold_that_is_none(
    text: str, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UCXSTORE_SLOW_REQUEST", text)
    assert logs.slow_request() == 5.0
    assert repr(text) in recorder.records[-1].getMessage()


def test_a_refused_handshake(recorder: Recorder) -> None:
    with Server("memory://", secret="one") as server:
        with pytest.raises(AuthenticationError):
            put(UcxStore(server.address, secret="other"), "a")
        refused = recorder.hears("server", "handshake_refused")
        assert refused.levelno == logging.WARNING
        assert refused.peer.startswith("127.0.0.1:")  # type: ignore[attr-defined]


def test_what_is_dropped_is_counted(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UCXSTORE_SLOW_REQUEST", "1e-9")
    logs.root.setLevel(logging.INFO)  # without a line for each request
    asked = 1500  # more than are kept
    with Server("memory://") as server:
        store = UcxStore(server.address)
        put(store, "a")
        recorder.hears("client", "slow_request")
        recorder.goes_on.clear()
        for _ in range(asked):
            assert get(store, "a") == b"value"
        recorder.goes_on.set()
        dropped = "dropped"
        eventually(lambda: any(getattr(one, "event", "") == dropped for one in recorder.records))
    (record,) = (one for one in recorder.records if getattr(one, "event", "") == dropped)
    assert record.name == "ucxstore"
    assert record.getMessage() == f"{record.count} events dropped"  # type: ignore[attr-defined]
    logged = len(recorder.of("client", "slow_request"))
    assert asked <= logged + record.count <= asked + 10  # type: ignore[attr-defined]


def test_no_thread_where_nobody_listens() -> None:
    assert _run(
        """
        import threading
        from ucxstore.server import Server
        with Server("memory://") as server:
            use(server.address)
            names = [thread.name for thread in threading.enumerate()]
            assert "ucxstore-log" not in names, names
        """
    ) == ("", "")


def test_silent_by_default() -> None:
    assert _run(
        """
        from ucxstore import AuthenticationError
        from ucxstore.server import Server
        with Server("memory://", secret="s") as server:
            try:
                use(server.address)
            except AuthenticationError:
                pass
        with Server.spawn("memory://") as server:
            store = use(server.address)
            os.kill(server.pid, 9)
            time.sleep(0.5)
        """
    ) == ("", "")


def test_exit_with_events_in_the_queue() -> None:
    out, errors = _run(
        """
        import logging
        logging.basicConfig(level=logging.INFO, format="%(name)s %(message)s")
        from ucxstore.server import Server
        server = Server("memory://")
        store = use(server.address)
        """
    )
    assert out == ""
    lines = errors.splitlines()
    assert any(line.startswith("ucxstore.client connected to ") for line in lines)
    # Which end goes first is chance.
    assert any(
        line.startswith(("ucxstore.client closed", "ucxstore.client lost")) for line in lines
    )


def test_a_forked_child_has_a_queue_of_its_own() -> None:
    out, errors = _run(
        """
        import logging, warnings
        warnings.simplefilter("ignore", DeprecationWarning)  # of fork beside threads
        logging.basicConfig(level=logging.INFO, format=f"%(process)d %(name)s %(message)s")
        from ucxstore.server import Server
        with Server.spawn("memory://") as server:
            store = use(server.address)
            child = os.fork()
            if child == 0:
                mine = use(server.address)
                del store, mine
                sys.exit(0)
            _, status = os.waitpid(child, 0)
            assert status == 0, status
            use(server.address)
        print(os.getpid(), child)
        """
    )
    parent, child = out.split()
    connected = [line.split()[0] for line in errors.splitlines() if " connected to " in line]
    assert sorted(connected) == sorted([parent, child])


def test_a_spawned_server_logs_as_its_parent_does(recorder: Recorder) -> None:
    with Server.spawn("memory://") as server:
        put(UcxStore(server.address), "a")
        eventually(lambda: "ucxstore.server: 127.0.0.1:" in server.output)


def test_json_lines(tmp_path: Any) -> None:
    serve = [sys.executable, "-m", "ucxstore", "serve", "memory://", "-v", "--log-format", "json"]
    process = subprocess.Popen(serve, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    address = process.stdout.readline().split()[-1]
    put(UcxStore(address), "a")
    gc.collect()
    process.terminate()
    _, errors = process.communicate(timeout=240)
    assert process.returncode == 0
    lines = [json.loads(line) for line in errors.splitlines()]
    (connected,) = (line for line in lines if line.get("event") == "connected")
    assert connected["logger"] == "ucxstore.server"
    assert connected["level"] == "INFO"
    assert connected["peer"].startswith("127.0.0.1:")
    assert connected["time"].endswith("Z")
    assert connected["message"].startswith(connected["peer"])


def test_json_of_an_exception() -> None:
    try:
        raise ValueError("why")
    except ValueError:
        record = logging.LogRecord("ucxstore", 30, "", 0, "a %s", ("b",), sys.exc_info())
    line = json.loads(logs.JsonFormatter().format(record))
    assert line["message"] == "a b"
    assert line["exception"].endswith("ValueError: why")


@pytest.mark.parametrize(
    ("set_up", "level"),
    [
        (lambda logger, handler: None, 1_000_000),
        (lambda logger, handler: logger.addHandler(logging.NullHandler()), 1_000_000),
        (lambda logger, handler: logger.addHandler(handler), logging.WARNING),
        (lambda logger, handler: (logger.addHandler(handler), logger.setLevel(10)), logging.INFO),
        (lambda logger, handler: (logger.addHandler(handler), logger.setLevel(40)), logging.ERROR),
    ],
)
def test_the_level_at_which_somebody_listens(set_up: Callable[..., Any], level: int) -> None:
    logger = logging.Logger("alone")
    logger.setLevel(logging.WARNING)
    handler = logging.StreamHandler()
    handler.setLevel(logging.INFO)
    set_up(logger, handler)
    assert logs.level_of(logger) == level


def _run(script: str) -> tuple[str, str]:
    """Run a program that uses a store; return what it printed."""
    lines = script.splitlines()
    indent = len(lines[1]) - len(lines[1].lstrip())
    prelude = """
import os, sys, time
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync
from ucxstore import UcxStore

def use(address):
    store = UcxStore(address)
    value = default_buffer_prototype().buffer.from_bytes(b"value")
    sync(store.set("a", value))
    return store

"""
    program = prelude + "\n".join(line[indent:] for line in lines)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


# ---- what peers can cause without end ----


class Clock:
    """A clock that tests set."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_many_refusals_are_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    refusals = logs.Refusals(burst=10, of_origin=3, seconds=60.0, clock=clock)
    with caplog.at_level(logging.INFO, "ucxstore"):
        for number in range(13_000):
            refusals.log(logging.WARNING, "handshakes", f"10.0.0.{number % 3}", "no %d", number)
        assert lines(caplog) == [f"no {number}" for number in range(9)]
        clock.now = 61.0
        refusals.tell()
    assert lines(caplog)[9:] == ["handshakes: and 12991 more in the last 61 s, from 3 addresses"]
    assert caplog.records[-1].count == 12_991  # type: ignore[attr-defined]
    clock.now = 122.0
    refusals.tell()
    assert len(lines(caplog)) == 10, "nothing is held back any more"


def test_one_origin_does_not_hide_others(caplog: pytest.LogCaptureFixture) -> None:
    refusals = logs.Refusals()
    with caplog.at_level(logging.INFO, "ucxstore"):
        for _ in range(1000):
            refusals.log(logging.WARNING, "handshakes", "greedy", "no")
        refusals.log(logging.WARNING, "handshakes", "other", "not this one")
        refusals.log(logging.WARNING, "sessions", "greedy", "of another kind")
        refusals.log(logging.DEBUG, "probes", "greedy", "of a level that is off")
        refusals.tell(at_once=True)
    assert lines(caplog)[3:5] == ["not this one", "of another kind"]
    assert "and 997 more in the last 0 s, from 1 address" in lines(caplog)[5]
    assert len(lines(caplog)) == 6


def test_refused_handshakes_are_counted_and_few_are_logged(recorder: Recorder) -> None:
    with Server("memory://", secret="a secret of the server") as server:
        [place] = Address.parse(server.address).servers
        for _ in range(200):
            with pytest.raises(UcxStoreError), Greeting(place, Secret("another secret"), 20.0):
                pass
        eventually(lambda: server.stats()["turned_away"] == 200)
        logs.refusals.tell(at_once=True)
    refused = recorder.of("server", "handshake_refused")
    assert 1 <= len(refused) <= 10
    held_back = [one.__dict__["count"] for one in recorder.of("server", "held_back")]
    assert sum(held_back) == 200 - len(refused)


def test_probes_of_the_port_are_no_refusals(recorder: Recorder) -> None:
    with Server("memory://", secret="a secret of the server") as server:
        [place] = Address.parse(server.address).servers
        for _ in range(50):
            socket.create_connection((place.host, place.port), 20.0).close()
        eventually(lambda: server.stats()["probes"] == 50)
        assert server.stats()["turned_away"] == 0
    assert not recorder.of("server", "handshake_refused")
    assert all(one.levelno == logging.DEBUG for one in recorder.of("server", "probed"))
    assert len(recorder.of("server", "probed")) <= 10


# ---- the log of requests ----


def lines_of(recorder: Recorder, key: str) -> Heard:
    return [one for one in recorder.of("server", "request") if getattr(one, "key", "") == key]


@pytest.mark.parametrize("local", ["ucx", "auto"])
def test_each_request_has_a_line(recorder: Recorder, local: Any) -> None:
    with (
        Server("memory://", local=True, network="ucx") as server,
        UcxStore(server.address, local=local) as store,
    ):
        put(store, "a", bytes(1000))
        put(store, "large", bytes(40_000_000))  # of several messages
        assert get(store, "a") is not None
        assert get(store, "none") is None
        assert get(store, "large") is not None
        sync(store.getsizes(["a", "b", "c"]))
        sync(store.delete_dir("p"))
        sync(store.delete("a"))
        [peer] = [one["peer"] for one in sync(store.server_stats())["clients"]]
        eventually(lambda: any(one.detail == "remove ok" for one in lines_of(recorder, "a")))  # type: ignore[attr-defined]

    def told(key: str) -> list[tuple[object, ...]]:
        return [
            (one.detail, getattr(one, "count", 0), getattr(one, "bytes", 0))  # type: ignore[attr-defined]
            for one in lines_of(recorder, key)
        ]

    assert ("set ok", 1, 1000) in told("a")
    assert ("set ok", 1, 40_000_000) in told("large")
    assert told("none") == [("get missing", 1, 0)]
    assert ("remove ok", 1, 0) in told("a")
    assert ("stat ok", 3, 24) in told("a")
    assert any(detail == "remove ok" for detail, *_ in told("p/"))
    # A client of this host reads what it can see itself, once it was shown where.
    ways = {"get ok", "get shown"} if local == "auto" else {"get ok"}
    gets = [one for one in (*told("a"), *told("large")) if str(one[0]).startswith("get")]
    assert {one[0] for one in gets} <= ways
    assert {one[2] for one in gets} <= {1000, 40_000_000}
    assert gets or local == "auto"
    for one in recorder.of("server", "request"):
        assert one.levelno == logging.DEBUG
        assert one.peer == peer  # type: ignore[attr-defined]
        assert 0 <= getattr(one, "seconds", 0) < 240
        assert one.getMessage().startswith(f"{peer}: ")


@pytest.mark.parametrize("local", ["ucx", "auto"])
def test_refused_requests_have_lines_too(recorder: Recorder, local: Any) -> None:
    secret = Secret("a secret that is long enough")
    with (
        Server("memory://", secret=secret, local=True, network="ucx") as server,
        UcxStore(server.address, secret=secret.grant("p/", read_only=True), local=local) as store,
    ):
        for use in (lambda: get(store, "q"), lambda: put(store, "p/a"), lambda: remove(store)):
            with pytest.raises(UcxStoreError):
                use()
        eventually(lambda: lines_of(recorder, "p/gone"))
    assert [one.detail for one in lines_of(recorder, "q")] == ["get denied"]  # type: ignore[attr-defined]
    assert [one.detail for one in lines_of(recorder, "p/a")] == ["set denied"]  # type: ignore[attr-defined]
    assert [one.detail for one in lines_of(recorder, "p/gone")] == ["remove denied"]  # type: ignore[attr-defined]


def remove(store: UcxStore) -> None:
    sync(store.delete("p/gone"))


def test_a_lost_value_has_a_line(recorder: Recorder) -> None:
    with (
        Server("memory://", memory="16MiB", when_full="evict") as server,
        UcxStore(server.address) as store,
    ):
        for number in range(40):
            put(store, f"k/{number}", bytes(1_000_000))
        lost = 0
        for number in range(40):
            try:
                get(store, f"k/{number}")
            except EvictedError:
                lost += 1
                eventually(
                    lambda key=f"k/{number}": any(
                        one.detail == "get evicted"  # type: ignore[attr-defined]
                        for one in lines_of(recorder, key)
                    ),
                    20,
                )
        assert lost > 0


def test_keys_in_messages_print_and_do_not_open_spaces(recorder: Recorder) -> None:
    key = "evil\n\x1b[31mred\u202e/c"
    with Server("memory://") as server, UcxStore(server.address) as store:
        put(store, key)
        with store.scratch_sync("1MB") as scratch:
            put(scratch.store(), "inside")
            eventually(lambda: any("inside" in one.getMessage() for one in recorder.records))
            assert not any(scratch.name in one.getMessage() for one in recorder.records)
            assert not any(scratch.name in str(vars(one)) for one in recorder.records)
        [line] = lines_of(recorder, key)
    assert "'evil\\n\\x1b[31mred\\u202e/c'" in line.getMessage()
    assert line.getMessage().isprintable()


def test_requests_are_not_logged_below_their_level(recorder: Recorder) -> None:
    logs.root.setLevel(logging.INFO)
    logs.refresh()
    with Server("memory://") as server, UcxStore(server.address) as store:
        for _ in range(20):
            put(store, "a")
        recorder.hears("server", "connected")
    recorder.hears("server", "closed")
    assert not recorder.of("server", "request")


def test_requests_leave_room_for_other_events(recorder: Recorder) -> None:
    """Their lines are dropped, and counted, while nobody logs them; a warning is not."""
    with Server("memory://") as server, UcxStore(server.address) as store:
        put(store, "a")
        recorder.hears("server", "request")
        recorder.goes_on.clear()
        for number in range(3000):
            get(store, f"{number}")
        other = UcxStore(server.address, integrity=True)
        put(other, "b")
        recorder.goes_on.set()
        eventually(lambda: len(recorder.of("server", "connected")) == 2)
        eventually(lambda: any(getattr(one, "event", "") == "dropped" for one in recorder.records))
        other.close()
        dropped = sum(
            one.count  # type: ignore[attr-defined]
            for one in recorder.records
            if getattr(one, "event", "") == "dropped"
        )
        gets = [one for one in recorder.of("server", "request") if one.detail == "get missing"]  # type: ignore[attr-defined]
        assert 0 < dropped < 3000
        assert len(gets) + dropped >= 3000


def test_a_request_that_is_given_up_has_a_line(recorder: Recorder) -> None:
    source = SlowStore()
    with Server(source) as server, UcxStore(server.address, timeout=0.5) as store:
        store.ping_sync()
        source.goes_on.clear()
        try:
            with pytest.raises(UcxStoreError):
                get(store, "a")
        finally:
            source.goes_on.set()
        eventually(lambda: lines_of(recorder, "a"))
        assert lines_of(recorder, "a")[0].detail == "get abandoned"  # type: ignore[attr-defined]
