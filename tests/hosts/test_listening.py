"""What processes listen on."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.adversity.scripts import Script
from tests.eventually import eventually
from tests.hosts.network import Host

ROOT = Path(__file__).parents[2]

SERVER = """
from tests.hosts.listening import answer
server = Server("memory://", {bind!r}, insecure=True, **{options!r})
answer()
"""

CLIENT = """
from tests.hosts.listening import answer
store = UcxStore({address!r}, connect_timeout=20, **{options!r})
store.set_sync("key", as_buffer(b"value"))
assert store.get_sync("key").to_bytes() == b"value"
answer()
"""

type Run = Callable[..., "Asked"]


class Asked(Script):
    """A script that answers questions: see `tests.hosts.listening`."""

    def ask(self, question: str) -> str:
        self.say(question + "\n")
        return self.line()

    def listening(self) -> list[str]:
        found: list[str] = json.loads(self.ask("listening"))
        return found


@pytest.fixture
def run() -> Iterator[Run]:
    """Run a script on a host; one that answers questions, until it is ready."""
    with ExitStack() as stack:

        def start(host: Host, code: str, *, asked: bool = True) -> Asked:
            script = Asked("ucx://127.0.0.1:1", {}, code, inside=host.inside)
            stack.enter_context(script)
            if asked:
                assert script.line() == "ready"
            return script

        yield start


def serve(run: Run, host: Host, bind: str, **options: object) -> Asked:
    return run(host, SERVER.format(bind=bind, options=options))


def use(run: Run, host: Host, address: str, **options: object) -> Asked:
    return run(host, CLIENT.format(address=address, options=options))


# ---- what is documented ----


def documented() -> Mapping[str, list[str]]:
    """Return the table of docs/security.md: what is listened on, by process and mode."""
    text = (ROOT / "docs/security.md").read_text()
    rows = re.findall(r"^\| ((?:server|client)[^|]*) \| ([^|]*) \|$", text, re.MULTILINE)
    return {name: re.findall(r"`([^`]*)`", cell) for name, cell in rows}


def like(found: Sequence[str], hosts: Mapping[str, str]) -> list[str]:
    """Write what is listened on as the table does, which knows no ports and no names."""
    lines = []
    for line in found:
        kind, _, place = line.partition(" ")
        if kind == "tcp":
            host, port = place.rsplit(":", 1)
            line = f"tcp {hosts[host]}" if port != "7400" else f"tcp {hosts[host]} (bound)"
        elif line.startswith("unix stream"):
            line = "unix stream"
        lines.append(line)
    return sorted(lines)


def test_what_is_listened_on_is_documented(hosts: Sequence[Host], run: Run) -> None:
    serving, other, *_ = hosts
    at, table = serving.place, documented()
    seen: dict[str, list[str]] = {}
    names = {"127.0.0.1": "loopback", serving.ip: "outer", other.ip: "outer"}

    def note(name: str, script: Asked) -> None:
        seen[name] = like(script.listening(), names)

    server = serve(run, serving, at)
    note("server", server)
    client = use(run, serving, serving.address, local="auto")
    note("client of the same host", client)
    note("server, with a client of the same host", server)
    assert client.end() == ""
    client = use(run, other, serving.address)
    note("client of another host", client)
    note("server, with a client of another host", server)
    assert client.end() == ""
    assert server.end() == ""
    server = serve(run, serving, at, local=False)
    note("server, `local=False`", server)
    assert server.end() == ""
    server = serve(run, serving, at, network="ucx")
    note('server, `network="ucx"`', server)
    client = use(run, other, serving.address, network="ucx")
    note("client of another host, over UCX", client)
    note("server, with a client of another host over UCX", server)
    assert client.end() == ""
    client = use(run, serving, serving.address, local="ucx")
    note('client of the same host, `local="ucx"`', client)
    note("server, with a client of the same host over UCX", server)
    assert client.end() == ""
    assert server.end() == ""
    assert seen == {name: sorted(cell) for name, cell in table.items()}


# ---- what stays ----


@pytest.mark.parametrize("network", ["tcp", "ucx"])
def test_clients_come_and_go(hosts: Sequence[Host], run: Run, network: str) -> None:
    """They leave no socket behind."""
    serving, first, second, _ = hosts
    server = serve(run, serving, serving.place, network=network)
    bare = server.listening()
    for _ in range(2):
        clients = [
            use(run, host, serving.address, network=network) for host in (first, second, first)
        ]
        assert len(server.listening()) == len(bare) + (3 if network == "ucx" else 0)
        for client in clients:
            assert client.end() == ""
    eventually(lambda: server.listening() == bare)
    assert server.end() == ""
