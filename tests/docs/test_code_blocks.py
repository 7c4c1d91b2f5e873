"""Every block of code in the documentation does what it says, and does it a second time."""

import argparse
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr
from functools import cache
from io import StringIO
from pathlib import Path

import pytest

from tests.docs.blocks import (
    LANGUAGES,
    ROOT,
    blocks_of,
    of_page,
    ours_of,
    pages,
    syntax_error,
)
from ucxstore.cli import main

PAGES = pages()
_READERS = 2  # in full runs, which start the servers of a page anew over what the first has left
_SECONDS = 280  # less than a test may take, so that what the page has printed is shown


def read(page: Path, folder: Path, environment: dict[str, str]) -> str:
    """Do what a page says in a folder; return what went wrong."""
    command = [sys.executable, "-m", "tests.docs.reader", str(page)]
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    return done.stdout if done.returncode else ""


@cache
def why_no_network() -> str:
    """Return why this user gets no network namespace, as in many containers; "" where it does."""
    leave = "from tests.docs.reader import leave_network; leave_network()"
    command = [sys.executable, "-c", leave]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stderr[-200:]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Return a new user's environment, in which ``ucxstore`` is on PATH."""
    if reason := why_no_network():
        pytest.skip(f"no network namespace for a page: {reason}")
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, command in {"python": "", "ucxstore": " -m ucxstore"}.items():
        (commands / name).write_text(f'#!/bin/sh\nexec "{sys.executable}"{command} "$@"\n')
        (commands / name).chmod(0o755)
    (tmp_path / "home").mkdir()
    ours = {name: value for name, value in os.environ.items() if not name.startswith("UCXSTORE_")}
    return ours | {
        "HOME": str(tmp_path / "home"),
        "PATH": f"{commands}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [ours.get("PYTHONPATH")])]),
    }


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if any(block.runs for block in blocks_of(page.read_text()))],
    ids=of_page,
)
def test_a_page_runs(page: Path, environment: dict[str, str], tmp_path: Path, full: bool) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    for number in range(_READERS if full else 1):
        wrong = read(page, folder, environment)
        assert not wrong, f"reader {number + 1} of {of_page(page)}:\n{wrong}"


@pytest.mark.parametrize("page", PAGES, ids=of_page)
def test_blocks_have_a_language_and_its_syntax(page: Path) -> None:
    wrong = []
    for block in blocks_of(page.read_text()):
        if block.language not in LANGUAGES:
            wrong.append(f"line {block.line}: no known language: {block.language!r}")
        elif (error := syntax_error(block)) is not None:
            wrong.append(f"line {block.line}: {error}")
    assert wrong == []


@pytest.mark.parametrize("page", PAGES, ids=of_page)
def test_commands_of_ours_are_understood(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_and_stop)
    wrong = []
    for block in blocks_of(page.read_text()):
        if block.language == "bash":
            for arguments in ours_of(block.text):
                error = refusal(arguments)
                if error is not None:
                    wrong.append(f"line {block.line}: ucxstore {' '.join(arguments)}: {error}")
    assert wrong == []


def test_saved_files_are_used() -> None:
    unused = []
    for page in PAGES:
        blocks = blocks_of(page.read_text())
        for number, block in enumerate(blocks):
            later = "".join(other.text for other in blocks[number + 1 :])
            # pytest finds its conftest.py without being told.
            if block.file not in (None, "conftest.py") and block.file not in later:
                unused.append(f"{of_page(page)}: {block.file}")
    assert unused == []


# ---- commands, parsed and not run ----


class Parsed(BaseException):
    """The arguments were understood."""


_parse_args = argparse.ArgumentParser.parse_args


