"""`ucxstore doctor`, `ping` and a store, where something is wrong on the way to another host."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.adversity.scripts import Script
from tests.hosts.network import Host
from ucxstore.base.secret import Secret

STEPS = "name", "route", "port", "handshake", "identity", "lane", "one value", "speed"
SECRET = "a secret that is long enough"
DATA_PORTS = "7500-7599"

# A server of another release, or with another clock.
OTHER_SERVER = """
{first}
server = Server("memory://", {bind!r}, secret={secret!r})
print("ready", flush=True)
sys.stdin.readline()
"""
NEXT_VERSION = """
from ucxstore.protocol import frames, handshake
frames.PROTOCOL_VERSION = handshake.PROTOCOL_VERSION = {version}
"""
NEXT_MONTH = """
now = time.time
time.time = lambda: now() + 30 * 24 * 3600
"""

USE = """
import time
from ucxstore import ConnectError, UcxStore
store = UcxStore({address!r}, connect_timeout=12, network="ucx")
start, used = time.monotonic(), time.process_time()
try:
    store.get_sync("key")
except ConnectError as error:
    print(error)
    print(error.over_ucx)
print(time.monotonic() - start < 40, time.process_time() - used < 3)
"""


def run(host: Host, *words: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run a command on a host."""
    return python(host, "-m", "ucxstore", *words, **environment)


