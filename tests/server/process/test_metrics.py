"""Metrics and health over HTTP: what is told, and to whom."""

import json
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from obstore.store import MemoryStore
from prometheus_client.parser import text_string_to_metric_families
from zarr.core.buffer import cpu
from zarr.core.sync import sync
from zarr.storage import MemoryStore as ZarrMemoryStore

from tests.backdoor import acceptor_of, carrier_of, threads_of
from tests.cli.command import COMMAND, run
from tests.eventually import eventually, nothing_happens, nothing_happens_async
from ucxstore import GrantError, Secret, StorageError, UcxStore
from ucxstore.base.stats import figures
from ucxstore.server import Server
from ucxstore.server.process.foreground import Signals
from ucxstore.server.process.metrics import Metrics
from ucxstore.server.process.web import is_in, parse_networks

SECRET = "a secret that is long enough"

IPV6 = pytest.param(
    "[::]:0",
    marks=pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="there is no IPv6"),
)


@pytest.fixture
def server() -> Iterator[Server]:
    with Server("memory://", memory="64MiB", threads=2) as server:
        yield server


@pytest.fixture(params=["off", "auto"])
def store(
    request: pytest.FixtureRequest, server: Server, monkeypatch: pytest.MonkeyPatch
) -> Iterator[UcxStore]:
    with UcxStore(server.address, local=request.param) as store:
        yield store


def put(store: UcxStore, key: str, size: int = 1000) -> None:
    store.set_sync(key, cpu.Buffer.from_bytes(bytes(size)))


