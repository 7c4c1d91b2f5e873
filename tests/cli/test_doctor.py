import json
import logging
from pathlib import Path

import pytest

from tests.cli.command import run_process as run
from tests.eventually import eventually
from ucxstore import UcxStore
from ucxstore.base.secret import Secret
from ucxstore.base.ucx_library import load
from ucxstore.cli.doctor.steps import STEPS
from ucxstore.server import Server

SECRET = "correct horse battery staple"


def test_with_a_server_of_its_own() -> None:
    done = run("doctor")
    assert (done.returncode, done.stderr) == (0, "")
    library = load()
    lines = done.stdout.splitlines()
    assert lines[0] == f"UCX          {library.version} ({library.origin}: {library.path})"
    assert [line[:12].rstrip() for line in lines if line[:1].isalpha() and ":" not in line[:8]] == [
        "UCX",
        "transports",
        "limits",
        "clock",
        *["container"] * any(line.startswith("container") for line in lines),
        *["environment"] * sum(line.startswith("environment") for line in lines),
        "server",
        *(name for name, _ in STEPS),
    ]
    asked = "note: the server is on this machine, and UCXSTORE_LOCAL=off asks for the network: tcp"
    assert asked in lines


def test_of_a_server(ucx_store: UcxStore, address: str) -> None:
    done = run("doctor", address, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    [server] = found["servers"]
    assert server["address"] == address
    assert [(one["step"], one["state"]) for one in server["steps"]] == [
        (name, "ok") for name, _ in STEPS
    ]
    library = load()
    assert found["ucx"] == {
        "origin": library.origin,
        "version": library.version,
        "path": str(library.path),
    }
    assert "tcp" in found["machine"]["transports"]
    way = server["way"]
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
        done = run("doctor", server.address, env={"UCXSTORE_LOCAL": "ucx"})
    assert done.returncode == 0
    assert "ok: UCX's shared memory is used: posix/memory" in done.stdout


def test_another_pipeline(address: str) -> None:
    note = "note: UCXSTORE_SELECT_PIPELINE is off, so zarr reads our arrays by "
    assert note not in run("doctor", address).stdout
    assert note in run("doctor", address, env={"UCXSTORE_SELECT_PIPELINE": "0"}).stdout


def test_of_a_server_that_takes_no_writes(tmp_path: Path) -> None:
    with Server(tmp_path, read_only=True) as server:
        done = run("doctor", server.address, "--write")
    assert (done.returncode, done.stderr) == (0, "")
    assert "one value    left out: the server takes no writes\n" in done.stdout
    assert "bandwidth not measured: the server takes no writes\n" in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("options", [[], ["--write"]])
@pytest.mark.parametrize("scratch_limit", [None, "unlimited"])
def test_nothing_is_written_unasked(
    options: list[str], scratch_limit: str | None, tmp_path: Path
) -> None:
    with Server(tmp_path, scratch_limit=scratch_limit) as server:
        done = run("doctor", server.address, *options)
        sets = server.stats()["sets"]
    assert (done.returncode, done.stderr) == (0, "")
    measured = bool(options) or scratch_limit is not None
    refused = "failed at the server: the server offers no scratch space: start it with"
    assert (refused in done.stdout) == (not measured)
    assert ("; --write does without scratch space\n" in done.stdout) == (not measured)
    assert (sets > 0) == measured
    assert list(tmp_path.iterdir()) == []
    for line in ("server", "lane"):
        assert f"\n{line}  " in done.stdout


@pytest.mark.parametrize("options", [[], ["--write"]])
def test_of_a_server_with_little_memory(options: list[str]) -> None:
    with Server("memory://", memory="8MiB") as server:
        done = run("doctor", server.address, "--json", *options)
    assert (done.returncode, done.stderr) == (0, "")
    [server] = json.loads(done.stdout)["servers"]
    way = server["way"]
    assert way["why_not"] == ""
    assert (1 << 20) <= way["nbytes"] <= (2 << 20)


@pytest.mark.parametrize("options", [[], ["--write"]])
def test_of_a_server_without_room(options: list[str]) -> None:
    """It says so, and the other findings are there."""
    with Server("memory://", memory="1MiB") as server:
        done = run("doctor", server.address, *options)
    assert (done.returncode, done.stderr) == (0, "")
    assert "bandwidth not measured: " in done.stdout
    assert "no room for 1048576 bytes" in done.stdout
    assert "offers no scratch space" not in done.stdout
    assert "\nnote: the server is on this machine" in done.stdout


def test_of_scratch_space_that_is_smaller_than_its_quota(tmp_path: Path) -> None:
    with Server(tmp_path, scratch_limit="4MiB") as server:
        [found] = json.loads(run("doctor", server.address, "--json").stdout)["servers"]
    assert found["way"]["why_not"] == ""
    assert (1 << 20) <= found["way"]["nbytes"] < (4 << 20)


def test_with_a_grant() -> None:
    secret = Secret(SECRET)
    with Server("memory://", secret=secret) as server:
        grant = secret.grant("p/", read_only=True).reveal().decode()
        done = run("doctor", server.address, "--write", env={"UCXSTORE_SECRET": grant})
    assert (done.returncode, done.stderr) == (0, "")
    assert "one value    left out: " in done.stdout
    assert "is outside of the grant, which opens 'p/', read-only\n" in done.stdout


def test_the_ports(ucx_address: str) -> None:
    done = run("doctor", ucx_address, "--ucx", "TLS=tcp", "--json")
    [server] = json.loads(done.stdout)["servers"]
    found = server["ports"]
    place = ucx_address.removeprefix("ucx://")
    assert found["control"] == place
    assert found["data"]
    assert all(each.startswith("127.0.0.1:") for each in found["data"])
    assert place not in found["data"]


def test_nobody_there() -> None:
    """It says so at once, and what it has found of this machine all the same."""
    done = run("doctor", "ucx://127.0.0.1:1")
    assert (done.returncode, done.stderr) == (1, "")
    assert "\nlimits       locked memory " in done.stdout
    assert "\nroute        ok: from 127.0.0.1\n" in done.stdout
    assert "\nport         failed: " in done.stdout
    assert "127.0.0.1:1: it does not answer: Connection refused\n" in done.stdout
    assert "\nhandshake    not reached\n" in done.stdout
    assert "\nproblem: port: " in done.stdout


def test_one_of_several_is_not_there(address: str) -> None:
    place = address.removeprefix("ucx://").partition("/")[0]
    done = run("doctor", f"ucx://127.0.0.1:1,{place}", "--json")
    assert (done.returncode, done.stderr) == (1, "")
    gone, there = json.loads(done.stdout)["servers"]
    assert [one["state"] for one in gone["steps"]].count("not reached") == 5
    assert {one["state"] for one in there["steps"]} == {"ok"}


def test_no_ucx(ucx_address: str) -> None:
    """It is needed only where it is asked for."""
    environment = {"UCXSTORE_UCX": "elsewhere"}
    done = run("doctor", ucx_address, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\nlane         ok: tcp\n" in done.stdout
    done = run("doctor", ucx_address, env={**environment, "UCXSTORE_NETWORK": "ucx"})
    assert (done.returncode, done.stderr) == (1, "")
    assert "\nlimits " in f"\n{done.stdout}"
    assert "\nidentity     ok: " in done.stdout
    assert "\nlane         failed: " in done.stdout
    assert "elsewhere" in done.stdout


def test_a_healthy_server_hears_nothing_of_it(caplog: pytest.LogCaptureFixture) -> None:
    """No warning, and no refusal that alerts are made of."""
    caplog.set_level(logging.INFO, "ucxstore.server")
    for secret in (None, SECRET):
        with Server("memory://", secret=secret) as server:
            done = run("doctor", server.address, env={"UCXSTORE_SECRET": secret or ""})
            assert (done.returncode, done.stderr) == (0, "")
            eventually(lambda: server.stats()["probes"] == 2)
            assert server.stats()["turned_away"] == 0
    assert {one.levelno for one in caplog.records} == {logging.INFO}
    assert "handshake" not in caplog.text
