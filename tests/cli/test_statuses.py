"""The exit statuses of docs/reference/cli.md, for each command that talks to a server, and it."""

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from zarr.core.buffer import cpu

from tests.cli.command import COMMAND, run
from tests.eventually import eventually
from tests.stopping import stop
from ucxstore import UcxStore
from ucxstore.base import errors
from ucxstore.cli.common import command as shared
from ucxstore.cli.common.status import CommandError, MissingError, Status, UsageError, status_of
from ucxstore.server import Server

# What each command is given, where "{}" is the address of a server.
CLIENTS = {
    "ls": ["{}"],
    "du": ["{}"],
    "cat": ["{}/k"],
    "rm": ["{}/k"],
    "cp": ["{}", "{}/copy"],
    "info": ["{}"],
    "ping": ["{}"],
    "stats": ["{}"],
    "cluster": ["{}"],
    "doctor": ["{}"],
}
# `cp` ends its process, and `cluster` and `doctor` report what they find as problems.
ALONE = [name for name in CLIENTS if name not in {"cp", "cluster", "doctor"}]


def call(name: str, address: str, *options: object) -> subprocess.CompletedProcess[str]:
    return run(name, *(each.format(address) for each in CLIENTS[name]), *options)


def one_line(done: subprocess.CompletedProcess[str], name: str) -> str:
    [line] = done.stderr.splitlines()
    assert line.startswith(f"ucxstore {name}: ")
    return line


@pytest.mark.parametrize("name", [*ALONE, "cluster", "doctor"])
def test_wrong_usage(name: str) -> None:
    for arguments in (["--nonsense"], []):
        if not arguments and name == "doctor":
            continue
        done = run(name, *arguments)
        assert done.returncode == Status.USAGE
        assert one_line(done, name).endswith(f"see 'ucxstore {name} --help'")
    done = call(name, "data/")
    assert done.returncode == Status.USAGE
    assert "invalid address" in one_line(done, name)


@pytest.mark.parametrize("name", ["ls", "du", "cat", "rm", "info"])
def test_not_found(name: str, address: str) -> None:
    done = call(name, f"{address}/nothing")
    assert (done.returncode, done.stdout) == (Status.NOT_FOUND, "")
    assert "/nothing" in one_line(done, name)


