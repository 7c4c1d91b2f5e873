import subprocess
import sys
from pathlib import Path

import pytest
from zarr.core.buffer import cpu

from tests.cli.command import COMMAND, run, run_process
from ucxstore import UcxStore
from ucxstore.server import Server

SIZES = {"zarr.json": 3, "a/zarr.json": 4, "a/c/0": 50, "a/c/1": 1000, "b/c/0": 1}


@pytest.fixture
def filled(ucx_store: UcxStore, address: str) -> str:
    for key, size in SIZES.items():
        ucx_store.set_sync(key, cpu.Buffer.from_bytes(bytes(size)))
    return address


def test_ls(filled: str) -> None:
    done = run("ls", filled)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.splitlines()) == ["a/", "b/", "zarr.json"]


def test_ls_with_sizes(filled: str) -> None:
    lines = run("ls", "-l", f"{filled}/a").stdout.splitlines()
    assert sorted(line.split() for line in lines) == [["4", "zarr.json"], ["c/"]]


@pytest.mark.parametrize("arguments", [["-R"], ["-R", "-l"], ["-lR"]])
def test_ls_recursive(filled: str, arguments: list[str]) -> None:
    lines = run("ls", *arguments, filled).stdout.splitlines()
    if arguments == ["-R"]:
        assert sorted(lines) == sorted(SIZES)
    else:
        assert {line.split()[1]: int(line.split()[0]) for line in lines} == SIZES


def test_ls_of_a_key(filled: str) -> None:
    assert run("ls", f"{filled}/a/c/1").stdout == "1\n"
    assert run("ls", "-l", f"{filled}/a/c/1").stdout.split() == ["1000", "1"]


def test_ls_of_many_pages(ucx_store: UcxStore, address: str) -> None:
    pairs = [(f"c/{number:05}", cpu.Buffer.from_bytes(b"x")) for number in range(2500)]
    for key, value in pairs:
        ucx_store.set_sync(key, value)
    lines = run("ls", "-l", f"{address}/c").stdout.splitlines()
    assert [line.split() for line in sorted(lines)] == [
        ["1", f"{number:05}"] for number in range(2500)
    ]


def test_du(filled: str) -> None:
    assert run("du", filled).stdout == f"1058\t5\t{filled}\n"
    assert run("du", "--human", f"{filled}/a/").stdout == f"1.1 kB\t3\t{filled}/a\n"
    assert run("du", f"{filled}/a/c/1").stdout == f"1000\t1\t{filled}/a/c/1\n"


@pytest.mark.parametrize("command", ["ls", "du"])
def test_nothing_there(command: str, filled: str) -> None:
    done = run(command, f"{filled}/nothing")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == f"ucxstore {command}: {filled}/nothing: no values found\n"


@pytest.mark.parametrize("command", ["ls", "du"])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["data/"], "data/"),
        (["ucx://127.0.0.1"], "names no port"),
        (["ucx://127.0.0.1:1", "--timeout", "0"], "timeout"),
        (["ucx://127.0.0.1:1", "--ucx", "TLS"], "NAME=VALUE"),
        (["ucx://127.0.0.1:1", "--secret-file", "/no/such/file"], "/no/such/file"),
    ],
)
def test_a_bad_option_gives_one_line(command: str, arguments: list[str], message: str) -> None:
    done = run(command, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert line.startswith(f"ucxstore {command}: ")
    assert message in line


def test_nobody_there() -> None:
    done = run("ls", "ucx://127.0.0.1:1", "--timeout", "0.2")  # too little to wait for it
    assert done.returncode == 5
    [line] = done.stderr.splitlines()
    assert "127.0.0.1:1" in line


def test_a_secret(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("correct horse battery staple")
    file.chmod(0o600)
    with Server("memory://", secret="correct horse battery staple") as server:
        UcxStore(server.address, secret="correct horse battery staple").set_sync(
            "a", cpu.Buffer.from_bytes(b"x")
        )
        assert "secret" in run("ls", server.address).stderr
        assert run("ls", server.address, "--secret-file", file).stdout == "a\n"
        assert (
            run_process("ls", server.address, env={"UCXSTORE_SECRET_FILE": str(file)}).stdout
            == "a\n"
        )


def test_a_key_cannot_write_to_the_terminal(ucx_store: UcxStore, address: str) -> None:
    ucx_store.set_sync("a\x1b[2J\nb", cpu.Buffer.from_bytes(b"x"))
    assert run("ls", address).stdout == "a\\x1b[2J\\nb\n"


def test_a_reader_that_has_seen_enough(ucx_store: UcxStore, address: str) -> None:
    for number in range(3000):
        ucx_store.set_sync(f"{number:0100}", cpu.Buffer.from_bytes(b"x"))
    with subprocess.Popen(
        [*COMMAND, "ls", address], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(60) == 141
        assert process.stderr.read() == ""


def test_the_tools_import_no_extra() -> None:
    code = (
        "import sys; sys.modules.update(dict.fromkeys(['obstore', 'rich', 'prometheus_client']));"
        "from ucxstore.cli import main; sys.exit(main([]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "")
