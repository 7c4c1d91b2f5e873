"""The life of ``ucxstore serve``: what it says, signals, files, the service manager."""

import errno
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cli.command import COMMAND, run
from tests.eventually import eventually, nothing_happens
from tests.values import read, write
from ucxstore import Secret, UcxStore, __version__
from ucxstore.base import ucx_library
from ucxstore.base.errors import AuthenticationError
from ucxstore.server import Server


class Serving:
    """A process of ``ucxstore serve``, once it has said its address."""

    def __init__(self, *arguments: object, before: Sequence[str] = (), **environment: str) -> None:
        self.process = subprocess.Popen(
            [*before, *COMMAND, "serve", *map(str, arguments)],
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.line = self.process.stdout.readline()
        self.address = self.line.split()[-1] if self.line else ""

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self) -> tuple[int, str, str]:
        """End it by SIGTERM; return its status, and the rest of what it has said."""
        self.send(signal.SIGTERM)
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.process.wait(60)
        return self.process.returncode, self.process.stdout.read(), self.process.stderr.read()

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


type Start = Callable[..., Serving]


@pytest.fixture
def start() -> Iterator[Start]:
    with ExitStack() as stack:

        def start_one(
            *arguments: object, before: Sequence[str] = (), **environment: str
        ) -> Serving:
            serving = Serving(*arguments, before=before, **environment)
            stack.callback(serving.close)
            assert serving.address.startswith("ucx://"), serving.end()
            return serving

        yield start_one


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "secret"
    file.write_text("correct horse battery staple, the first\n")
    file.chmod(0o600)
    return file


def rows_of(text: str) -> dict[str, str]:
    """Return the rows of a banner."""
    return dict(re.findall(r"^  (\S.{9}) (.*)$", text, re.MULTILINE))


# ---- what it says ----


def test_what_a_server_of_a_directory_says(start: Start, tmp_path: Path, secret: Path) -> None:
    data = tmp_path / "data"
    serving = start(
        data, "--create", "--secret-file", secret, "--threads", 2, "--data-ports", "24500-24599"
    )
    assert serving.line == f"serving {data} at {serving.address}\n"
    status, out, err = serving.end()
    assert (status, err) == (0, "")
    rows = {name.strip(): text for name, text in rows_of(out).items()}
    assert list(rows) == [
        "version",
        "process",
        "storage",
        "clients",
        "ports",
        "in Python",
        "in a shell",
    ]
    library = ucx_library.load()
    version = rows["version"].split(", ")
    assert version[0] == f"ucxstore {__version__}"
    assert version[1] in (f"UCX {library.version} ({library.origin})", "UCX of the system")
    assert rows["process"] == f"{serving.process.pid}, 2 threads"
    assert re.fullmatch(rf"directory {data}, \S+ .?B free of \S+ .?B", rows["storage"])
    assert rows["clients"].endswith(f"(file {secret})")
    place = serving.address.removeprefix("ucx://")
    assert rows["ports"] == f"{place} (for this host alone), 24500-24599 (UCX over TCP)"


@pytest.mark.parametrize("name", ["secret", """my "secret" isn't $HOME's"""])
def test_the_lines_for_clients_work(name: str, start: Start, secret: Path) -> None:
    secret = secret.rename(secret.with_name(name))
    serving = start("memory://", "--secret-file", secret)
    assert serving.process.stdout is not None
    rows = rows_of("".join(serving.process.stdout.readline() for _ in range(7)))
    found: dict[str, UcxStore] = {}
    exec(rows["in Python "], {"UcxStore": UcxStore, "Secret": Secret}, found)
    with found["store"] as store:
        store.ping_sync()
    words = shlex.split(rows["in a shell"])
    assert words == ["ucxstore", "ls", serving.address, "--secret-file", str(secret)]
    assert run(*words[1:]).returncode == 0


def test_what_may_be_said_less(start: Start) -> None:
    assert start("memory://", "--no-banner").end() == (0, "", "")
    assert start("memory://", "--log-format", "json").end() == (0, "", "")