def python(host: Host, *words: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    given = ["env", *(f"{name}={value}" for name, value in environment.items())]
    done = subprocess.run(
        [*host.inside, *given, sys.executable, *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    # UCX has a line of its own on a connection that is not made.
    done.stderr = "".join(line for line in done.stderr.splitlines(True) if " UCX  " not in line)
    return done


def examine(host: Host, address: str, **environment: str) -> Mapping[str, str]:
    """Run doctor, and return what it says of each step, once both its outputs say the same."""
    done = run(host, "doctor", address, "--json", **environment)
    assert done.stderr == ""
    found = json.loads(done.stdout)
    assert found["machine"]["open_files"]
    [server] = found["servers"]
    steps = {one["step"]: f"{one['state']}: {one['what']}" for one in server["steps"]}
    assert tuple(steps) == STEPS
    failed = [name for name, said in steps.items() if said.startswith("failed: ")]
    assert done.returncode == (1 if failed else 0)
    for name in failed:
        [finding] = [one for one in found["findings"] if one["level"] == "problem"]
        assert finding["what"] == f"{name}: {steps[name].removeprefix('failed: ')}"
        assert finding["change"], "it says what to do"
        steps["change"] = finding["change"]
        reached = list(STEPS)[: STEPS.index(name)]
        assert all(steps[one].startswith("ok: ") for one in reached)
        later = list(STEPS)[STEPS.index(name) + 1 :]
        assert all(steps[one] == "not reached: " for one in later)
    return steps


def as_text(host: Host, address: str, **environment: str) -> str:
    done = run(host, "doctor", address, **environment)
    assert done.stderr == ""
    return done.stdout


@contextmanager
def other_server(host: Host, first: str) -> Iterator[None]:
    code = OTHER_SERVER.format(first=first, bind=host.place, secret=SECRET)
    with Script("ucx://127.0.0.1:1", {}, code, inside=host.inside) as server:
        assert server.line() == "ready"
        yield
        server.kill()


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "secret"
    file.write_text(SECRET)
    file.chmod(0o600)
    return file


def test_a_server_that_is_well(hosts: Sequence[Host]) -> None:
    """The server says nothing of it: `serving` looks."""
    serving, using, *_ = hosts
    with serving.serving("memory://", "--data-ports", DATA_PORTS):
        steps = examine(using, serving.address)
        text = as_text(using, serving.address)
    assert all(said.startswith("ok: ") for said in steps.values()), steps
    assert steps["name"] == f"ok: {serving.ip} is an address"
    assert steps["route"] == f"ok: from {using.ip}"
    assert steps["port"].startswith(f"ok: {serving.place} takes connections, on another machine")
    assert steps["lane"] == "ok: tcp"
    assert "to the server" in steps["speed"]
    for name in STEPS:
        assert f"\n{name:<13}ok: " in text


def test_a_name_that_nobody_knows(hosts: Sequence[Host]) -> None:
    steps = examine(hosts[1], "ucx://nowhere.invalid:7400")
    assert steps["name"].startswith("failed: ")
    assert "nowhere.invalid" in steps["name"]
    assert "/etc/hosts" in steps["change"]


def test_no_route(hosts: Sequence[Host]) -> None:
    steps = examine(hosts[1], "ucx://192.0.2.1:7400")
    assert steps["route"] == "failed: Network is unreachable"
    assert "ip route get 192.0.2.1" in steps["change"]
    assert "\nlimits " in as_text(hosts[1], "ucx://192.0.2.1:7400")


def test_nobody_listens(hosts: Sequence[Host]) -> None:
    serving, using, *_ = hosts
    steps = examine(using, f"ucx://{serving.ip}:7401")
    assert "Connection refused" in steps["port"]
    assert "is the server running" in steps["change"]


@pytest.mark.parametrize("rejects", [False, True], ids=["dropped", "rejected"])
def test_a_firewall_before_the_port(hosts: Sequence[Host], *, rejects: bool) -> None:
    serving, using, *_ = hosts
    with serving.serving("memory://"), serving.barring("7400", rejects=rejects):
        steps = examine(using, serving.address)
    assert ("No route to host" if rejects else "nothing came within 5 s") in steps["port"]
    assert "firewall" in steps["change"]
    assert "port 7400" in steps["change"]


def test_the_wrong_secret(hosts: Sequence[Host], secret: Path) -> None:
    serving, using, *_ = hosts
    warning = "has not proved that it may connect"
    with serving.serving("memory://", "--secret-file", str(secret), warns=warning):
        steps = examine(using, serving.address, UCXSTORE_SECRET="another secret of some length")
    assert "the secret is wrong" in steps["handshake"]
    assert "sha256sum" in steps["change"]


def test_another_version(hosts: Sequence[Host]) -> None:
    from ucxstore.protocol.frames import PROTOCOL_VERSION

    serving, using, *_ = hosts
    with other_server(serving, NEXT_VERSION.format(version=PROTOCOL_VERSION + 1)):
        steps = examine(using, serving.address, UCXSTORE_SECRET=SECRET)
    assert f"speaks version {PROTOCOL_VERSION + 1} of the protocol" in steps["handshake"]
    assert "the same release" in steps["change"]


def test_a_clock_that_is_far_off(hosts: Sequence[Host]) -> None:
    """It counts for grants alone; the messages show both clocks."""
    serving, using, *_ = hosts
    grant = Secret(SECRET).grant("run/", expires="8h").reveal().decode()
    with other_server(serving, NEXT_MONTH):
        steps = examine(using, serving.address, UCXSTORE_SECRET=grant)
        text = as_text(using, serving.address, UCXSTORE_SECRET=grant)
        whole = examine(using, serving.address, UCXSTORE_SECRET=SECRET)
    assert "the grant has expired" in steps["handshake"]
    assert "the server's clock says 20" in steps["handshake"]
    assert "clock" in steps["change"]
    assert "\nclock        20" in text
    assert whole["speed"].startswith("ok: ")


# ---- data ports ----


@contextmanager
def barred(serving: Host, using: Host, how: str) -> Iterator[None]:
    """Bar the data ports: at the server's host, or by a rule of the client's own."""
    with ExitStack() as stack:
        if how == "forbidden":
            rule = f"pref 10 to {serving.ip} ipproto tcp dport {DATA_PORTS} unreachable"
            using.run(f"ip rule add {rule}")
            stack.callback(using.run, f"ip rule del {rule}")
        else:
            stack.enter_context(serving.barring(DATA_PORTS, rejects=how == "rejected"))
        yield


@pytest.mark.parametrize("how", ["dropped", "rejected", "forbidden"])
def test_a_firewall_before_the_data_ports(hosts: Sequence[Host], how: str) -> None:
    serving, using, *_ = hosts
    said, over = "does not answer over UCX", {"UCXSTORE_NETWORK": "ucx"}
    with (
        serving.serving("memory://", "--data-ports", DATA_PORTS, warns="lost "),
        barred(serving, using, how),
    ):
        steps = examine(using, serving.address, **over)
        pinged = run(using, "ping", serving.address, "--timeout", "12", **over)
        used = python(using, "-c", USE.format(address=serving.address))
    assert (used.returncode, used.stderr) == (0, "")
    message, over_ucx, in_time_and_asleep = used.stdout.splitlines()
    assert said in steps["lane"]
    assert DATA_PORTS in steps["change"]
    assert pinged.returncode == 5
    [line] = pinged.stderr.splitlines()
    assert said in line
    assert "--data-ports" in line
    assert said in message
    assert over_ucx == "True"
    assert in_time_and_asleep == "True True"
