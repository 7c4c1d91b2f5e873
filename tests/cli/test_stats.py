import json
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from zarr.core.buffer import cpu
from zarr.core.sync import sync

from tests.cli.command import COMMAND, run, run_process
from tests.eventually import eventually
from ucxstore import ProtocolError, UcxStore
from ucxstore.base.stats import ServerStats, parse_server_stats
from ucxstore.server import Server
from ucxstore.server.process.metrics import Metrics


@pytest.fixture
def server() -> Iterator[Server]:
    """A server of this test's own, so that its counters start at 0."""
    with Server("memory://", threads=2) as server:
        yield server


@pytest.fixture
def busy(server: Server) -> Iterator[UcxStore]:
    with UcxStore(server.address) as store:
        store.set_sync("a", cpu.Buffer.from_bytes(bytes(1000)))
        for key in ("a", "a", "b"):
            store.get_sync(key)
        yield store


def stats_of(store: UcxStore) -> ServerStats:
    return sync(store.server_stats())


def test_what_a_server_counts(server: Server, busy: UcxStore) -> None:
    other = UcxStore(server.address, integrity=True)  # on the other thread
    other.get_sync("a")
    found = stats_of(busy)
    assert (found["gets"], found["gets_missing"], found["sets"]) == (4, 1, 1)
    assert found["bytes_received"] == 1000
    assert found["bytes_sent"] >= 3000
    assert (found["sessions"], found["connected"], found["sessions_lost"]) == (2, 2, 0)
    assert found["uptime_s"] > 0
    first, second = found["clients"]
    assert (first["gets"], first["sets"], first["bytes_received"]) == (3, 1, 1000)
    assert first["lanes"] == busy.stats()["lanes"]
    assert (second["gets"], second["sets"], second["bytes_sent"]) == (1, 0, 1000)
    assert second["lanes"] == other.stats()["lanes"]
    assert second["lanes"] == ["tcp"]
    assert second["peer"].startswith("127.0.0.1:")
    other.close()
    del other
    eventually(lambda: [one["peer"] for one in stats_of(busy)["clients"]] == [first["peer"]])
    found = stats_of(busy)
    assert (found["connected"], found["sessions"], found["gets"]) == (1, 2, 4)
    assert found["bytes_in_flight"] == 0


def test_what_a_server_holds_and_works_for_whom(server: Server, busy: UcxStore) -> None:
    other = UcxStore(server.address, integrity=True)
    other.get_sync("a")
    found = stats_of(busy)
    [origin] = found["origins"]
    assert origin["sessions"] == 2
    assert {one["origin"] for one in found["clients"]} == {origin["origin"]}
    assert 0 < found["clients"][0]["worked_s"] <= origin["worked_s"] < found["uptime_s"]
    assert all(amount > 0 for amount in origin["held"].values())
    other.close()


def test_more_clients_than_are_told(server: Server, busy: UcxStore) -> None:
    one = stats_of(busy)["clients"][0]
    text = json.dumps({**stats_of(busy), "clients": [one] * 3, "new": "later"}).encode()
    assert parse_server_stats(text)["clients"] == [one] * 3


@pytest.mark.parametrize(
    "change",
    [
        {"gets": "many"},
        {"gets": None},
        {"gets": True},
        {"gets": float("nan")},
        {"clients": 3},
        {"clients": [3]},
        {"clients": [{}]},
        {"clients": [{"lanes": "x"}]},
        {"origins": [{}]},
        {"origins": [{"origin": "x", "sessions": 1, "worked_s": 0, "held": {"gets": "many"}}]},
        {"origins": [{"origin": "x", "sessions": 1, "worked_s": 0, "held": []}]},
    ],
)
def test_a_server_that_tells_something_else(busy: UcxStore, change: dict[str, object]) -> None:
    for text in (json.dumps({**stats_of(busy), **change}).encode(), b"", b"[]", b"\xff{}", b"{}"):
        with pytest.raises(ProtocolError, match="counters"):
            parse_server_stats(text)


def test_the_command(server: Server, busy: UcxStore) -> None:
    done = run_process("stats", server.address)
    assert (done.returncode, done.stderr) == (0, "")
    title, gets, sets, memory, head, client, end = done.stdout.split("\n")
    assert title.startswith(f"{server.address}, up ")
    assert title.endswith("1 clients (1 so far, 0 lost, 0 messages refused)")
    assert gets.startswith("gets  3 (1 missing), ")
    assert sets == "sets  1, 1.0 kB received"
    assert memory.startswith("mem   ")
    assert memory.endswith(", 1 values of 1.0 kB")
    assert head.split()[:3] == ["client", "lanes", "gets"]
    assert client.split()[0] == stats_of(busy)["clients"][0]["peer"]
    assert end == ""


def test_the_command_in_json(server: Server, busy: UcxStore) -> None:
    found = json.loads(run_process("stats", "--json", server.address).stdout)
    assert (found["gets"], found["gets_missing"], len(found["clients"])) == (3, 1, 2)
    assert found["asked_by"] == found["clients"][1]["id"]