@pytest.mark.parametrize("name", ALONE)
def test_nobody_listens(name: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    done = call(name, f"ucx://127.0.0.1:{port}", "--timeout", "1")
    assert done.returncode == Status.NO_ANSWER
    waits, fails = done.stderr.splitlines()
    assert waits.startswith(f"ucxstore {name}: ")
    assert "does not answer: Connection refused; trying again for up to " in waits
    assert fails.startswith(f"ucxstore {name}: ")
    assert fails.endswith("does not answer: Connection refused")


def test_a_command_waits_for_its_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        place = "{}:{}".format(*listener.getsockname())
    with subprocess.Popen(
        [*COMMAND, "du", f"ucx://{place}", "--timeout", "60"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        assert "Connection refused; trying again for up to 60 s" in process.stderr.readline()
        with Server("memory://", place):
            out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (Status.DONE, "")
    assert out


@pytest.fixture(scope="module")
def mute() -> Iterator[str]:
    """Yield the address of a port where connections are accepted, as of a stopped server."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"ucx://127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.parametrize("name", ALONE)
def test_a_peer_that_says_nothing(name: str, mute: str) -> None:
    done = call(name, mute, "--timeout", "0.2")
    assert done.returncode == Status.NO_ANSWER
    assert "does not answer: it sent nothing within 0.2 s" in one_line(done, name)


def test_a_stopped_server() -> None:
    with Server.spawn("memory://") as server:
        stop(server.pid)
        try:
            done = run("ls", server.address, "--timeout", "0.5")
        finally:
            os.kill(server.pid, signal.SIGCONT)
    assert done.returncode == Status.NO_ANSWER
    assert "does not answer" in one_line(done, "ls")
    assert "is not a ucxstore server" not in done.stderr


def _state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_another_program() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"ucx://127.0.0.1:{listener.getsockname()[1]}"
        with subprocess.Popen(
            [*COMMAND, "ls", address], stderr=subprocess.PIPE, text=True
        ) as process:
            peer, _ = listener.accept()
            with peer:
                peer.sendall(b"220 mail.example.org ESMTP\r\n")
                assert process.stderr is not None
                assert "is not a ucxstore server: it answered" in process.stderr.read()
            assert process.wait(60) == Status.FAILED


@pytest.mark.parametrize("name", ALONE)
def test_refused(name: str, guarded: Server) -> None:
    done = call(name, guarded.address)
    assert done.returncode == Status.REFUSED
    assert "secret" in one_line(done, name)


def test_a_read_only_server(tmp_path: Path) -> None:
    (tmp_path / "k").write_bytes(b"value")
    with Server(str(tmp_path), read_only=True) as server:
        done = run("rm", f"{server.address}/k")
    assert done.returncode == Status.REFUSED
    assert "read-only" in one_line(done, "rm")


def test_serve_of_what_is_not_there(tmp_path: Path) -> None:
    done = run("serve", tmp_path / "data")
    assert done.returncode == Status.NOT_FOUND
    assert "there is no such directory" in one_line(done, "serve")
    done = run("serve", "memory://", "--log-file", tmp_path / "logs/serve.log")
    assert done.returncode == Status.NOT_FOUND
    assert one_line(done, "serve").endswith(
        f"log_file: No such file or directory: {tmp_path}/logs/serve.log"
    )


@pytest.mark.parametrize("listens", [True, False])
def test_serve_of_an_object_store_that_does_not_answer(*, listens: bool) -> None:
    with ExitStack() as stack:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            if listens:
                stack.enter_context(listener.dup())
        endpoint = f"endpoint=http://127.0.0.1:{port}"
        options = ["region=r", "skip_signature=true", endpoint]
        words = [f"--storage-options={each}" for each in options]
        done = run("serve", "s3://bucket", "--source-timeout", "0.5", *words)
    assert done.returncode == Status.NO_ANSWER
    assert "storage: s3://bucket: " in one_line(done, "serve")


def test_serve_of_what_cannot_be_served() -> None:
    for arguments in (["--nonsense"], [], ["ftp://host/"], ["memory://", "--threads", "0"]):
        done = run("serve", *arguments)
        assert done.returncode == Status.USAGE
        one_line(done, "serve")


def test_serve_whose_reader_has_gone(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as closed:
        done = subprocess.run(
            [*COMMAND, "serve", "--show-config"],
            stdout=closed,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stderr) == (Status.NO_READER, b"")
        with subprocess.Popen(
            [*COMMAND, "serve", "memory://", "--pid-file", tmp_path / "pid"],
            stdout=closed,
            stderr=subprocess.PIPE,
        ) as server:
            eventually((tmp_path / "pid").exists)
            server.terminate()
            _, err = server.communicate(timeout=60)
            assert (server.returncode, err) == (Status.DONE, b"")


@pytest.mark.parametrize("name", ["ls", "ping"])
def test_interrupted(name: str, mute: str) -> None:
    with subprocess.Popen(
        [*COMMAND, name, mute], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        eventually(lambda: _waits_for_a_socket(process.pid))
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)  # less than a connection may take
    assert process.returncode == Status.INTERRUPTED
    assert err == f"ucxstore {name}: interrupted\n"


def _waits_for_a_socket(pid: int) -> bool:
    """Tell whether a process has a TCP connection that is established."""
    links = {
        str(file.readlink()) for file in Path(f"/proc/{pid}/fd").iterdir() if file.is_symlink()
    }
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(f"socket:[{row[9]}]" in links and row[3] == "01" for row in rows)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (UsageError("x"), Status.USAGE),
        (CommandError("x"), Status.FAILED),
        (MissingError("x"), Status.NOT_FOUND),
        (FileNotFoundError("x"), Status.NOT_FOUND),
        (FileExistsError("x"), Status.FAILED),
        (PermissionError("x"), Status.REFUSED),
        (errors.AuthenticationError("x"), Status.REFUSED),
        (errors.GrantError("x"), Status.REFUSED),
        (errors.ReadOnlyServerError("x"), Status.REFUSED),
        (errors.ConnectError("x"), Status.NO_ANSWER),
        (errors.ServerLostError("x"), Status.NO_ANSWER),
        (errors.RequestTimeoutError("x"), Status.NO_ANSWER),
        (errors.ChangeLostError("x"), Status.NO_ANSWER),
        (TimeoutError("x"), Status.NO_ANSWER),
        (ConnectionRefusedError("x"), Status.NO_ANSWER),
        (errors.NotAServerError("x"), Status.FAILED),
        (errors.ProtocolVersionError("x"), Status.FAILED),
        (errors.ClusterError("x"), Status.FAILED),
        (errors.ServerRestartedError("x"), Status.FAILED),
        (errors.StorageError("x"), Status.FAILED),
    ],
    ids=repr,
)
def test_what_each_failure_stands_for(error: Exception, status: Status) -> None:
    assert status_of(error) == status

    def fails() -> int:
        raise error

    assert shared.run("x", fails) == status


def test_a_fault_of_our_own_is_not_hidden() -> None:
    def fails() -> int:
        raise AssertionError("a fault")

    with pytest.raises(AssertionError, match="a fault"):
        shared.run("x", fails)


@pytest.mark.parametrize("arguments", [["cat"], ["ls", "-R"]])
def test_a_reader_that_has_gone(arguments: list[str], ucx_store: UcxStore, address: str) -> None:
    for number in range(2000):
        ucx_store.set_sync(f"{number:0100}", cpu.Buffer.from_bytes(bytes(100)))
    keys = [f"{address}/{number:0100}" for number in range(2000)]
    given = [address] if arguments[0] == "ls" else keys
    with subprocess.Popen(
        [*COMMAND, *arguments, *given], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(1)
        process.stdout.close()
        assert process.wait(60) == Status.NO_READER
        assert process.stderr.read() == b""
