import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "find-python"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A PATH of its own, with the tools that the script needs and no Python."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in ("grep", "head", "ls", "sort"):
        found = shutil.which(tool)
        assert found is not None
        (folder / tool).symlink_to(found)
    return folder


@pytest.fixture
def versions(tmp_path: Path) -> Path:
    folder = tmp_path / "home" / ".pyenv" / "versions"
    folder.mkdir(parents=True)
    return folder


def find(path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    home = str(path.parent / "home")
    return subprocess.run(
        [SCRIPT],
        env={"PATH": str(path), "HOME": home} | environment,
        capture_output=True,
        text=True,
        timeout=240,
    )


def python(file: Path, *, refusal: str = "") -> str:
    """Make a stand-in for a Python that passes the script's probe, or refuses it so."""
    file.parent.mkdir(parents=True, exist_ok=True)
    body = f"echo '{refusal}' >&2; exit 1" if refusal else 'echo "$0"'
    file.write_text(f"#!/bin/sh\n{body}\n")
    file.chmod(0o755)
    return str(file)


def test_probe_accepts_a_real_python(path: Path) -> None:
    base = Path(sys.base_prefix, "bin", f"python3.{sys.version_info.minor}")
    process = find(path, PYTHON=str(base))
    assert (process.returncode, process.stderr) == (0, "")
    assert os.path.samefile(process.stdout.strip(), base)  # noqa: PTH121 - a name, not a Path


def test_a_failing_shim_is_passed_over(path: Path) -> None:
    python(path / "python3.14", refusal="pyenv: python3.14: command not found")
    python(path / "python3.13", refusal="lacks Python.h")
    expected = python(path / "python3.12")
    python(path / "python3")
    assert find(path).stdout.strip() == expected


def test_path_goes_before_pyenv(path: Path, versions: Path) -> None:
    expected = python(path / "python3")
    python(versions / "3.13.0/bin/python3")
    assert find(path).stdout.strip() == expected


def test_the_newest_of_pyenv(path: Path, versions: Path) -> None:
    python(path / "python3", refusal="is Python 3.11")
    for version in ("2.7.18", "3.9.18", "3.11.7", "3.12.9", "3.12.10", "3.13.0t", "3.14-dev"):
        python(versions / version / "bin/python3")
    python(versions / "3.13.1/bin/python3", refusal="lacks ensurepip")
    assert find(path).stdout.strip() == str(versions / "3.12.10/bin/python3")


def test_pyenv_elsewhere(path: Path, tmp_path: Path) -> None:
    expected = python(tmp_path / "elsewhere/versions/3.12.1/bin/python3")
    assert find(path, PYENV_ROOT=str(tmp_path / "elsewhere")).stdout.strip() == expected


def test_none_is_found(path: Path) -> None:
    shim = python(path / "python3.12", refusal="pyenv: python3.12: command not found")
    process = find(path)
    assert process.returncode == 1
    assert process.stdout == ""
    assert "No usable Python 3.12 or later" in process.stderr
    assert f"{Path(shim).name}: pyenv: python3.12: command not found" in process.stderr
    assert "make PYTHON=" in process.stderr


@pytest.mark.parametrize("refusal", ["is Python 3.9", ""])
def test_the_named_one_is_the_only_candidate(path: Path, refusal: str) -> None:
    python(path / "python3")
    named = path / "named"
    if refusal:
        python(named, refusal=refusal)
    process = find(path, PYTHON=str(named))
    assert process.returncode == 1
    assert process.stdout == ""
    assert (refusal or "no such command") in process.stderr
