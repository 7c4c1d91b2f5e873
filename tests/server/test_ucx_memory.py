"""UCX's shared memory: nobody has any, unless both sides ask for it; then one user's alone."""

import os
import signal
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.adversity.scripts import Script
from tests.eventually import eventually
from tests.values import as_buffer
from ucxstore import UcxStore
from ucxstore.server import Server
from ucxstore.server.spawn import ServerProcess

SHM = Path("/dev/shm")
LARGE = bytes(range(256)) * 40_000  # by rendezvous, in many fragments

CLIENT = """
with UcxStore({address!r}, **{options!r}) as other:
    other.set_sync("key", as_buffer(b"x" * 1_000_000))
    print(*other.stats()["lanes"], flush=True)
    sys.stdin.readline()
"""


def segments_of(*pids: int) -> list[str]:
    """Return the System V segments that these processes have made."""
    lines = Path("/proc/sysvipc/shm").read_text().splitlines()[1:]
    return [line for line in lines if int(line.split()[4]) in pids]


def files_of(*pids: int) -> list[Path]:
    """Return what these processes have mapped of /dev/shm, and what lies there for UCX."""
    mapped = {
        Path(line.split(maxsplit=5)[5].removesuffix(" (deleted)"))
        for pid in pids
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines()
        if f" {SHM}/" in line
    }
    return sorted(mapped)


def left_by_ucx() -> set[str]:
    return {name for name in os.listdir(SHM) if name.startswith("ucx_")}  # noqa: PTH208


@pytest.fixture
def spawned(request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    options: dict[str, Any] = getattr(request, "param", {})
    with Server.spawn("memory://", network="ucx", **options) as server:
        yield server


@pytest.mark.parametrize(
    ("spawned", "client"),
    [
        ({}, {"local": "ucx", "ucx": {"TLS": "sysv,posix,cma,tcp"}}),
        ({"ucx_shared_memory": True, "local": False}, {"local": "auto"}),
        pytest.param({}, {"local": "ucx"}, marks=pytest.mark.full),
        pytest.param({}, {"local": "off"}, marks=pytest.mark.full),
        pytest.param({"local": False}, {"local": "auto"}, marks=pytest.mark.full),
        pytest.param({"ucx_shared_memory": True}, {"local": "off"}, marks=pytest.mark.full),
        pytest.param({"ucx": {"TLS": "all"}}, {"local": "ucx"}, marks=pytest.mark.full),
    ],
    indirect=["spawned"],
)
def test_none_unless_both_ask(spawned: ServerProcess, client: Mapping[str, Any]) -> None:
    before = left_by_ucx()
    assert (segments_of(spawned.pid), files_of(spawned.pid)) == ([], [])
    options = {"network": "ucx", **client}
    code = CLIENT.format(address=spawned.address, options=options)
    with (
        Script(spawned.address, {}, code) as script,
        UcxStore(spawned.address, **options) as store,
    ):
        assert script.line() == "tcp/lo"
        store.set_sync("large", as_buffer(LARGE))
        found = store.get_sync("large")
        assert found is not None
        assert found.to_bytes() == LARGE
        pids = (spawned.pid, script.pid, os.getpid())
        assert (segments_of(*pids), files_of(*pids)) == ([], [])
        assert left_by_ucx() == before
        script.say("\n")
        assert script.end() == ""


@pytest.mark.parametrize(
    "spawned",
    [
        {"ucx_shared_memory": True},
        pytest.param(
            {"ucx_shared_memory": True, "ucx": {"TLS": "sm,self"}}, marks=pytest.mark.full
        ),
    ],
    indirect=True,
)
def test_one_users_alone_if_both_ask(spawned: ServerProcess) -> None:
    before = left_by_ucx()
    code = CLIENT.format(address=spawned.address, options={"local": "ucx"})
    with Script(spawned.address, {}, code) as script:
        assert script.line() == "posix/memory"
        pids = (spawned.pid, script.pid)
        assert segments_of(*pids) == []
        assert files_of(*pids)
        for pid in pids:
            for descriptor in Path(f"/proc/{pid}/fd").iterdir():
                if str(descriptor.readlink()).startswith(f"{SHM}/"):
                    assert stat.S_IMODE(descriptor.stat().st_mode) == 0o600
        # Nothing stays, however both end.
        os.kill(script.pid, signal.SIGKILL)
        os.kill(spawned.pid, signal.SIGKILL)
        assert script.status() == -signal.SIGKILL
    eventually(lambda: spawned.returncode is not None)
    assert left_by_ucx() <= before


def test_what_leaves_no_transport_is_refused(spawned: ServerProcess) -> None:
    with (
        UcxStore(spawned.address, local="ucx", ucx={"TLS": "sm,self"}) as store,
        pytest.raises(ValueError, match="TLS=sm,self: UCX's shared memory is used where both"),
    ):
        store.ping_sync()
    with pytest.raises(ValueError, match="TLS=posix: UCX's shared memory"):
        Server("memory://", ucx={"TLS": "posix"})
