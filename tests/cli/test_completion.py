"""``ucxstore completion``: what bash completes with its script; the syntax of the others."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.command import run

type Complete = Callable[..., list[str]]


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> Complete:
    """Return a function that completes a line, as bash does once Tab is pressed."""
    folder = tmp_path_factory.mktemp("completion")
    done = run("completion", "bash")
    assert (done.returncode, done.stderr) == (0, "")
    (folder / "ucxstore").write_text(done.stdout)
    (folder / "secret.txt").touch()
    (folder / "data").mkdir()

    def complete(*words: str) -> list[str]:
        code = (
            "source ./ucxstore\n"
            "function=$(complete -p ucxstore | sed 's/.*-F \\([^ ]*\\).*/\\1/')\n"
            'COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()\n'
            '$function ucxstore "${!#}" "${COMP_WORDS[COMP_CWORD-1]}" 2>/dev/null\n'
            'printf "%s\\n" "${COMPREPLY[@]}"'
        )
        found = subprocess.run(
            ["bash", "-c", code, "bash", "ucxstore", *words],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        assert found.stderr == ""
        return sorted(found.stdout.split())

    return complete


def test_commands(complete: Complete) -> None:
    assert complete("s") == ["secret", "serve", "sessions", "stats"]
    assert {"ls", "du", "cat", "rm", "cp", "info", "ping", "completion"} <= set(complete(""))


def test_options(complete: Complete) -> None:
    assert complete("ls", "--h") == ["--help", "--human"]
    assert complete("rm", "--") == [
        "--dry-run",
        "--force",
        "--help",
        "--recursive",
        "--secret-file",
        "--timeout",
        "--ucx",
    ]


def test_choices(complete: Complete) -> None:
    assert complete("completion", "") == ["bash", "fish", "zsh"]
    assert complete("serve", "data", "--progress", "p") == ["polling"]


def test_files(complete: Complete) -> None:
    assert complete("ls", "--secret-file", "sec") == ["secret.txt"]
    assert complete("cp", "da") == ["data"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_can_be_read(shell: str, tmp_path: Path) -> None:
    done = run("completion", shell)
    assert done.returncode == 0
    for word in ("ucxstore", "--secret-file", "dry-run", "polling", "list the keys of a server"):
        assert word.removeprefix("--") in done.stdout or (shell, word[:4]) == ("bash", "list")
    if shutil.which(shell) is not None:
        (tmp_path / "script").write_text(done.stdout)
        subprocess.run([shell, "-n", str(tmp_path / "script")], timeout=60, check=True)


def test_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    done = run("completion", "bash")
    assert (done.returncode, done.stdout) == (1, "")
    [line] = done.stderr.splitlines()
    assert line.endswith('pip install "ucxstore[tools]"')
