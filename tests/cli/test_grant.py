from pathlib import Path

import pytest

from tests.cli.command import run
from ucxstore.base import grants
from ucxstore.base.grants import Bounds, Role
from ucxstore.base.secret import ENVIRONMENT_FILE, ENVIRONMENT_SECRET, Secret

pytestmark = pytest.mark.usefixtures("no_secret_around")

TEXT = "correct horse battery staple"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "secret"
    file.write_text(f"{TEXT}\n")
    file.chmod(0o600)
    return file


def bounds(text: str | bytes) -> Bounds:
    return grants.bounds_of(grants.credentials_of(Secret(text).reveal()).caveats)


def test_it_prints_the_grant(secret: Path) -> None:
    done = run("grant", "--secret-file", secret, "run-17/", "--read-only")
    assert done.returncode == 0
    assert Secret(done.stdout) == Secret(TEXT).grant("run-17/", read_only=True)
    assert done.stderr == "opens 'run-17/', read-only\n"
    assert TEXT not in done.stdout + done.stderr


def test_it_writes_a_file_that_nobody_else_reads(secret: Path, tmp_path: Path) -> None:
    file = tmp_path / "grant"
    done = run("grant", "run-17", "--expires", "8h", "--secret-file", secret, "-o", file)
    assert (done.returncode, done.stdout) == (0, "")
    assert file.stat().st_mode & 0o777 == 0o600
    assert bounds(file.read_bytes()).prefix == "run-17/"
    assert bounds(file.read_bytes()).expires is not None
    done = run("grant", "run-18", "--secret-file", secret, "-o", file)
    assert done.returncode == 1
    assert done.stderr == f"ucxstore grant: --output: File exists: {file}\n"
    assert bounds(file.read_bytes()).prefix == "run-17/"


def test_an_operators_grant(secret: Path) -> None:
    done = run("grant", "--operator", "--secret-file", secret)
    assert done.returncode == 0
    assert done.stderr == "opens requests of operators\n"
    assert bounds(done.stdout) == Bounds(role=Role.OPERATOR)
    done = run("grant", "--operator", "--expires", "8h", "--secret-file", secret)
    assert done.stderr.startswith("opens requests of operators, until ")


def test_it_narrows_a_grant(secret: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "grant"
    run("grant", "run-17", "--secret-file", secret, "-o", file)
    monkeypatch.setenv(ENVIRONMENT_FILE, str(file))
    done = run("grant", "a", "--read-only")
    assert bounds(done.stdout) == Bounds("run-17/a/", True)
    monkeypatch.setenv(ENVIRONMENT_SECRET, done.stdout)
    assert bounds(run("grant", "--all", "--expires", "1h").stdout).prefix == "run-17/a/"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run-17/"], "no secret"),
        (["run-17/", "--secret-file", "/nowhere"], "/nowhere"),
        (["..", "--secret-file", "SECRET"], "prefix: '..'"),
        (["", "--secret-file", "SECRET"], "prefix: ''"),
        (["a", "--expires", "soon", "--secret-file", "SECRET"], "expires: 'soon' is not a time"),
        (["--all", "--secret-file", "SECRET"], "it opens all"),
        (["--operator", "--read-only", "--secret-file", "SECRET"], "opens no values"),
        (["a", "--operator", "--secret-file", "SECRET"], "not allowed with"),
        (["--secret-file", "SECRET"], "one of the arguments"),
        (["a", "--all", "--secret-file", "SECRET"], "not allowed with"),
    ],
)
def test_what_cannot_be_granted(arguments: list[str], message: str, secret: Path) -> None:
    done = run("grant", *(str(secret) if one == "SECRET" else one for one in arguments))
    assert done.returncode == 2, done
    assert done.stdout == ""
    assert message in done.stderr
