import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ucxstore import cli
from ucxstore.base.ucx_library import load

COMMAND = [sys.executable, "-m", "ucxstore"]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, timeout=240, check=False
    )


def test_version_tells_ours_and_ucxs(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    ours, ucx = capsys.readouterr().out.splitlines()
    assert ours.startswith("ucxstore ")
    library = load()
    assert ucx == f"UCX {library.version} ({library.origin}: {library.path})"


def test_no_command_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    assert "serve" in capsys.readouterr().out


def test_ctrl_c_in_the_middle_of_an_import(tmp_path: Path) -> None:
    """Imports run texts to make dataclasses. Python itself would end by SIGINT after that."""
    (tmp_path / "sitecustomize.py").write_text(
        "from ucxstore import cli\n"
        "def main():\n"
        "    try:\n"
        "        exec('raise KeyboardInterrupt')\n"
        "    except KeyboardInterrupt:\n"
        "        return 130\n"
        "cli.main = main\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    assert subprocess.run(COMMAND, env=environment, timeout=240, check=False).returncode == 130


@pytest.mark.parametrize("arguments", [["--help"], ["serve", "--help"]])
def test_help(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert caught.value.code == 0
    assert "usage: ucxstore" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["dance"], "dance"),
        (["--dance"], "--dance"),
        (["serve"], "LOCATION"),
        (["serve", "memory://", "--dance"], "--dance"),
        (["serve", "memory://", "--threads", "many"], "many"),
        (["serve", "memory://", "--threads", "0"], "threads: 0"),
        (["serve", "memory://", "--bind", "127.0.0.1"], "bind: '127.0.0.1' names no port"),
        (["serve", "memory://", "--bind", "0.0.0.0:0"], "no secret"),
        (["serve", "memory://", "--progress", "busy"], "busy"),
        (["serve", "memory://", "--ucx", "TLS"], "NAME=VALUE"),
        (["serve", "memory://", "--ucx", "A=1", "--ucx", "A=2"], "given twice"),
        (["serve", "memory://", "--ucx", "=tcp"], "not the name of a UCX option"),
        (["serve", "memory://", "--storage-options", "A"], "--storage-options takes NAME=VALUE"),
        (["serve", "memory://", "--cache", "1MB"], "cache: only an object store"),
        (["serve", "memory://", "--secret-file", "/no/such/file"], "/no/such/file"),
        (["serve", "memory://", "--secret-file", "/dev/null"], "'/dev/null' is empty"),
        (["serve", "ftp://host"], "ftp://host"),
        (["serve", "memory://", "--shared"], "shared: "),
    ],
)
def test_a_bad_option_gives_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        status: object = cli.main(arguments)
    except SystemExit as end:  # of the parser
        status = end.code
    assert status == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("ucxstore")
    assert message in line


def test_what_fails_at_run_time_gives_one_line() -> None:
    done = run("serve", "/dev/null/data")
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert line.startswith("ucxstore serve: ")
    assert "/dev/null/data" in line


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("progress", ["blocking", "polling"])
def test_serve_until_a_signal(number: signal.Signals, progress: str, tmp_path: Path) -> None:
    location = tmp_path / "data"
    location.mkdir()
    secret = tmp_path / "secret"
    secret.write_text("correct horse battery staple\n")
    secret.chmod(0o600)
    command = [
        *COMMAND,
        "serve",
        str(location),
        "--secret-file",
        str(secret),
        "--progress",
        progress,
    ]
    command += [
        "--no-banner",
        "--read-only",
        "--threads",
        "2",
        "--ucx",
        "TLS=tcp",
        "--ucx=UCX_LOG_LEVEL=error",
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith(f"serving {location} at ucx://127.0.0.1:")
        process.send_signal(number)
        out, err = process.communicate(timeout=240)
    assert (process.returncode, out, err) == (0, "", "")


def test_serve_takes_all_the_descriptors_it_may() -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (100, 4000))

    with subprocess.Popen(
        [*COMMAND, "serve", "memory://"], stdout=subprocess.PIPE, text=True, preexec_fn=limit
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert resource.prlimit(process.pid, resource.RLIMIT_NOFILE) == (4000, 4000)
        process.terminate()


def test_demo_gets_its_own_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []

    class Demo:
        @staticmethod
        def main(arguments: list[str]) -> int:
            seen.append(arguments)
            return 7

    monkeypatch.setitem(sys.modules, "ucxstore.cli.demo", Demo)
    assert cli.main(["demo", "--help", "--size", "3"]) == 7
    assert seen == [["--help", "--size", "3"]]
