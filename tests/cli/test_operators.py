"""``ucxstore sessions``, ``kick``, ``flush`` and ``log-level``."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from obstore.store import MemoryStore
from zarr.core.buffer import cpu

from tests.cli.command import run
from tests.eventually import eventually
from tests.fixtures import server_of_its_own as server_of_its_own
from ucxstore import Secret, UcxStore
from ucxstore.base import logs
from ucxstore.base.foreign import Fields
from ucxstore.cli import sessions as command
from ucxstore.server import Server, operating
from ucxstore.server.operating import LEVELS

SECRET = "correct horse battery staple"


@pytest.fixture
def client(server: Server) -> Iterator[UcxStore]:
    with UcxStore(server.address, integrity=True) as store:
        store.set_sync("a", cpu.Buffer.from_bytes(bytes(1000)))
        yield store


@pytest.fixture
def operator(tmp_path: Path) -> Path:
    file = tmp_path / "operator"
    file.write_bytes(Secret(SECRET).grant(None, operator=True).reveal())
    file.chmod(0o600)
    return file


def listed(server: Server) -> list[dict[str, Any]]:
    done = run("sessions", "--json", server.address)
    assert (done.returncode, done.stderr) == (0, "")
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_sessions(server: Server, client: UcxStore) -> None:
    done = run("sessions", server.address)
    assert (done.returncode, done.stderr) == (0, "")
    blocks = done.stdout.split("\n   ")
    first = next(block for block in blocks if "1 set," in done.stdout)
    assert first.lstrip()[0].isdigit()
    assert "1 set, 0 B sent, 1.0 kB received" in done.stdout
    assert "TCP, in the clear" in done.stdout
    assert "connected for 0 s" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    theirs = next(one for one in listed(server) if one["sets"] == 1)
    assert theirs["bytes_received"] == 1000


def test_a_session_over_ucx() -> None:
    ucx = {"TLS": "tcp"}
    with (
        Server("memory://", ucx=ucx) as server,
        UcxStore(server.address, local="off", ucx=ucx) as store,
    ):
        store.ping_sync()
        assert "UCX (tcp/lo), in the clear" in run("sessions", server.address).stdout


def test_pages_follow_one_another(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    [one] = listed(server)
    asked = []

    async def operate(_: object, **what: Any) -> Fields:
        asked.append(what)
        numbers = {0: [3, 5], 5: [8], 8: []}[what["after"]]
        page = [{**one, "id": number, "peer": "a\nb"} for number in numbers]
        return Fields("an answer", {"sessions": page, "more": bool(numbers)})

    monkeypatch.setattr(command, "operate", operate)
    done = run("sessions", server.address)
    assert done.returncode == 0
    assert [what["after"] for what in asked] == [0, 5, 8]
    assert [line.split()[0] for line in done.stdout.splitlines() if "a\\nb" in line] == [
        "3",
        "5",
        "8",
    ]


def test_kick(server: Server, client: UcxStore) -> None:
    theirs = next(one for one in listed(server) if one["sets"] == 1)
    done = run("kick", server.address, theirs["id"])
    assert (done.returncode, done.stdout, done.stderr) == (0, "ended 1 session\n", "")
    eventually(lambda: theirs["id"] not in [one["id"] for one in listed(server)])
    done = run("kick", server.address, theirs["id"])
    assert done.returncode == 3
    assert done.stderr.endswith(f": there is no session {theirs['id']}\n")


def test_kick_an_origin(server: Server, client: UcxStore) -> None:
    origin = listed(server)[0]["origin"]
    done = run("kick", server.address, "--origin", origin)
    assert (done.returncode, done.stdout) == (0, "ended 1 session\n")
    done = run("kick", server.address, "--origin", "10.9.8.7")
    assert done.returncode == 3
    assert done.stderr.endswith(": there is no other session of 10.9.8.7\n")


def test_flush() -> None:
    source = MemoryStore()
    source.put("a/b", bytes(100_000))
    with Server(source) as server, UcxStore(server.address) as store:
        assert store.get_sync("a/b") is not None
        assert run("flush", f"{server.address}/b").stdout == "freed 0 B of the cache\n"
        done = run("flush", f"{server.address}/a")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("freed 10")
        assert run("flush", server.address).stdout == "freed 0 B of the cache\n"


def test_flush_of_memory_is_refused(server: Server) -> None:
    done = run("flush", server.address)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"ucxstore flush: {server.address}: the server has no cache: it serves memory, or a "
        "directory\n"
    )


def test_log_level(server: Server) -> None:
    before = logs.server.level
    try:
        logs.server.setLevel(logging.WARNING)
        assert run("log-level", server.address).stdout == "warning\n"
        assert run("log-level", server.address, "info").stdout == "info, before: warning\n"
        assert logs.server.level == logging.INFO
        assert run("log-level", server.address).stdout == "info\n"
    finally:
        logs.server.setLevel(before)
        logs.refresh()


def test_levels_are_those_of_the_server() -> None:
    done = run("log-level", "ucx://127.0.0.1:1", "loud")
    assert done.returncode == 2
    assert f"({', '.join(LEVELS)})" in done.stderr
    assert operating.LEVELS == LEVELS


def test_an_operators_grant(operator: Path, tmp_path: Path) -> None:
    reader = tmp_path / "reader"
    reader.write_bytes(Secret(SECRET).grant(None, read_only=True).reveal())
    reader.chmod(0o600)
    with Server("memory://", secret=SECRET) as server:
        assert run("sessions", server.address, "--secret-file", operator).returncode == 0
        assert run("stats", server.address, "--secret-file", operator).returncode == 0
        done = run("ls", server.address, "--secret-file", operator)
        assert done.returncode == 4
        assert "which opens requests of operators" in done.stderr
        for words in (["sessions"], ["kick", 1], ["flush"], ["log-level"]):
            words = [words[0], server.address, *words[1:]]
            done = run(*words, "--secret-file", reader)
            assert (done.returncode, done.stdout) == (4, "")
            assert "is for operators alone, and the grant opens everything," in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["sessions", "ucx://a:1,b:1"], "several servers; ask each by its own address"),
        (["sessions", "ucx://a:1/p"], "a server is needed, without a prefix"),
        (["kick", "ucx://a:1"], "one of the arguments"),
        (["kick", "ucx://a:1", "1", "--origin", "x"], "not allowed with"),
        (["kick", "ucx://a:1", "one"], "SESSION"),
        (["log-level", "ucx://a:1/p"], "a server is needed, without a prefix"),
        (["flush", "nonsense"], "nonsense"),
    ],
)
def test_what_is_not_understood(words: list[str], message: str) -> None:
    done = run(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