def parse_and_stop(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> None:
    _parse_args(parser, arguments)
    raise Parsed


def refusal(arguments: Sequence[str]) -> str | None:
    """Return what the command line says against these arguments."""
    message = StringIO()
    try:
        with redirect_stderr(message):
            main(arguments)
    except Parsed:
        return None
    except SystemExit as end:
        return message.getvalue() if end.code else None
    return None


# ---- that these tests can fail ----


def page_of(folder: Path, text: str) -> Path:
    page = folder / "page.md"
    page.write_text(text)
    return page


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("```python\na = 1\n```\n\n```python\nassert a == 2\n```\n", "AssertionError"),
        ("```sh\nfalse\n```\n", "non-zero exit status"),
        ('```sh title="server"\nexit 3\n```\n', "ended with status 3"),
        ("```sh\nmkdir -p data\n```\n", ""),
        (
            "```sh\nexport A=b\n```\n\n```python\nimport os\nassert os.environ['A'] == 'b'\n```\n",
            "",
        ),
        ('```python title="a.py"\nprint(5)\n```\n\n```sh\npython a.py | grep 5\n```\n', ""),
        ("```python\nimport asyncio\nawait asyncio.sleep(0)\n```\n", ""),
        ("```python\na = 1\n```\n\n## Next\n\n```python\nprint(a)\n```\n", "NameError"),
        (
            "```python\na = 1\n```\n\n## Next\n\n"
            '```python title="in the same Python"\nprint(a)\n```\n\n```python\nprint(a)\n```\n',
            "",
        ),
        (
            "```python\nprint({'direct': 16})\n```\n\n```text title=\"output\"\ndirect 16\n```\n",
            "not printed: ['direct 16']",
        ),
        (
            "```sh\nprintf 'a   12.5 MB\\nb\\nc 1'\n```\n\n"
            '```text title="output"\na 7 MB\n...\nc   2\n```\n',
            "",
        ),
        ('```sh\nprintf "b\\na\\n"\n```\n\n```text title="output"\na\nb\n```\n', "['b']"),
    ],
)
def test_a_wrong_block_is_noticed(
    text: str, message: str, environment: dict[str, str], tmp_path: Path
) -> None:
    wrong = read(page_of(tmp_path, text), tmp_path, environment)
    assert message in wrong
    assert bool(message) == bool(wrong)


def test_a_block_that_runs_only_once_is_noticed(
    environment: dict[str, str], tmp_path: Path
) -> None:
    page = page_of(tmp_path, "```sh\nmkdir data\n```\n")
    assert "=== pass 2 of page.md" in read(page, tmp_path, environment)


def test_a_server_serves_both_times(environment: dict[str, str], tmp_path: Path) -> None:
    """So what a first reader has stored there is in a second one's way."""
    page = page_of(
        tmp_path,
        '```sh title="server"\necho started >> log\npython -m http.server --bind 127.0.0.1 7499\n'
        '```\n\n```sh\n[ "$(cat log)" = started ]\n```\n',
    )
    assert read(page, tmp_path, environment) == ""


@pytest.fixture
def port_in_use() -> Iterator[int]:
    """Listen at a port of this machine."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


def test_a_server_listens_while_its_page_is_read(
    environment: dict[str, str], tmp_path: Path, port_in_use: int
) -> None:
    page = page_of(
        tmp_path,
        f'```sh title="server"\npython -m http.server --bind 127.0.0.1 {port_in_use}\n```\n\n'
        "```python\nimport urllib.request\n"
        f'urllib.request.urlopen("http://127.0.0.1:{port_in_use}").read()\n```\n',
    )
    assert [read(page, tmp_path, environment) for _ in range(_READERS)] == ["", ""]


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("toml", "a ="),
        ("yaml", "a: [b"),
        ("json", "{'a': 1}"),
        ("ini", "a = b"),
        ("bash", "echo 'a"),
        ("bash", "$ echo a"),
    ],
)
def test_wrong_syntax_is_noticed(language: str, text: str) -> None:
    (block,) = blocks_of(f"```{language}\n{text}\n```\n")
    assert syntax_error(block) is not None


def test_an_indented_block_has_no_language() -> None:
    (block,) = blocks_of("Text.\n\n    a = b\n")
    assert block.language not in LANGUAGES


def test_commands_are_found() -> None:
    commands = (
        "srun ucxstore serve a/ \\\n    --threads 2 | tee log\nA=b ucxstore ls x && ucxstore du y"
    )
    found = [list(ours) for ours in ours_of(commands)]
    assert found == [["serve", "a/", "--threads", "2"], ["ls", "x"], ["du", "y"]]


def test_a_wrong_option_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_and_stop)
    assert refusal(["serve", "data/", "--threads", "2"]) is None
    assert refusal(["--version"]) is None
    assert "--treads" in str(refusal(["serve", "data/", "--treads", "2"]))
    assert refusal(["sevre", "data/"]) is not None
