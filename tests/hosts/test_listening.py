"""What processes listen on, and that nobody but their peers reaches it."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.adversity.scripts import Script
from tests.eventually import eventually
from tests.hosts.listening import VICTIM_BYTES
from tests.hosts.network import Host
from tests.hosts.refusing import has_keys

ROOT = Path(__file__).parents[2]

SERVER = """
from tests.hosts.listening import answer
{first}
server = Server("memory://", {bind!r}, insecure=True, **{options!r})
answer()
"""

CLIENT = """
from tests.hosts.listening import answer
{first}
store = UcxStore({address!r}, connect_timeout=20, **{options!r})
store.set_sync("key", as_buffer(b"value"))
assert store.get_sync("key").to_bytes() == b"value"
answer()
"""

REACH = """
from tests.hosts import intruder
{become}
for host, port in {places!r}:
    print(intruder.reach(host, port), flush=True)
"""

PUT = """
from tests.hosts import intruder
{become}
print(intruder.put({host!r}, {port}, {where}, bytes([66] * {size})), flush=True)
"""

# Another user may not read what Python has still to import.
BECOME = "import encodings.idna, zarr.core.sync\nfrom tests.hosts import intruder\n"
BECOME += "intruder.become_nobody()"
REFUSE_FILTERS = "from tests.hosts import refusing\nrefusing.refuse(refusing.FILTERS)"

# How the kernel keeps others out: see native/ucx/fence.hpp. For an ordinary user's processes, that
# is the kernel's choice.
WAYS = {"filters": "", "keys": REFUSE_FILTERS, "an ordinary user": BECOME}

type Run = Callable[..., "Asked"]


class Asked(Script):
    """A script that answers questions: see `tests.hosts.listening`."""

    def ask(self, question: str) -> str:
        self.say(question + "\n")
        return self.line()

    def listening(self) -> list[str]:
        found: list[str] = json.loads(self.ask("listening"))
        return found

    def ucx_places(self, *others: str) -> list[tuple[str, int]]:
        """Return the TCP sockets of UCX's: all but `others`."""
        found = [line.removeprefix("tcp ") for line in self.listening() if line.startswith("tcp")]
        places = (place.rsplit(":", 1) for place in found if place not in others)
        return [(host, int(port)) for host, port in places]


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


def serve(run: Run, host: Host, bind: str, first: str = "", **options: object) -> Asked:
    return run(host, SERVER.format(bind=bind, first=first, options=options))


def use(run: Run, host: Host, address: str, first: str = "", **options: object) -> Asked:
    return run(host, CLIENT.format(address=address, first=first, options=options))


def way(name: str) -> str:
    if name == "keys" and not has_keys():
        pytest.skip("this kernel has no signatures for TCP")
    return WAYS[name]


def reached(
    run: Run, host: Host, places: Sequence[tuple[str, int]], *, by_nobody: bool = False
) -> set[str]:
    become = BECOME if by_nobody else ""
    return set(
        run(host, REACH.format(places=places, become=become), asked=False).end().splitlines()
    )


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
    client = use(run, serving, serving.address, local="ucx")
    note('client of the same host, `local="ucx"`', client)
    note("server, with a client of the same host that uses UCX", server)
    assert client.end() == ""
    assert server.end() == ""
    server = serve(run, serving, at, local=False)
    note("server, `local=False`", server)
    assert server.end() == ""
    assert seen == {name: sorted(cell) for name, cell in table.items()}


# ---- who gets in ----


@pytest.mark.parametrize(
    "name", ["filters", "an ordinary user", pytest.param("keys", marks=pytest.mark.full)]
)
def test_nobody_reaches_ucx_from_elsewhere(hosts: Sequence[Host], run: Run, name: str) -> None:
    serving, using, third, _ = hosts
    server = serve(run, serving, serving.place, way(name))
    client = use(run, using, serving.address, way(name))
    places = server.ucx_places(serving.place) + client.ucx_places()
    assert {host for host, _ in places} == {serving.ip, using.ip}
    assert reached(run, third, places) == {"no answer"}
    for host in (serving, using):
        own = [place for place in places if place[0] == host.ip]
        assert reached(run, host, own) == {"no answer"}
        assert reached(run, host, own, by_nobody=True) == {"no answer"}
    # The peer's own host included, once the two have met.
    assert reached(run, using, [place for place in places if place[0] == serving.ip]) == {
        "no answer"
    }
    assert client.end() == server.end() == ""


@pytest.mark.parametrize(
    ("name", "ucx"),
    [
        ("filters", {}),
        pytest.param("filters", {"TLS": "tcp"}, marks=pytest.mark.full),
        ("keys", {"TLS": "tcp"}),
    ],
)
def test_nobody_reaches_ucx_on_one_host(
    hosts: Sequence[Host], run: Run, name: str, ucx: Mapping[str, str]
) -> None:
    serving, *_ = hosts
    server = serve(run, serving, "127.0.0.1:7400", way(name), ucx=ucx)
    client = use(run, serving, "ucx://127.0.0.1:7400", way(name), local="ucx", ucx=ucx)
    places = server.ucx_places("127.0.0.1:7400") + client.ucx_places()
    assert {host for host, _ in places} == {"127.0.0.1"}
    assert reached(run, serving, places) == {"no answer"}
    assert reached(run, serving, places, by_nobody=True) == {"no answer"}
    assert client.end() == server.end() == ""


@pytest.mark.parametrize(
    ("which", "whence", "name"),
    [
        ("server", "a third host", "filters"),
        ("server", "a third host", "keys"),
        ("server", "another user", "filters"),
        ("client", "a third host", "filters"),
        ("client", "another user", "keys"),
    ],
)
def test_a_one_sided_write(
    hosts: Sequence[Host], run: Run, which: str, whence: str, name: str
) -> None:
    """It changes nothing; once the kernel lets everybody in, it does."""
    serving, using, third, _ = hosts
    server = serve(run, serving, serving.place, way(name))
    client = use(run, using, serving.address, way(name))
    victim, at = (server, serving) if which == "server" else (client, using)
    ((host, port),) = victim.ucx_places(serving.place)
    where = int(victim.ask("where"))
    source, become = (third, "") if whence == "a third host" else (at, BECOME)
    code = PUT.format(host=host, port=port, where=where, size=VICTIM_BYTES, become=become)
    before = victim.ask("victim")

    assert "timed out" in run(source, code, asked=False).end()
    assert victim.ask("victim") == before

    assert victim.ask("let all in") == "done"
    assert run(source, code, asked=False).end() == "sent\n"
    assert victim.ask("victim") == "42" * VICTIM_BYTES
    victim.kill()


@pytest.mark.parametrize("name", ["filters", pytest.param("keys", marks=pytest.mark.full)])
def test_clients_come_and_go(hosts: Sequence[Host], run: Run, name: str) -> None:
    """Each finds the server's sockets for it open, and leaves none behind."""
    serving, first, second, _ = hosts
    server = serve(run, serving, serving.place, way(name))
    bare = server.listening()
    for _ in range(2):
        clients = [use(run, host, serving.address, way(name)) for host in (first, second, first)]
        assert len(server.ucx_places(serving.place)) == 3
        for client in clients:
            assert client.end() == ""
    eventually(lambda: server.listening() == bare)
    assert server.end() == ""