def fetch(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


type Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def scrape(metrics: Metrics) -> Samples:
    """Read all samples, as Prometheus does."""
    status, text = fetch(metrics.url)
    assert status == 200
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[f"ucxstore_{name}", tuple(sorted(labels.items()))]


def count(samples: Samples, kind: str) -> float:
    return value(samples, "request_duration_seconds_count", kind=kind)


# ---- what is told ----


def test_what_requests_took(server: Server, store: UcxStore) -> None:
    for number in range(4):
        put(store, f"a/{number}", 3_000_000)
        store.get_sync(f"a/{number}")
    store.get_sync("missing")
    sync(store.delete_dir("a"))
    sync(store.getsize_prefix("a"))
    local = store.stats()["lanes"] == ["local"]
    with Metrics(server, "127.0.0.1:0", anywhere=False) as metrics:
        eventually(lambda: count(scrape(metrics), "set") == 4)
        found = scrape(metrics)
    assert count(found, "remove") == 1
    assert count(found, "list") == 1
    # Clients of this host ask for what they were not shown yet, and read the rest themselves.
    assert 2 <= count(found, "get") <= 5 if local else count(found, "get") == 5
    bounds = [
        float(dict(labels)["le"])
        for name, labels in found
        if name == "ucxstore_request_duration_seconds_bucket" and ("kind", "set") in labels
    ]
    assert len(bounds) == 23
    assert (bounds[0], bounds[-1]) == (1e-5, float("inf"))
    assert bounds == sorted(bounds)
    assert 0 < value(found, "request_duration_seconds_sum", kind="set") < 240


def test_memory(server: Server, store: UcxStore) -> None:
    put(store, "a", 5_000_000)
    put(store, "b", 1_000_000)
    with Metrics(server, "127.0.0.1:0", anywhere=False) as metrics:
        found = scrape(metrics)
    assert (value(found, "values"), value(found, "value_bytes")) == (2, 6_000_000)
    assert 6e6 < value(found, "memory_used_bytes") < 7e6
    assert value(found, "memory_limit_bytes") == 64 << 20


def test_failures_by_reason() -> None:
    with (
        Server("memory://", memory="1MiB", secret=SECRET) as server,
        UcxStore(server.address, secret=SECRET) as store,
        Metrics(server, "127.0.0.1:0", anywhere=False) as metrics,
    ):
        put(store, "a")
        with pytest.raises(StorageError):
            put(store, "full", 2_000_000)
        grant = Secret(SECRET).grant("p/", read_only=True)
        with UcxStore(f"{server.address}/p", secret=grant) as other, pytest.raises(GrantError):
            put(other, "b")
        scratch = store.scratch_sync("1kB")
        handle = scratch.store()
        with pytest.raises(StorageError):
            put(handle, "more", 2000)
        found = scrape(metrics)
        assert value(found, "failures_total", reason="full") == 2
        assert value(found, "failures_total", reason="denied") == 1
        assert value(found, "failures_total", reason="storage") == 0
        assert value(found, "abandoned_total") == 0  # by no time-out, and by nobody's wish
        assert sync(store.server_stats())["failed"] == 3
        scratch.close()


def test_what_the_build_is(server: Server) -> None:
    with Metrics(server, "127.0.0.1:0", anywhere=False) as metrics:
        labels = next(dict(labels) for name, labels in scrape(metrics) if "build" in name)
    assert labels.keys() == {"version", "ucx", "python"}
    assert labels["python"] == ".".join(map(str, sys.version_info[:3]))
    assert re.fullmatch(r"\d+\.\d+.*", labels["version"])


def test_all_that_a_server_counts_is_told() -> None:
    with (
        Server("memory://") as memory,
        Server(MemoryStore()) as source,
        Metrics(memory, "127.0.0.1:0", anywhere=False) as one,
        Metrics(source, "127.0.0.1:0", anywhere=False) as other,
    ):
        told = {name for name, _ in {**scrape(one), **scrape(other)}}
    for each in figures():
        total = "_total" if each.kind == "counter" else ""
        assert f"ucxstore_{each.metric}{total}" in told or each.name == "failed"
    assert not {name for name in told if re.search(r"(?<!_)(_total_|[A-Z])", name)}


def test_the_disk_of_a_directory_and_of_a_cache(tmp_path: Path) -> None:
    cache = {"cache_dir": tmp_path / "cache", "cache_dir_size": 1 << 20}
    expected = shutil.disk_usage(tmp_path)
    for storage, options in ((tmp_path, {}), (MemoryStore(), cache)):
        with (
            Server(storage, **options) as server,
            Metrics(server, "127.0.0.1:0", anywhere=False) as metrics,
        ):
            found = scrape(metrics)
            assert value(found, "disk_size_bytes") == expected.total
            assert abs(value(found, "disk_free_bytes") - expected.free) < expected.total / 10
    with (
        Server("memory://") as server,
        Metrics(server, "127.0.0.1:0", anywhere=False) as metrics,
    ):
        assert ("ucxstore_disk_free_bytes", ()) not in scrape(metrics)


def test_hits_and_misses() -> None:
    objects = MemoryStore()
    objects.put("a", bytes(1000))
    with Server(objects) as server, UcxStore(server.address) as store:
        for _ in range(3):
            store.get_sync("a")
        with Metrics(server, "127.0.0.1:0", anywhere=False) as metrics:
            found = scrape(metrics)
        stats = sync(store.server_stats())
        printed = run("stats", server.address).stdout
    assert (value(found, "cache_hits_total"), value(found, "cache_misses_total")) == (2, 1)
    assert value(found, "cached_bytes") > 1000
    assert (stats["cache_hits"], stats["cache_misses"]) == (2, 1)
    assert "cache 2 hits (67%), 1 misses, " in printed


class FailingStore(ZarrMemoryStore):
    """A source whose reads fail once it is told so."""

    fails = False

    async def get(self, *arguments: Any, **keywords: Any) -> Any:
        if self.fails:
            raise ConnectionError("the wire is cut")
        return await super().get(*arguments, **keywords)

    async def getsize(self, key: str) -> int:
        if self.fails:
            raise ConnectionError("the wire is cut")
        return await super().getsize(key)


def test_failures_of_the_source(caplog: pytest.LogCaptureFixture) -> None:
    source = FailingStore()
    with Server(source) as server, UcxStore(server.address) as store:
        put(store, "a")
        source.fails = True
        with Metrics(server, "127.0.0.1:0", anywhere=False) as metrics:
            for number in range(40):
                with pytest.raises(StorageError, match="the wire is cut"):
                    store.get_sync(f"b/{number}")
            found = scrape(metrics)
        assert value(found, "source_failures_total") == 40
        assert value(found, "failures_total", reason="source") == 40
        assert value(found, "source_timeouts_total") == 0
    lines = [one for one in caplog.records if getattr(one, "event", "") == "source_failed"]
    assert 20 <= len(lines) <= 25  # the others are held back
    fields: dict[str, Any] = vars(lines[0])
    assert (fields["key"], fields["levelname"]) == ("b/0", "WARNING")
    assert fields["detail"].startswith("get: ")
    assert "the wire is cut" in fields["detail"]
    assert fields["seconds"] >= 0


# ---- health ----


def health(metrics: Metrics, path: str) -> tuple[int, str]:
    return fetch(metrics.url.replace("/metrics", path))


def test_a_server_that_is_well(server: Server, store: UcxStore) -> None:
    put(store, "a")
    with Metrics(server, "127.0.0.1:0", anywhere=False) as metrics:
        assert health(metrics, "/healthz") == (200, "ok\n")
        assert health(metrics, "/readyz") == (200, "ok\n")
        assert health(metrics, "/") == (404, "there are: /metrics, /healthz, /readyz\n")


def test_one_that_drains(server: Server, store: UcxStore) -> None:
    put(store, "a")
    with Metrics(server, "127.0.0.1:0", anywhere=False) as metrics:
        server.drain(0)
        assert health(metrics, "/readyz") == (503, "the server is draining\n")
        assert health(metrics, "/healthz") == (200, "ok\n")
        server.close()
        assert health(metrics, "/readyz") == (503, "the server is closed\n")
        assert health(metrics, "/healthz") == (503, "the server is closed\n")
        assert scrape(metrics)["ucxstore_sets_total", ()] == 1  # as it was at the end


def test_one_whose_source_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ucxstore.server.source_thread.carrier._KEPT_SECONDS", 0.0)
    source = FailingStore()
    with Server(source) as server, Metrics(server, "127.0.0.1:0", anywhere=False) as metrics:
        assert health(metrics, "/readyz") == (200, "ok\n")
        source.fails = True
        status, text = health(metrics, "/readyz")
        assert status == 503
        assert text.startswith("the source: ")
        assert "the wire is cut" in text
        assert health(metrics, "/healthz") == (200, "ok\n")
        source.fails = False
        assert health(metrics, "/readyz") == (200, "ok\n")


def test_the_source_is_asked_once_in_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ucxstore.server.source_thread.carrier._KEPT_SECONDS", 60.0)
    asked: list[str] = []

    class CountingStore(ZarrMemoryStore):
        async def getsize(self, key: str) -> int:
            asked.append(key)
            await nothing_happens_async(0.2)
            return await super().getsize(key)

    with Server(CountingStore()) as server, ThreadPoolExecutor(8) as threads:
        asked.clear()
        assert [*threads.map(lambda _: server.unready(), range(16))] == [""] * 16
        assert len(asked) == 1
        server.drain(0)
        assert server.unready() == "the server is draining"


def test_one_that_is_no_member_of_its_source() -> None:
    with Server(MemoryStore()) as server, Metrics(server, "127.0.0.1:0", anywhere=False) as metrics:
        assert health(metrics, "/readyz") == (200, "ok\n")
        members = carrier_of(server).members
        phase, members.machine.state.phase = members.machine.state.phase, "out"
        status, text = health(metrics, "/readyz")
        assert (status, text[:17]) == (503, "the other servers")
        members.machine.state.phase = phase


def test_a_thread_that_has_ended(server: Server) -> None:
    with Metrics(server, "127.0.0.1:0", anywhere=False) as metrics:
        acceptor_of(server).stop(60)
        assert health(metrics, "/healthz") == (
            503,
            "the thread that accepts clients does not answer\n",
        )


def test_all_threads_have_one_time_to_answer(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:

    class Mute:
        def answers(self, timeout: float) -> bool:
            nothing_happens(timeout)
            return False

    with monkeypatch.context() as patch:
        patch.setattr(threads_of(server), "native", Mute())
        acceptor_of(server)._loop.call_soon_threadsafe(nothing_happens, 1.5)
        begun = time.monotonic()
        assert server.dead(2.0) == "a thread has not answered for 2 s"
        assert time.monotonic() - begun < 3
    assert server.dead(60) == ""


def test_metrics_that_cannot_be_had_end_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    monkeypatch.setattr(Signals, "wait", lambda *_: pytest.fail("it serves"))
    done = run("serve", "memory://", "--metrics", "127.0.0.1:0")
    message = "metrics: prometheus-client is needed: pip install 'ucxstore[tools]'"
    assert done.returncode == 2
    assert (done.stdout, done.stderr) == ("", f"ucxstore serve: {message}\n")


@pytest.mark.parametrize("bind", ["127.0.0.1:0", IPV6])
def test_by_the_command(bind: str) -> None:
    command = [*COMMAND, "serve", "memory://", "--metrics", bind, "--memory", "64MiB"]
    command += ["--metrics-allow", "198.51.100.0/24"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(2)]
        url = next(line.split()[-1] for line in lines if line.startswith("metrics at"))
        assert fetch(url.replace("metrics", "readyz")) == (200, "ok\n")
        assert "ucxstore_memory_limit_bytes 6.7108864e+07" in fetch(url)[1]
        process.terminate()
        assert process.wait(60) == 0


# ---- who may read ----


def test_networks() -> None:
    networks = parse_networks("metrics_allow", ["10.0.0.0/8, fd00::/8", "192.0.2.7"])
    assert all(is_in(host, networks) for host in ("10.1.2.3", "::ffff:10.1.2.3", "fd00::1%eth0"))
    assert is_in("192.0.2.7", networks)
    assert not any(is_in(host, networks) for host in ("11.0.0.1", "192.0.2.8", "fe80::1", "::1"))
    mapped = parse_networks("metrics_allow", ["::ffff:10.0.0.0/104"])
    assert is_in("10.9.9.9", mapped)
    assert is_in("::ffff:10.9.9.9", mapped)
    assert not is_in("11.9.9.9", mapped)
    assert not is_in("10.9.9.9", parse_networks("x", ["fd00::/8"]))


@pytest.mark.parametrize("text", ["10.0.0.1/8", "10.0.0.0/40", "here", "10.0.0.0/8,,", ""])
def test_what_is_no_network(text: str) -> None:
    done = run(
        "serve", "memory://", "--bind", "127.0.0.1:0", "--metrics", "127.0.0.1:0",
        "--metrics-allow", text,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith("ucxstore serve: metrics_allow: '")
    assert done.stderr.count("\n") == 1


def test_networks_without_metrics() -> None:
    done = run("serve", "memory://", "--metrics-allow", "10.0.0.0/8")
    assert done.returncode == 2
    assert "metrics_allow: needs --metrics\n" in done.stderr


def all_of(sock: socket.socket) -> bytes:
    """Receive until the other side ends the connection."""
    return b"".join(iter(partial(sock.recv, 4096), b""))


def test_those_of_other_networks_get_403(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with Metrics(server, "0.0.0.0:0", anywhere=False, allow=["198.51.100.0/24"]) as metrics:
        port = metrics.url.rpartition(":")[2].partition("/")[0]
        assert fetch(f"http://127.0.0.1:{port}/metrics")[0] == 200
        monkeypatch.setattr(
            "ucxstore.server.process.web._OWN", ()
        )  # as if this were another machine
        for path in ("metrics", "healthz", "readyz", "else"):
            assert fetch(f"http://127.0.0.1:{port}/{path}") == (
                403,
                "this address is not allowed\n",
            )
    with Metrics(server, "0.0.0.0:0", anywhere=False, allow=["127.0.0.1/32"]) as metrics:
        port = metrics.url.rpartition(":")[2].partition("/")[0]
        assert fetch(f"http://127.0.0.1:{port}/metrics")[0] == 200


def test_those_of_other_networks_take_no_place(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ucxstore.server.process.web._OWN", ())
    with (
        Metrics(server, "127.0.0.1:0", anywhere=False, allow=["127.0.0.2/32"]) as metrics,
        ExitStack() as stack,
    ):
        port = int(metrics.url.rpartition(":")[2].partition("/")[0])
        # They ask nothing: their answer comes without their request, and is the end.
        for _ in range(40):
            silent = stack.enter_context(socket.create_connection(("127.0.0.1", port), 60))
            answer = all_of(silent)
            assert answer.startswith(b"HTTP/1.0 403 Forbidden\r\n")
            assert answer.endswith(b"\r\n\r\nthis address is not allowed\n")
        allowed = stack.enter_context(
            socket.create_connection(("127.0.0.1", port), 60, source_address=("127.0.0.2", 0))
        )
        allowed.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
        answer = all_of(allowed)
        assert answer.startswith(b"HTTP/1.0 200 OK\r\n")
        assert answer.endswith(b"ok\n")


@pytest.mark.parametrize(
    ("request_text", "status", "end"),
    [
        (b"GET /healthz?a=b HTTP/1.1\r\nHost: a\r\n\r\n", b"200 OK", b"\r\n\r\nok\n"),
        (b"GET /healthz HTTP/1.0\n\n", b"200 OK", b"\r\n\r\nok\n"),
        (b"HEAD /healthz HTTP/1.0\r\n\r\n", b"200 OK", b"\r\nContent-Length: 3\r\n\r\n"),
        (b"POST /healthz HTTP/1.0\r\n\r\n", b"501 Not Implemented", b"there are: GET, HEAD\n"),
        (b"rubbish\r\n\r\n", b"400 Bad Request", b"this is no request\n"),
    ],
)
def test_what_is_answered(server: Server, request_text: bytes, status: bytes, end: bytes) -> None:
    with Metrics(server, "127.0.0.1:0", anywhere=False) as metrics:
        port = int(metrics.url.rpartition(":")[2].partition("/")[0])
        with socket.create_connection(("127.0.0.1", port), 60) as sock:
            sock.sendall(request_text)
            answer = all_of(sock)
    assert answer.startswith(b"HTTP/1.0 " + status + b"\r\n")
    assert answer.endswith(end)


def test_nobody_waits_for_an_answer_under_way(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    monkeypatch.setattr(server, "dead", lambda: begun.set() or str(go_on.wait(60)))
    with Metrics(server, "127.0.0.1:0", anywhere=False) as metrics:
        port = int(metrics.url.rpartition(":")[2].partition("/")[0])
        with socket.create_connection(("127.0.0.1", port), 60) as sock:
            sock.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
            assert begun.wait(60)
            metrics.close()
            assert all_of(sock) == b""
            go_on.set()


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="there is no IPv6")
def test_over_both_versions_of_ip(server: Server) -> None:
    with Metrics(server, "[::]:0", anywhere=False, allow=["198.51.100.0/24"]) as metrics:
        port = metrics.url.rpartition(":")[2].partition("/")[0]
        assert fetch(f"http://127.0.0.1:{port}/healthz") == (200, "ok\n")
        assert fetch(f"http://[::1]:{port}/healthz") == (200, "ok\n")


def test_those_that_trickle_keep_nobody_out(server: Server) -> None:
    """As many as have room send a byte now and then, so that no single wait is long."""
    with ExitStack() as stack:
        metrics = Metrics(server, "127.0.0.1:0", anywhere=False)
        port = int(metrics.url.rpartition(":")[2].partition("/")[0])
        stack.callback(metrics.close)
        slow = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(32)
        ]
        for number in range(10):
            for one in slow:
                with suppress(OSError):  # the oldest ones have to go
                    one.sendall(b"GET /metrics HTTP/1.0\r\n"[number : number + 1])
            assert health(metrics, "/healthz") == (200, "ok\n")


def test_a_connection_has_one_time_for_all(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ucxstore.server.process.web._PATIENCE", 1.0)
    with (
        Metrics(server, "127.0.0.1:0", anywhere=False) as metrics,
        socket.create_connection(
            ("127.0.0.1", int(metrics.url.rpartition(":")[2].partition("/")[0]))
        ) as slow,
    ):
        slow.settimeout(0.1)
        ended = False
        for _ in range(100):
            with suppress(TimeoutError):
                try:
                    slow.sendall(b"x")
                    ended = slow.recv(100) == b""
                except ConnectionError:
                    ended = True
            if ended:
                break
        assert ended


def test_many_that_say_nothing_do_not_keep_others_out_for_long(server: Server) -> None:
    with ExitStack() as stack:
        metrics = Metrics(server, "127.0.0.1:0", anywhere=False)
        port = int(metrics.url.rpartition(":")[2].partition("/")[0])
        stack.callback(metrics.close)
        for _ in range(50):
            stack.enter_context(socket.create_connection(("127.0.0.1", port)))

        def busy() -> int:
            web = metrics._web
            return len(web._asking) + web._answering

        eventually(lambda: busy() == 32)

        def answers() -> bool:
            assert busy() <= 32
            try:
                return fetch(metrics.url)[0] == 200
            except OSError:
                return False

        eventually(answers)


# ---- lifecycle in the log ----


def test_a_servers_life_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="ucxstore.server"):
        with Server("memory://") as server, UcxStore(server.address) as store:
            put(store, "a")
        server.close()
    events = [getattr(one, "event", "") for one in caplog.records]
    assert [event for event in events if event in {"started", "draining", "ended"}] == [
        "started",
        "draining",
        "ended",
    ]
    started = next(one for one in caplog.records if getattr(one, "event", "") == "started")
    assert started.getMessage() == f"serving memory:// at {server.address}"


def test_json_of_it(tmp_path: object) -> None:
    command = [*COMMAND, "serve", "memory://", "-v", "--log-format", "json"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.terminate()
        _, errors = process.communicate(timeout=60)
    events = [json.loads(line)["event"] for line in errors.splitlines()]
    assert events == ["started", "draining", "ended"]
