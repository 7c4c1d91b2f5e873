"""Variables of the environment that begin as ours do, and are none."""

import subprocess
import sys

import pytest

from tests.cli.command import run
from ucxstore import UcxStore
from ucxstore.base.environment import check_variables
from ucxstore.server import Server
from ucxstore.server.process import foreground

OPTIONS = ("UCXSTORE_SERVE_CACHE", "UCXSTORE_SERVE_CACHE_DIR", "UCXSTORE_SERVE_ENCRYPT")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("UCXSTORE_SERVE_ENCRYPTED", "UCXSTORE_SERVE_ENCRYPT"),
        ("UCXSTORE_SERVE_CASHE", "UCXSTORE_SERVE_CACHE"),
        ("UCXSTORE_ENCRYPT", "UCXSTORE_SERVE_ENCRYPT"),
        ("UCXSTORE_SRVE_ENCRYPT", "UCXSTORE_SERVE_ENCRYPT"),
        ("UCXSTORE_SECRETFILE", "UCXSTORE_SECRET_FILE"),
        ("UCXSTORE_LOCAL_", "UCXSTORE_LOCAL"),
    ],
)
def test_a_misspelled_variable_is_named_with_the_nearest(name: str, meant: str) -> None:
    with pytest.raises(ValueError, match=rf"^{name}: .* did you mean {meant}\?$"):
        check_variables({name: "1", "UCXSTORE_LOCAL": "ucx"}, OPTIONS)


def test_what_is_near_to_none_is_named_alone() -> None:
    """Beginnings that all have in common make none a neighbour."""
    with pytest.raises(ValueError, match=r"^UCXSTORE_SERVE_Q: there is no such variable$"):
        check_variables({"UCXSTORE_SERVE_Q": "1"}, OPTIONS)


def test_all_are_named() -> None:
    with pytest.raises(ValueError, match=r"^UCXSTORE_A: .*; UCXSTORE_B: "):
        check_variables({"UCXSTORE_B": "1", "UCXSTORE_A": "1", "UCXSTORE": "1"}, OPTIONS)


def test_an_empty_one_asks_for_nothing() -> None:
    check_variables({"UCXSTORE_SERVE_CASHE": "", "UCXSTORE_LOCL": ""}, OPTIONS)


def test_those_of_the_servers_command_concern_it_alone() -> None:
    check_variables({"UCXSTORE_SERVE_CASHE": "1"})
    with pytest.raises(ValueError, match="UCXSTORE_LOCL"):
        check_variables({"UCXSTORE_LOCL": "ucx"})


@pytest.mark.parametrize("service", ["UCXSTORE", "UCXSTORE_CACHE_1", "UCXSTORE_SERVE"])
def test_those_of_kubernetes_are_left_alone(service: str) -> None:
    """As the documentation of Kubernetes has them, of a service with a named port."""
    made = {
        f"{service}_SERVICE_HOST": "10.0.0.11",
        f"{service}_SERVICE_PORT": "7400",
        f"{service}_SERVICE_PORT_CONTROL": "7400",
        f"{service}_PORT": "tcp://10.0.0.11:7400",
        f"{service}_PORT_7400_TCP": "tcp://10.0.0.11:7400",
        f"{service}_PORT_7400_TCP_PROTO": "tcp",
        f"{service}_PORT_7400_TCP_PORT": "7400",
        f"{service}_PORT_7400_TCP_ADDR": "10.0.0.11",
    }
    check_variables(made, OPTIONS)
    if service != "UCXSTORE":  # whose port the script for Slurm knows
        del made[f"{service}_SERVICE_HOST"]
        with pytest.raises(ValueError, match=f"{service}_PORT"):
            check_variables(made, OPTIONS)


def test_a_server_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreground, "serve_command", lambda *_, **__: None)
    monkeypatch.setenv("UCXSTORE_SERVE_ENCRYPTED", "1")
    done = run("serve", "memory://")
    assert done.returncode == 2
    assert done.stderr == (
        "ucxstore serve: UCXSTORE_SERVE_ENCRYPTED: there is no such variable; did you mean "
        "UCXSTORE_SERVE_ENCRYPT?\n"
    )
    monkeypatch.setenv("UCXSTORE_SERVE_ENCRYPTED", "")
    assert run("serve", "memory://").returncode == 0


def test_a_client_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UCXSTORE_LOCL", "off")
    meant = "UCXSTORE_LOCL: there is no such variable; did you mean UCXSTORE_LOCAL?"
    with pytest.raises(ValueError, match=meant.replace("?", r"\?")):
        UcxStore("ucx://127.0.0.1:1")
    with pytest.raises(ValueError, match="UCXSTORE_LOCL"):
        Server("memory://")
    done = run("ls", "ucx://127.0.0.1:1")
    assert (done.returncode, done.stderr) == (2, f"ucxstore ls: {meant}\n")


def test_an_import_is_not_the_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """zarr imports the package in processes that do not use it."""
    monkeypatch.setenv("UCXSTORE_LOCL", "off")
    code = """
import ucxstore, zarr
from ucxstore import ZeroCopyCodecPipeline, UcxStore
assert (zarr.create_array({}, shape=4, chunks=2, dtype="i4", fill_value=7)[:] == 7).all()
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=240)
