import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.command import run_process as run
from tests.hosts import refusing
from ucxstore import UcxStore
from ucxstore._ucx import load
from ucxstore.cli.doctor.advice import advise_on_ports
from ucxstore.cli.doctor.measure import Way
from ucxstore.cli.doctor.ports import Ports
from ucxstore.secret import Secret
from ucxstore.server import Server


def test_with_a_server_of_its_own() -> None:
    done = run("doctor")
    assert (done.returncode, done.stderr) == (0, "")
    library = load()
    lines = done.stdout.splitlines()
    assert lines[0] == f"UCX          {library.version} ({library.origin}: {library.path})"
    assert [line.split()[0] for line in lines if line[:1].isalpha() and ":" not in line[:8]] == [
        "UCX",
        "transports",
        "limits",
        *["container"] * any(line.startswith("container") for line in lines),
        *["environment"] * sum(line.startswith("environment") for line in lines),
        "server",
        "ports",
        "lanes",
        "round",
        "bandwidth",
    ]
    asked = "note: the server is on this machine, and UCXSTORE_LOCAL=ucx asks for UCX: tcp/lo"
    assert asked in lines


def test_of_a_server(ucx_store: UcxStore, address: str) -> None:
    done = run("doctor", address, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found["address"] == address
    library = load()
    assert found["ucx"] == {
        "origin": library.origin,
        "version": library.version,
        "path": str(library.path),
    }
    assert "tcp" in found["machine"]["transports"]
    way = found["way"]
    ucx_store.get_sync("x")
    assert way["lanes"] == ucx_store.stats()["lanes"]
    assert way["same_host"] is True
    assert 0 < way["round_trip"] < 10
    assert min(way["read"], way["write"], way["copy"]) > 0
    assert (1 << 20) <= way["nbytes"] <= (64 << 20)
    assert run("ls", address).returncode == 3  # it has left nothing


def test_without_the_local_plane(address: str) -> None:
    done = run("doctor", address, env={"UCXSTORE_LOCAL": "auto", "UCX_TLS": "tcp"})
    assert done.returncode == 0
    assert "ok: the server's memory is seen where it lies" in done.stdout
    assert "environment  UCX_TLS=tcp\n" in done.stdout
    with Server("memory://", local=False) as server:
        done = run("doctor", server.address, env={"UCXSTORE_LOCAL": "auto"})
    assert done.returncode == 1
    assert "problem: the server is on this machine, but its memory is not seen" in done.stdout


def test_with_shared_memory_of_ucx() -> None:
    with Server("memory://", ucx_shared_memory=True) as server:
        done = run("doctor", server.address)
    assert done.returncode == 0
    assert "ok: UCX's shared memory is used: posix/memory" in done.stdout


def test_another_pipeline(address: str) -> None:
    note = "note: UCXSTORE_SELECT_PIPELINE is off, so zarr reads our arrays by "
    assert note not in run("doctor", address).stdout
    assert note in run("doctor", address, env={"UCXSTORE_SELECT_PIPELINE": "0"}).stdout


def test_a_kernel_without_fences() -> None:
    code = """
from tests.hosts import refusing
from ucxstore._ucx import load
from ucxstore.cli.doctor.machine import examine_machine

refusing.refuse(refusing.FILTERS)
print(examine_machine(load()).no_fence, end="|")
refusing.refuse(refusing.KEYS)
print(examine_machine(load()).no_fence)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    one_way, no_way = done.stdout.split("|")
    assert one_way == "" or not refusing.has_keys()
    assert "UCXSTORE_GATE=off" in no_way


def test_of_a_server_that_takes_no_writes(tmp_path: Path) -> None:
    with Server(tmp_path, read_only=True) as server:
        done = run("doctor", server.address, "--write")
    assert (done.returncode, done.stderr) == (0, "")
    assert "bandwidth    not measured: the server takes no writes\n" in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("options", [[], ["--write"]])
@pytest.mark.parametrize("scratch", [None, "memory://"])
def test_nothing_is_written_unasked(
    options: list[str], scratch: str | None, tmp_path: Path
) -> None:
    with Server(tmp_path, scratch=scratch) as server:
        done = run("doctor", server.address, *options)
        sets = server.stats()["sets"]
    assert (done.returncode, done.stderr) == (0, "")
    measured = bool(options) or scratch is not None
    refused = "failed at the server: the server offers no scratch space: start it with"
    assert (refused in done.stdout) == (not measured)
    assert ("; --write does without scratch space\n" in done.stdout) == (not measured)
    assert (sets > 0) == measured
    assert list(tmp_path.iterdir()) == []
    for line in ("server", "ports"):
        assert f"\n{line}  " in done.stdout


@pytest.mark.parametrize("options", [[], ["--write"]])
def test_of_a_server_with_little_memory(options: list[str]) -> None:
    with Server("memory://", memory="8MiB") as server:
        done = run("doctor", server.address, "--json", *options)
    assert (done.returncode, done.stderr) == (0, "")
    way = json.loads(done.stdout)["way"]
    assert way["why_not"] == ""
    assert (1 << 20) <= way["nbytes"] <= (2 << 20)


@pytest.mark.parametrize("options", [[], ["--write"]])
def test_of_a_server_without_room(options: list[str]) -> None:
    """It says so, and the other findings are there."""
    with Server("memory://", memory="1MiB") as server:
        done = run("doctor", server.address, *options)
    assert (done.returncode, done.stderr) == (0, "")
    assert "bandwidth    not measured: " in done.stdout
    assert "no room for 1048576 bytes" in done.stdout
    assert "offers no scratch space" not in done.stdout
    assert "\nnote: the server is on this machine" in done.stdout


def test_of_scratch_space_that_is_smaller_than_its_quota(tmp_path: Path) -> None:
    with Server(tmp_path, scratch="memory://", scratch_limit="4MiB") as server:
        found = json.loads(run("doctor", server.address, "--json").stdout)
    assert found["way"]["why_not"] == ""
    assert (1 << 20) <= found["way"]["nbytes"] < (4 << 20)


def test_with_a_grant() -> None:
    secret = Secret("correct horse battery staple")
    with Server("memory://", secret=secret) as server:
        grant = secret.grant("p/", read_only=True).reveal().decode()
        done = run("doctor", server.address, "--write", env={"UCXSTORE_SECRET": grant})
    assert (done.returncode, done.stderr) == (0, "")
    assert "bandwidth    not measured: " in done.stdout
    assert "is outside of the grant, which opens 'p/', read-only\n" in done.stdout


def test_the_ports(address: str) -> None:
    done = run("doctor", address, "--ucx", "TLS=tcp", "--json")
    found = json.loads(done.stdout)["ports"]
    place = address.removeprefix("ucx://").partition("/")[0]
    assert found["control"] == place
    assert found["data"]
    assert all(each.startswith("127.0.0.1:") for each in found["data"] + found["listening"])
    assert place not in found["data"]


def test_advice_on_ports() -> None:
    ports = Ports(control="h:7400", data=["10.0.0.1:7500"], listening=[])
    far = Way(lanes=["tcp/eth0"], same_host=False, round_trip=1e-4)
    [finding] = advise_on_ports(ports, far)
    assert "at h:7400 and at UCX's ports" in finding.what
    assert "--data-ports" in finding.change
    assert "docs/" not in finding.change  # an installed package has no pages
    assert advise_on_ports(ports, replace(far, same_host=True)) == []
    assert advise_on_ports(replace(ports, data=[]), far) == []


def test_nobody_there() -> None:
    done = run("doctor", "ucx://127.0.0.1:1")
    assert (done.returncode, done.stdout) == (5, "")
    assert done.stderr.startswith("ucxstore doctor: ")
    assert "127.0.0.1:1: " in done.stderr
    assert "refused" in done.stderr


def test_no_ucx() -> None:
    done = run("doctor", env={"UCXSTORE_UCX": "elsewhere"})
    assert (done.returncode, done.stdout) == (1, "")
    [line] = done.stderr.splitlines()
    assert line.startswith("ucxstore doctor: ")
    assert "elsewhere" in line