def test_the_version_is_known_without_ucx() -> None:
    code = (
        "from ucxstore.base import ucx_library; print(ucx_library.describe());"
        "assert 'libucp' not in open('/proc/self/maps').read()"
    )
    done = subprocess.run(
        [COMMAND[0], "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    library = ucx_library.load()
    version = f"UCX {library.version} (wheel)"
    assert done.stdout.strip() == (version if library.origin == "wheel" else "UCX of the system")
    assert ucx_library.describe() == f"UCX {library.version} ({library.origin})"


# ---- addresses that cannot be taken ----


def test_an_address_in_use() -> None:
    with Server("memory://") as server:
        place = server.address.removeprefix("ucx://")
        done = run("serve", "memory://", "--bind", place)
    message = f"address {place} is in use: another server? try --bind 127.0.0.1:0"
    assert (done.returncode, done.stderr) == (1, f"ucxstore serve: {message}\n")


def test_an_address_of_another_host() -> None:
    done = run("serve", "memory://", "--insecure", "--bind", "192.0.2.1:7400")
    assert done.returncode == 1
    assert "address 192.0.2.1:7400 is not one of this host" in done.stderr
    done = run("serve", "memory://", "--insecure", "--bind", "no-such-host.invalid:7400")
    assert done.returncode == 1
    assert done.stderr.startswith("ucxstore serve: address no-such-host.invalid:7400: ")


def test_a_port_that_is_not_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> socket.socket:
        raise OSError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(socket, "create_server", refuse)
    with pytest.raises(PermissionError, match=r"127\.0\.0\.1:80 is not allowed: ports below 1024"):
        Server("memory://", "127.0.0.1:80")


# ---- signals ----


@pytest.mark.parametrize("way", ["arguments", "variables", "file"])
def test_a_source_at_another_server(way: str, start: Start, secret: Path, tmp_path: Path) -> None:
    """It has another secret than the server in front of it."""
    theirs = tmp_path / "theirs"
    theirs.write_text("the secret of the source, which is another one")
    theirs.chmod(0o600)
    up = start("memory://", "--secret-file", theirs)
    source = f"{up.address}/run"
    if way == "arguments":
        words = ["--secret-file", secret, "--storage-options", f"secret_file={theirs}"]
        server = start(source, "--cache", "8MiB", *words)
    elif way == "variables":
        server = start(
            source,
            UCXSTORE_SECRET_FILE=str(secret),
            UCXSTORE_SERVE_STORAGE_OPTIONS=f"secret_file={theirs}",
        )
    else:
        file = tmp_path / "ucxstore.toml"
        file.write_text(
            f"location = '{source}'\nsecret_file = '{secret}'\n"
            f"[storage_options]\nsecret_file = '{theirs}'\n"
        )
        server = start("--config", file)
    with (
        UcxStore(server.address, secret=Secret.from_file(secret)) as store,
        UcxStore(source, secret=Secret.from_file(theirs)) as direct,
    ):
        write(store, "k", b"1")
        assert read(direct, "k") == read(store, "k") == b"1"
    status, said, _ = server.end()
    assert status == 0
    cached = "8.4 MB" if way == "arguments" else "1.1 GB"
    assert rows_of(said)["storage   "] == f"{source}, cached in {cached} of memory"


@pytest.mark.parametrize(
    ("number", "status", "said"),
    [
        (signal.SIGINT, 130, "ucxstore serve: interrupted\n"),
        (signal.SIGTERM, -signal.SIGTERM, ""),
        (signal.SIGHUP, -signal.SIGHUP, ""),
    ],
)
def test_a_signal_ends_it_before_it_serves(
    number: signal.Signals, status: int, said: str, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        options = {
            "endpoint": f"http://127.0.0.1:{mute.getsockname()[1]}",
            "region": "r",
            "skip_signature": "true",
            "allow_http": "true",
        }
        words = [f"--storage-options={name}={text}" for name, text in options.items()]
        if number != signal.SIGHUP:
            words += ["--log-file", str(tmp_path / "log")]
        with subprocess.Popen(
            [*COMMAND, "serve", "s3://bucket", *words], stderr=subprocess.PIPE, text=True
        ) as process:
            mute.settimeout(60)
            with mute.accept()[0]:  # it is asked, and may take 20 s to answer
                if number != signal.SIGHUP:
                    process.send_signal(signal.SIGHUP)  # which ends nothing: there is a log
                process.send_signal(number)
                asked = time.monotonic()
                _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (status, said)
    assert time.monotonic() - asked < 10


def test_a_start_from_python_can_be_given_up() -> None:
    """Ctrl-C reaches who starts a server from Python, too, and leaves no thread."""
    with socket.create_server(("127.0.0.1", 0)) as mute:

        def interrupt() -> None:
            with mute.accept()[0]:
                os.kill(os.getpid(), signal.SIGINT)
                ended.wait(60)

        ended = threading.Event()
        thread = threading.Thread(target=interrupt)
        thread.start()
        begun = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            Server(f"http://127.0.0.1:{mute.getsockname()[1]}", read_only=True)
        assert time.monotonic() - begun < 10
        ended.set()
        thread.join()
    eventually(lambda: "ucxstore-check" not in str(threading.enumerate()))


def test_sighup_reads_the_secret_again(start: Start, secret: Path) -> None:
    serving = start("memory://", "--secret-file", secret, "-v", "--no-banner")
    log = serving.process.stderr
    assert log is not None

    def reload(message: str) -> None:
        serving.send(signal.SIGHUP)
        while message not in log.readline():
            pass

    old, new = Secret.from_file(secret), Secret("correct horse battery staple, the second")
    with UcxStore(serving.address, secret=old) as store:
        store.ping_sync()
        secret.write_bytes(new.reveal())
        reload("the secret was read again")
        store.ping_sync()  # it stays
        with UcxStore(serving.address, secret=new) as other:
            other.ping_sync()
    with UcxStore(serving.address, secret=old) as late, pytest.raises(AuthenticationError):
        late.ping_sync()

    for text in ("", new.grant("a/").reveal().decode()):
        secret.write_text(text)
        reload("ERROR ucxstore.server: keeping the old secret: ")
    secret.unlink()
    reload(f"keeping the old secret: No such file or directory: {secret}")
    with UcxStore(serving.address, secret=new) as other:
        other.ping_sync()
    assert serving.end()[0] == 0


def test_sighup_opens_the_log_anew(start: Start, tmp_path: Path) -> None:
    log, moved = tmp_path / "log", tmp_path / "log.1"
    serving = start("memory://", "-v", "--log-file", log)

    def connect() -> None:
        with UcxStore(serving.address) as store:
            store.ping_sync()

    connect()
    eventually(lambda: "has connected" in log.read_text())
    log.rename(moved)
    serving.send(signal.SIGHUP)
    eventually(log.exists)
    before = moved.read_text()
    connect()
    eventually(lambda: "has connected" in log.read_text())
    assert moved.read_text() == before

    # Where there can be no new one, the log goes on.
    log.rename(moved)
    log.mkdir()
    serving.send(signal.SIGHUP)
    eventually(lambda: "cannot reopen the log; still writing to the old file" in moved.read_text())
    status, _, err = serving.end()
    assert (status, err) == (0, "")


@pytest.mark.parametrize("secret", ["", "correct horse battery staple"])
def test_sighup_ends_it_where_there_is_nothing_to_read_again(start: Start, secret: str) -> None:
    variables = {"UCXSTORE_SECRET": secret} if secret else {}
    serving = start("memory://", "--no-banner", **variables)
    with UcxStore(serving.address, secret=secret or None) as store:
        store.ping_sync()
        serving.send(signal.SIGHUP)
        serving.send(signal.SIGHUP)  # a shell sends one, and the kernel another one
        assert serving.process.wait(60) == 0
    assert serving.end() == (0, "", "")


def test_it_ends_with_its_terminal() -> None:
    ours, its = os.openpty()
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        process = subprocess.Popen(
            ["setsid", "--ctty", *COMMAND, "serve", "memory://", "--no-banner"],
            stdin=its,
            stdout=its,
            stderr=its,
        )
        try:
            os.close(its)
            said = b""
            while b"\n" not in said:
                said += terminal.read(4096)
            with UcxStore(said.split()[-1].decode()) as store:
                store.ping_sync()
                terminal.close()
                assert process.wait(60) == 0
        finally:
            process.kill()
            process.wait()


def test_sighup_ends_nothing_that_was_told_to_ignore_it(start: Start) -> None:
    serving = start("memory://", "--no-banner", before=["nohup"])
    serving.send(signal.SIGHUP)
    with UcxStore(serving.address) as store:
        store.ping_sync()
    assert serving.end()[0] == 0


def test_sighup_of_a_service_manager_ends_nothing(start: Start, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(60)
        serving = start("memory://", NOTIFY_SOCKET=str(tmp_path / "notify"))
        assert manager.recv(4096).startswith(b"READY=1")
        serving.send(signal.SIGHUP)
        assert manager.recv(4096).startswith(b"RELOADING=1")
        assert manager.recv(4096).startswith(b"READY=1")
        assert serving.end()[0] == 0


def test_a_log_file_that_cannot_be_made(tmp_path: Path) -> None:
    done = run("serve", "memory://", "--log-file", tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith(f"ucxstore serve: log_file: Is a directory: {tmp_path}")


# ---- the file with its id ----


@pytest.mark.parametrize("option", ["secret_file", "log_file", "pid_file"])
def test_a_file_that_cannot_be_used_is_named_with_its_option(option: str, tmp_path: Path) -> None:
    flag = f"--{option.replace('_', '-')}"
    done = run("serve", "memory://", flag, tmp_path / "nowhere/file")
    missing = f"No such file or directory: {tmp_path}/nowhere/file"
    assert done.stderr.startswith(f"ucxstore serve: {option}: {missing}")
    done = run("serve", "memory://", flag, tmp_path)
    assert done.stderr.startswith(f"ucxstore serve: {option}: Is a directory: {tmp_path}")


def test_the_pid_file(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "pid"
    serving = start("memory://", "--pid-file", file, "--no-banner")
    eventually(file.exists)
    assert file.read_text() == f"{serving.process.pid}\n"
    assert [each.name for each in tmp_path.iterdir()] == ["pid"]
    done = run("serve", "memory://", "--pid-file", file)
    assert done.returncode == 1
    assert f"in use by the server with process id {serving.process.pid}\n" in done.stderr
    assert file.exists()
    assert serving.end() == (0, "", "")
    assert not file.exists()


def test_a_pid_file_that_was_left(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "pid"
    serving = start("memory://", "--pid-file", file)
    eventually(file.exists)
    serving.close()
    assert file.exists()
    file.write_text(f"{os.getpid()}\n")  # as if the id were another process's by now
    again = start("memory://", "--pid-file", file, "--no-banner")
    eventually(lambda: file.read_text() == f"{again.process.pid}\n")
    assert again.end() == (0, "", "")


def test_what_is_no_pid_file_stays(tmp_path: Path) -> None:
    file = tmp_path / "thesis.tex"
    file.write_text("\\documentclass{article}")
    done = run("serve", "memory://", "--pid-file", file)
    assert (done.returncode, "exists, but holds no process id" in done.stderr) == (1, True)
    assert file.read_text() == "\\documentclass{article}"


# ---- the service manager ----


@pytest.mark.parametrize("kind", ["path", "abstract"])
def test_the_service_manager_is_told(start: Start, tmp_path: Path, kind: str, secret: Path) -> None:
    name = str(tmp_path / "notify") if kind == "path" else f"@ucxstore-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(name.replace("@", "\0"))
        manager.settimeout(30)

        def hear() -> dict[str, str]:
            lines = manager.recv(4096).decode().splitlines()
            return dict(line.split("=", 1) for line in lines)

        def hear_but_watchdog() -> dict[str, str]:
            while "WATCHDOG" in (heard := hear()):
                pass
            return heard

        serving = start(
            "memory://", "--secret-file", secret, NOTIFY_SOCKET=name, WATCHDOG_USEC="400000"
        )
        ready = {"READY": "1", "STATUS": serving.line.strip()}
        assert hear() == ready
        assert hear() == {"WATCHDOG": "1"}
        serving.send(signal.SIGHUP)
        reloading = hear_but_watchdog()
        assert reloading.pop("RELOADING") == "1"
        assert 0 < time.monotonic() - int(reloading.pop("MONOTONIC_USEC")) / 1e6 < 30
        assert reloading == {}
        assert hear_but_watchdog() == ready
        assert serving.end()[0] == 0
        assert hear_but_watchdog() == {"STOPPING": "1"}


def test_reloads_do_not_keep_the_watchdog_waiting(
    start: Start, tmp_path: Path, secret: Path
) -> None:
    name = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(name)
        manager.settimeout(60)
        serving = start(
            "memory://", "--secret-file", secret, NOTIFY_SOCKET=name, WATCHDOG_USEC="1000000"
        )
        reloads = alive = 0
        while alive < 3:
            heard = manager.recv(4096)
            alive += heard == b"WATCHDOG=1"
            if heard.startswith(b"READY=1"):  # before half of the time is over
                reloads += 1
                assert reloads < 100
                nothing_happens(0.1)
                serving.send(signal.SIGHUP)
        assert serving.end()[0] == 0


def test_a_service_manager_that_is_gone(start: Start, tmp_path: Path) -> None:
    environment = {"NOTIFY_SOCKET": str(tmp_path / "gone"), "WATCHDOG_USEC": "soon"}
    assert start("memory://", "--no-banner", **environment).end() == (0, "", "")


def test_the_watchdog_of_another_process(start: Start, tmp_path: Path) -> None:
    name = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(name)
        manager.settimeout(30)
        environment = {"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "20000", "WATCHDOG_PID": "1"}
        serving = start("memory://", **environment)
        assert manager.recv(4096).startswith(b"READY=1")
        nothing_happens(0.2)
        assert serving.end()[0] == 0
        assert manager.recv(4096) == b"STOPPING=1"


@pytest.mark.parametrize("to_file", [False, True])
def test_logs_in_json_are_json_alone(start: Start, tmp_path: Path, *, to_file: bool) -> None:
    log = tmp_path / "log"
    options = ["--log-file", log] if to_file else []
    serving = start("memory://", "-v", "--log-format", "json", *options, UCXSTORE_SECRET="short")
    with UcxStore(serving.address, secret="short") as store:
        store.ping_sync()
    _, out, err = serving.end()
    assert out == ""
    assert not (to_file and err)
    text = log.read_text() if to_file else err
    first, *_ = [json.loads(line) for line in text.splitlines()]
    assert "the secret has fewer than 16 bytes" in first["message"]
    assert (first["level"], first["logger"]) == ("WARNING", "ucxstore.server")


@pytest.mark.parametrize("flag", ["-v", "-vv"])
def test_how_much_is_logged(flag: str, start: Start) -> None:
    secret = "correct horse battery staple"
    variables = {"UCXSTORE_SERVE_THREADS": "2", "UCXSTORE_SECRET": secret}
    serving = start("memory://", flag, "--no-banner", **variables)
    with UcxStore(serving.address, secret=secret) as store:
        store.ping_sync()
    _, _, log = serving.end()
    assert re.search(r"INFO ucxstore\.server: \S+ has connected", log)
    assert re.findall(r"DEBUG ucxstore\.server: option (.*)", log) == (
        []
        if flag == "-v"
        else [
            "location = memory:// (from argument)",
            "secret_file = *** (from UCXSTORE_SECRET)",
            "banner = no (from argument)",
            "verbose = 2 (from argument)",
            "threads = 2 (from UCXSTORE_SERVE_THREADS)",
        ]
    )
    assert ("DEBUG" in log) == (flag == "-vv")
    assert secret not in log