@pytest.mark.parametrize("storage", ["memory", "directory"])
def test_what_clients_of_the_host_read_is_shown(storage: str, tmp_path: Path) -> None:
    with (
        Server("memory://" if storage == "memory" else tmp_path) as server,
        UcxStore(server.address, local="auto") as store,
    ):
        store.set_sync("a", cpu.Buffer.from_bytes(bytes(1_000_000)))
        for _ in range(5):
            store.get_sync("a")
        found = stats_of(store)
        done = run_process("stats", server.address)
    assert found["gets_seen"] >= 4
    assert found["bytes_seen"] == found["gets_seen"] * 1_000_000
    [client] = found["clients"]
    assert client["lanes"] == ["local"]
    assert (client["gets_seen"], client["bytes_seen"]) == (found["gets_seen"], found["bytes_seen"])
    size = f"{found['gets_seen']}.0 MB"
    [seen] = [line for line in done.stdout.splitlines() if line.startswith("seen ")]
    assert seen.startswith(
        f"seen  {found['gets_seen']} values of {size}, read by clients of its host"
    )
    [row] = [line for line in done.stdout.splitlines() if line.startswith(client["peer"])]
    assert f"  {found['gets_seen']}  " in row
    assert size in row


def test_who_watches_is_not_counted(server: Server, busy: UcxStore) -> None:
    eventually(lambda: server.stats()["bytes_in_flight"] == 0)
    counted = server.stats()
    assert counted["bytes_sent"] >= 2000
    told = [stats_of(busy) for _ in range(3)]
    assert run_process("stats", server.address, "--json").returncode == 0
    eventually(lambda: server.stats()["bytes_in_flight"] == 0)
    assert server.stats()["bytes_sent"] == counted["bytes_sent"]
    assert {one["bytes_sent"] for one in told} == {counted["bytes_sent"]}
    assert {one["clients"][0]["bytes_sent"] for one in told} == {counted["bytes_sent"]}


def test_watching(server: Server, busy: UcxStore) -> None:
    with subprocess.Popen(
        [*COMMAND, "stats", server.address, "--watch", "0.01", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        for _ in range(500):
            busy.get_sync("a")
        while json.loads(process.stdout.readline())["gets"] < first["gets"] + 500:
            pass
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=240)
    assert (process.returncode, error) == (130, "ucxstore stats: interrupted\n")


def test_watching_tells_what_came_since(server: Server) -> None:
    with subprocess.Popen(
        [*COMMAND, "stats", server.address, "--watch", "0.01"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        lines = (line for line in process.stdout if line.startswith("now "))
        assert "0 gets/s" in next(lines)
        process.terminate()


def test_no_pause() -> None:
    done = run("stats", "ucx://127.0.0.1:1", "--watch", "0")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "--watch: 0 is not between" in done.stderr


def test_several_servers_are_asked_one_by_one() -> None:
    done = run("stats", "ucx://127.0.0.1:1,127.0.0.1:2")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "several servers; ask each by its own address" in done.stderr


# ---- Prometheus ----


def read(url: str) -> dict[str, float]:
    with urllib.request.urlopen(url, timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    return {
        name: float(value)
        for name, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")
    }


def test_metrics(server: Server, busy: UcxStore) -> None:
    with Metrics(server, "127.0.0.1:0", anywhere=False) as metrics:
        found = read(metrics.url)
        assert found["ucxstore_gets_total"] == 3
        assert found["ucxstore_gets_missing_total"] == 1
        assert found["ucxstore_received_bytes_total"] == 1000
        assert found["ucxstore_connected"] == 1
        assert found["process_resident_memory_bytes"] > 1e6
        busy.get_sync("a")
        assert read(metrics.url)["ucxstore_gets_total"] == 4
    with pytest.raises(OSError, match="refused"):
        read(metrics.url)


@pytest.mark.parametrize(
    ("bind", "message"),
    [
        ("0.0.0.0:0", "metrics: 0.0.0.0:0 can be reached from other machines"),
        ("127.0.0.1", "metrics: '127.0.0.1' names no port"),
    ],
)
def test_where_metrics_may_not_be(bind: str, message: str) -> None:
    done = run("serve", "memory://", "--metrics", bind)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"ucxstore serve: {message}")


def test_metrics_where_somebody_listens(server: Server) -> None:
    taken = server.address.removeprefix("ucx://")
    with pytest.raises(OSError, match=f"metrics: {taken}: Address already in use"):
        Metrics(server, taken, anywhere=False)


def test_metrics_of_a_served_directory() -> None:
    with Server("memory://") as taken:
        port = taken.address.rpartition(":")[2]
        done = run("serve", "memory://", "--metrics", f"127.0.0.1:{port}")
    assert done.returncode == 1
    assert "in use" in done.stderr
    command = [*COMMAND, "serve", "memory://", "--metrics", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("metrics at http://127.0.0.1:")
        assert process.stdout.readline().startswith("serving memory:// at ")
        assert read(line.split()[-1])["ucxstore_gets_total"] == 0
        process.terminate()
        assert process.wait(60) == 0
