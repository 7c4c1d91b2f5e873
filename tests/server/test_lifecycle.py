"""How servers start, accept clients, refuse them and end."""

import errno
import gc
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import obstore
import pytest
import zarr
from zarr.storage import LocalStore, LoggingStore

from tests.eventually import eventually
from tests.fixtures import server_of_its_own as server_of_its_own
from ucxstore import UcxStore
from ucxstore.base.address import Address, HostPort
from ucxstore.base.errors import AuthenticationError, ConnectError
from ucxstore.base.native import core
from ucxstore.base.secret import Secret
from ucxstore.client.connect import Greeting
from ucxstore.protocol.frames import HEADER_BYTES, PROTOCOL_VERSION, FrameKind, Welcome, encode
from ucxstore.server import Server
from ucxstore.server.accepting import acceptor, reception
from ucxstore.server.accepting.acceptor import Acceptor
from ucxstore.server.accepting.listen import advertise, listen
from ucxstore.server.accepting.reception import Reception
from ucxstore.server.accepting.sessions import NewSessions
from ucxstore.server.identity import Identity
from ucxstore.server.spawn import ServerProcess


@pytest.fixture
def few_handshakes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let only two be under way, at servers that are made from now on."""
    monkeypatch.setattr(acceptor, "MAX_HANDSHAKES", 2)


def place_of(address: str) -> HostPort:
    [place] = Address.parse(address).servers
    return place


def handshake(
    address: str, secret: Secret | None = None, timeout: float = 10.0
) -> tuple[socket.socket, Welcome]:
    with Greeting(place_of(address), secret, timeout) as greeting:
        fd = greeting.stay(checked=False)
        return socket.socket(fileno=fd), greeting.welcome


def connect_raw(address: str) -> socket.socket:
    place = place_of(address)
    return socket.create_connection((place.host, place.port), timeout=20)


def refuses(address: str) -> bool:
    try:
        connect_raw(address).close()
    except ConnectionRefusedError:
        return True
    return False


def read_to_the_end(sock: socket.socket) -> bytes:
    sock.settimeout(20)
    data = b""
    try:
        while part := sock.recv(4096):
            data += part
    except ConnectionResetError:
        pass
    return data


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


class TestSessions:
    def test_come_and_go(self, server: Server) -> None:
        assert server.sessions == 0
        one, first = handshake(server.address)
        two, second = handshake(server.address)
        with one, two:
            assert server.sessions == 2
            assert first.token != second.token
            assert first.identity == second.identity
            assert not first.read_only
        eventually(lambda: server.sessions == 0)

    def test_nothing_is_left_to_read(self, server: Server) -> None:
        sock, _ = handshake(server.address)
        with sock, pytest.raises(BlockingIOError):
            sock.recv(1)

    def test_threads_take_turns_whoever_else_knocks(self, monkeypatch: pytest.MonkeyPatch) -> None:
        seen = []

        class Watched(core.Server):
            def stay(self, thread: int, *agreed: Any) -> None:
                seen.append(thread)
                super().stay(thread, *agreed)

        monkeypatch.setattr(core, "Server", Watched)
        with Server("memory://", threads=2) as server:
            for _ in range(4):
                connect_raw(server.address).close()
                sock, _ = handshake(server.address)
                sock.close()
            assert seen == [0, 1, 0, 1]

    def test_read_only_is_said(self, tmp_path: Path) -> None:
        with Server(tmp_path, read_only=True) as server:
            sock, welcome = handshake(server.address)
            sock.close()
            assert welcome.read_only

    def test_another_memory_is_another_identity(self, server: Server) -> None:
        with Server("memory://") as other:
            identities = []
            for address in (server.address, other.address):
                sock, welcome = handshake(address)
                sock.close()
                identities.append(welcome.identity)
        assert identities[0] != identities[1]

    def test_many_at_once(self) -> None:
        with Server("memory://", secret="s", threads=2) as server:
            socks: list[socket.socket] = []

            def join() -> None:
                socks.append(handshake(server.address, Secret("s"))[0])

            threads = [threading.Thread(target=join) for _ in range(50)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert len(socks) == server.sessions == 50
            for sock in socks:
                sock.close()


class TestTurnedAway:
    def test_without_or_with_the_wrong_secret(self) -> None:
        with Server("memory://", secret="right") as server:
            for secret in (None, Secret("wrong")):
                with pytest.raises(AuthenticationError, match=str(place_of(server.address))):
                    handshake(server.address, secret)
            assert server.sessions == 0
            eventually(lambda: server.stats()["turned_away"] == 2)
            sock, _ = handshake(server.address, Secret("right"))
            sock.close()

    def test_by_the_client_a_server_without_its_secret(self, server: Server) -> None:
        with pytest.raises(AuthenticationError, match="has no secret"):
            handshake(server.address, Secret("mine"))

    @pytest.mark.parametrize("data", [b"", b"GET / HTTP/1.0\r\n\r\n", b"UCXS", b"\0" * 10_000])
    def test_strangers(self, server: Server, data: bytes) -> None:
        with connect_raw(server.address) as sock:
            with suppress(OSError):  # the server may have hung up before the last byte
                sock.sendall(data)
                sock.shutdown(socket.SHUT_WR)
            assert read_to_the_end(sock) == b""
        counter = "turned_away" if data else "probes"
        eventually(lambda: server.stats()[counter] == 1)
        handshake(server.address)[0].close()

    @pytest.mark.parametrize("secret", [None, "s"])
    @pytest.mark.parametrize("resets", [False, True])
    def test_who_opens_the_port_and_closes_it_is_not_refused(
        self, secret: str | None, *, resets: bool, caplog: pytest.LogCaptureFixture
    ) -> None:
        """As health checks do, and at once: before the kernel can tell whose process it was."""
        caplog.set_level(logging.INFO, "ucxstore.server")
        with Server("memory://", secret=secret) as server:
            for _ in range(50):
                with connect_raw(server.address) as sock:
                    if resets:
                        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            eventually(lambda: server.stats()["probes"] == 50)
            assert server.stats()["turned_away"] == 0
        assert "turned" not in caplog.text
        assert "handshake" not in caplog.text

    def test_another_version(self, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
        with monkeypatch.context() as patch:
            # What this side writes.
            patch.setattr("ucxstore.protocol.frames.PROTOCOL_VERSION", PROTOCOL_VERSION + 1)
            hello = encode(FrameKind.HELLO, b"\0" * 32)
        with connect_raw(server.address) as sock:
            sock.sendall(hello)
            answer = read_to_the_end(sock)
        assert f"version {PROTOCOL_VERSION + 1}".encode() in answer
        assert f"version {PROTOCOL_VERSION}".encode() in answer

    def test_whom_the_core_cannot_reach(self) -> None:
        class Unreachable:
            address = b"worker"

            def tell(self, name: str, count: object) -> None: ...

            def open(self, thread: int, fd: int, shares_memory: bool) -> "Unreachable":
                return self

            def attach(self, fd: int, *_: object) -> None:
                os.close(fd)
                raise ConnectError("no common transport")

            def join(self, thread: int, fd: int, *_: object) -> None:
                os.close(fd)

            def make_room(self, origin: str, waiting: int, is_short: bool) -> bool:
                return True

        listener = listen(HostPort("127.0.0.1", 0), anywhere=False)
        address = advertise(HostPort("127.0.0.1", 0), listener)
        identity, terms = Identity(bytes(16)), Welcome(b"", bytes(16), False, offers_ucx=True)
        reception = Reception(NewSessions(Unreachable(), 1), b"", identity, terms)
        accepting = Acceptor(listener, reception)
        with (
            Greeting(place_of(address), None, 10.0) as greeting,
            pytest.raises(ConnectError, match="could not connect back: no common transport"),
        ):
            greeting.attach(b"the client's worker")
        eventually(lambda: int(accepting.reception.refusals.turned_away) == 1)
        accepting.stop(20.0)
        assert refuses(address)

    def test_the_silent_keep_nobody_waiting(self, server: Server) -> None:
        silent = [connect_raw(server.address) for _ in range(20)]
        for sock in silent[:10]:
            sock.sendall(encode(FrameKind.HELLO, b"\0" * 32)[: HEADER_BYTES + 3])
        start = time.monotonic()
        handshake(server.address)[0].close()
        assert time.monotonic() - start < 20
        for sock in silent:
            sock.close()

    def test_the_silent_after_a_while(
        self, server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, "ucxstore.server")
        monkeypatch.setattr(reception, "HANDSHAKE_SECONDS", 0.2)
        with connect_raw(server.address) as sock:
            assert read_to_the_end(sock) == b""
        eventually(lambda: server.stats()["turned_away"] == 1)
        eventually(lambda: "no handshake within 0.2 s" in caplog.text)

    def test_too_many_at_once(self, few_handshakes: None, server: Server) -> None:
        """The one that has been silent for longest goes, and is told why."""
        first, second = connect_raw(server.address), connect_raw(server.address)
        handshake(server.address)[0].close()
        assert b"are connecting at once" in read_to_the_end(first)
        handshake(server.address)[0].close()
        second.sendall(encode(FrameKind.HELLO, b"\0" * 32))
        assert second.recv(4096)
        assert server.stats()["turned_away"] == 1
        first.close()
        second.close()


class TestOptions:
    @pytest.mark.parametrize("bind", ["0.0.0.0:0", "[::]:0"])
    def test_no_secret_no_other_machines(self, bind: str) -> None:
        with pytest.raises(ValueError, match=r"^bind: .*no secret.*insecure"):
            Server("memory://", bind=bind)

    def test_with_a_secret_or_insecure_it_binds_to_anything(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        places: list[tuple[str, int]] = []

        def create_server(place: tuple[str, int], **_: object) -> socket.socket:
            places.append(place)
            return socket.socket()

        monkeypatch.setattr(socket, "create_server", create_server)
        listen(HostPort("0.0.0.0", 7400), anywhere=True).close()
        assert places == [("0.0.0.0", 7400)]

    @pytest.mark.parametrize("host", ["0.0.0.0", "::"])
    def test_anywhere_is_advertised_by_the_machines_name(self, host: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            address = advertise(HostPort(host, 0), listener)
        assert address == f"ucx://{HostPort(socket.gethostname(), port)}"

    def test_localhost(self) -> None:
        with Server("memory://", bind="localhost:0") as server:
            assert server.address.startswith("ucx://localhost:")
            handshake(server.address)[0].close()

    @pytest.mark.parametrize(
        ("bind", "message"),
        [("127.0.0.1", "names no port"), ("127.0.0.1:http", "port"), ("a b:1", "not a host name")],
    )
    def test_bad_bind(self, bind: str, message: str) -> None:
        with pytest.raises(ValueError, match=f"^bind: .*{message}"):
            Server("memory://", bind=bind)

    @pytest.mark.parametrize(
        ("host", "is_hidden"),
        [("node7", True), ("node7.example.org", True), ("localhost", False), ("127.0.0.1", False)],
    )
    def test_a_name_that_is_the_loopback_here(
        self,
        host: str,
        *,
        is_hidden: bool,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """As Debian's /etc/hosts has the host's own name: nobody else reaches the server."""
        look_up = socket.getaddrinfo

        def resolve(name: str, *arguments: object, **options: object) -> object:
            here = "127.0.1.1" if name.startswith("node7") else name
            return look_up(here, *arguments, **options)

        monkeypatch.setattr(socket, "getaddrinfo", resolve)
        caplog.set_level(logging.WARNING, "ucxstore.server")
        with Server("memory://", bind=f"{host}:0"):
            pass
        warned = f"bind: {host} is 127.0.1.1 on this host (see /etc/hosts), so no other host"
        assert (warned in caplog.text) == is_hidden

    def test_a_port_in_use(self, server: Server) -> None:
        with pytest.raises(OSError, match=str(place_of(server.address).port)) as caught:
            Server("memory://", bind=str(place_of(server.address)))
        assert caught.value.errno == errno.EADDRINUSE

    @pytest.mark.parametrize(
        "location", ["ftp://host/path", "memory://x", "file://elsewhere/data", "file://", ""]
    )
    def test_a_location_that_cannot_be_served(self, location: str) -> None:
        with pytest.raises(ValueError, match=r"^storage: "):
            Server(location)

    @pytest.mark.parametrize("form", ["path", "str", "url"])
    def test_a_directory_is_made(self, tmp_path: Path, form: str) -> None:
        path = tmp_path / "some data"
        url = f"file://{str(path).replace(' ', '%20')}"
        roots: dict[str, str | Path] = {"path": path, "str": str(path), "url": url}
        with pytest.raises(FileNotFoundError, match=r"some data.*create=True"):
            Server(roots[form])
        assert not path.exists()
        Server(roots[form], create=True).close()
        assert path.is_dir()
        Server(roots[form]).close()

    def test_a_directory_that_is_missing(self, tmp_path: Path) -> None:
        with pytest.raises(ChildProcessError, match=r"no such directory; --create"):
            Server.spawn(tmp_path / "data")
        with pytest.raises(OSError, match="data") as caught:
            Server(tmp_path / "data", read_only=True)
        assert caught.value.errno == errno.ENOENT
        with pytest.raises(ValueError, match=r"^create: .* read-only"):
            Server(tmp_path / "data", read_only=True, create=True)
        with pytest.raises(ValueError, match=r"^create: only a directory"):
            Server("memory://", create=True)
        assert not (tmp_path / "data").exists()

    @pytest.mark.parametrize(
        ("name", "meant"),
        [
            ("memory:", "'memory://'"),
            ("memory:/", "'memory://'"),
            ("s3:bucket", "'s3://bucket'"),
            ("S3:/bucket/a", "'s3://bucket/a'"),
            ("file:data", "'file:///data'"),
            ("data:2026", "'./data:2026'"),
            (Path("s3://bucket"), "'s3://bucket'"),
        ],
    )
    def test_what_looks_like_a_url_is_no_directory(
        self, name: str | Path, meant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        for start in (Server, Server.spawn):
            with pytest.raises(ValueError, match=rf"^storage: .* {re.escape(meant)}"):
                start(name, create=True)
        assert not list(tmp_path.iterdir())

    def test_a_directory_whose_name_looks_like_a_url(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "memory:").mkdir()
        Server("./memory:").close()
        Server(tmp_path / "memory:").close()
        Server((tmp_path / "memory:").as_uri()).close()

    def test_a_name_that_is_not_utf_8(self, tmp_path: Path) -> None:
        name = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")
        for start in (Server, Server.spawn):
            for given in (name, os.fsencode(name), Path(name)):
                with pytest.raises(ValueError, match=r"^storage: '/.*/\\udcff' is not UTF-8$"):
                    start(given, create=True)

    def test_the_name_of_memory(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        with pytest.raises(FileNotFoundError, match="did you mean 'memory://'"):
            Server("memory")

    def test_a_storage_of_the_core(self) -> None:
        Server(core.MemoryStorage()).close()

    def test_a_location_that_is_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(OSError, match="file"):
            Server(tmp_path / "file")

    @pytest.mark.parametrize("threads", [0, 257])
    def test_bad_threads(self, threads: int) -> None:
        with pytest.raises(ValueError, match=r"^threads: "):
            Server("memory://", threads=threads)

    def test_threads_is_a_number(self) -> None:
        with pytest.raises(TypeError, match=r"^threads: "):
            Server("memory://", threads=True)

    def test_bad_progress_ucx_and_secret(self) -> None:
        with pytest.raises(ValueError, match=r"^progress: "):
            Server("memory://", progress="busy")
        with pytest.raises(ValueError, match=r"^ucx: "):
            Server("memory://", ucx={"": "tcp"})
        with pytest.raises(ValueError, match=r"^secret is empty"):
            Server("memory://", secret="")

    def test_repr(self) -> None:
        with Server("memory://", secret="correct horse") as server:
            assert repr(server) == f"<Server 'memory://' at {server.address!r}, serving>"


class TestClose:
    def test_refuses_and_ends_sessions(self) -> None:
        server = Server("memory://")
        sock, _ = handshake(server.address)
        server.close()
        with sock:
            read_to_the_end(sock)  # which comes after the message that the server ends
        assert refuses(server.address)
        assert server.sessions == 0
        server.stats()
        server.close()

    def test_those_in_the_handshake_are_told(self) -> None:
        server = Server("memory://", secret="s")
        with connect_raw(server.address) as sock:
            sock.sendall(encode(FrameKind.HELLO, b"\0" * 32))
            sock.recv(4096)  # the CHALLENGE
            server.close()
            assert b"shutting down" in read_to_the_end(sock)

    def test_draining_lets_sessions_live(self, server: Server) -> None:
        sock, _ = handshake(server.address)
        with sock:
            assert server.drain(5.0)
            assert server.sessions == 1
            assert refuses(server.address)

    def test_a_forgotten_one_is_closed(self) -> None:
        server = Server("memory://")
        address = server.address
        del server
        gc.collect()
        eventually(lambda: refuses(address))

    def test_from_many_threads(self, server: Server) -> None:
        threads = [threading.Thread(target=server.close) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert not any(thread.is_alive() for thread in threads)

    def test_the_interpreter_exits_with_one_open(self) -> None:
        code = "from ucxstore.server import Server; s = Server('memory://'); print(s.address)"
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert refuses(done.stdout.strip())

    def test_a_forked_child_holds_no_port(self) -> None:
        code = (
            "import os, time; from ucxstore.server import Server\n"
            "s = Server('memory://')\n"
            "pid = os.fork()\n"
            "if pid == 0: s.close(); time.sleep(60); os._exit(0)\n"
            "print(s.address, pid, flush=True); time.sleep(60)\n"
        )
        command = [sys.executable, "-W", "ignore", "-c", code]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
            assert parent.stdout is not None
            address, child = parent.stdout.readline().split()
            try:
                assert not refuses(address)
                parent.kill()
                parent.wait()
                eventually(lambda: refuses(address))
                assert runs(int(child))
            finally:
                os.kill(int(child), signal.SIGKILL)


class TestSpawn:
    def test_a_process_that_serves_and_ends(self, tmp_path: Path) -> None:
        with Server.spawn(tmp_path / "data", threads=2, create=True) as process:
            assert process.pid != os.getpid()
            assert process.returncode is None
            handshake(process.address)[0].close()
            assert process.address in process.output
        assert process.returncode == 0
        assert not runs(process.pid)
        assert refuses(process.address)
        process.close()

    def test_a_location_that_looks_like_an_option(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        Server.spawn("--data", create=True).close()
        assert (tmp_path / "--data").is_dir()

    def test_the_secret_is_not_on_show(self) -> None:
        secret = "correct horse battery staple"
        with Server.spawn("memory://", secret=secret) as process:
            proc = Path(f"/proc/{process.pid}")
            shown = (proc / "cmdline").read_bytes() + (proc / "environ").read_bytes()
            assert secret.encode() not in shown
            with pytest.raises(AuthenticationError):
                handshake(process.address)
            handshake(process.address, Secret(secret))[0].close()

    @pytest.mark.parametrize(
        ("location", "options", "message"),
        [
            ("memory://", {"bind": "0.0.0.0:0"}, "exit status 2.*no secret"),
            ("memory://", {"cache": "1MB"}, "exit status 2.*cache: only an object"),
            ("/dev/null/data", {}, "exit status 1.*/dev/null/data"),
        ],
    )
    def test_one_that_cannot_start_says_why(
        self, location: str, options: dict[str, str], message: str
    ) -> None:
        with pytest.raises(ChildProcessError, match=message) as caught:
            Server.spawn(location, **options)
        assert "Traceback" not in str(caught.value)

    @pytest.mark.parametrize(
        ("location", "options", "message"),
        [
            ("ftp://host", {}, "storage: 'ftp://host'"),
            ("memory://", {"threads": 0}, "threads: 0"),
            ("memory://", {"freshness": "often"}, "freshness: 'often'"),
        ],
    )
    def test_what_cannot_be_is_said_before_it_starts(
        self, location: str, options: dict[str, object], message: str
    ) -> None:
        with pytest.raises(ValueError, match=f"^{message}"):
            Server.spawn(location, **options)

    @pytest.mark.parametrize(
        "storage",
        [
            core.MemoryStorage(),
            zarr.storage.MemoryStore(),
            LoggingStore(zarr.storage.MemoryStore()),
            obstore.store.MemoryStore(),
            object,
        ],
        ids=lambda storage: type(storage).__name__,
    )
    def test_a_storage_that_cannot_be_sent(self, storage: Any) -> None:
        with pytest.raises((TypeError, ChildProcessError), match="storage: "):
            Server.spawn(storage)

    @pytest.mark.parametrize("make", [LocalStore, obstore.store.LocalStore])
    def test_a_store_that_can_be_sent(self, make: Any, tmp_path: Path) -> None:
        (tmp_path / "k").write_bytes(b"value")
        with Server.spawn(make(tmp_path)) as process, UcxStore(process.address) as store:
            value = store.get_sync("k")
        assert value is not None
        assert value.to_bytes() == b"value"

    def test_one_that_takes_too_long_is_ended(self) -> None:
        with pytest.raises(TimeoutError, match=r"not listening after 0\.001 s"):
            Server.spawn("memory://", start_timeout=0.001)

    def test_one_that_was_killed(self) -> None:
        with Server.spawn("memory://") as process:
            os.kill(process.pid, signal.SIGKILL)
            eventually(lambda: process.returncode == -signal.SIGKILL)

    def test_one_that_does_not_end_is_killed(self) -> None:
        process = Server.spawn("memory://")
        os.kill(process.pid, signal.SIGSTOP)
        process.close(timeout=0.1)
        assert process.returncode == -signal.SIGKILL

    def test_a_forgotten_one_is_ended(self) -> None:
        process = Server.spawn("memory://")
        pid = process.pid
        del process
        gc.collect()
        assert not runs(pid)

    def test_it_ends_with_its_parents_end_of_the_link(self) -> None:
        process = Server.spawn("memory://")
        process._link.close()
        eventually(lambda: process.returncode == 0)

    @pytest.mark.parametrize("dies", [True, False])
    def test_whether_it_outlives_its_parent(self, dies: bool) -> None:
        code = (
            "import os, signal; from ucxstore.server import Server\n"
            f"s = Server.spawn('memory://', die_with_parent={dies})\n"
            "print(s.address, s.pid, flush=True)\n"
            "os.kill(os.getpid(), signal.SIGKILL)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=False
        )
        address, pid = done.stdout.split()
        if dies:
            eventually(lambda: not runs(int(pid)))
        else:
            try:
                assert not refuses(address)
            finally:
                os.kill(int(pid), signal.SIGKILL)

    def test_the_handle_is_a_server_process(self) -> None:
        with Server.spawn("memory://") as process:
            assert isinstance(process, ServerProcess)
            assert (
                repr(process)
                == f"<ServerProcess at {process.address!r}, pid={process.pid}, serving>"
            )


def test_a_server_lets_go_of_its_storage_without_the_collector() -> None:
    storage = core.MemoryStorage(1 << 20)
    unused = sys.getrefcount(storage)
    gc.disable()
    try:
        with Server(storage) as server:
            assert sys.getrefcount(storage) > unused
        del server
        assert sys.getrefcount(storage) == unused
    finally:
        gc.enable()


def test_without_a_thread_no_descriptor_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "ucxstore-accept":
            raise RuntimeError("can't start new thread")
        start(thread)

    def descriptors() -> int:
        with pytest.raises(RuntimeError, match="start new thread"):
            Server("memory://")
        return len(list(Path("/proc/self/fd").iterdir()))

    Server("memory://").close()  # what a process keeps after its first server
    monkeypatch.setattr(threading.Thread, "start", refuse)
    before = descriptors()
    assert min(descriptors() for _ in range(5)) <= before


class TestDataPorts:
    def test_a_range_without_a_free_port(self, caplog: pytest.LogCaptureFixture) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            with pytest.raises(OSError, match=f"data_ports: no port of {port}-{port} is free"):
                Server("memory://", data_ports=(port, port))
            other = port + 1 if port < 65535 else port - 1
            with (
                caplog.at_level(logging.WARNING, "ucxstore"),
                suppress(OSError),  # somebody may have the other one
                Server("memory://", data_ports=(min(port, other), max(port, other))),
            ):
                assert "data_ports: 1 of the 2 ports" in caplog.text

    def test_a_port_that_is_taken_for_a_while(self, caplog: pytest.LogCaptureFixture) -> None:
        """As the ports of clients are for a minute after a restart: nobody need act on it."""
        with socket.create_server(("127.0.0.1", 0)) as taken:
            first = min(taken.getsockname()[1], 65_000)
            with Server("memory://", data_ports=(first, first + 99)):
                assert "ports" not in caplog.text

    def test_a_range_that_is_used_up(self) -> None:
        """UCX itself would look for a port for ever."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        with Server("memory://", data_ports=(port, port), local=False) as server:
            with UcxStore(server.address, network="ucx") as store:
                store.ping_sync()
                other = UcxStore(server.address, network="ucx", integrity=True)
                with pytest.raises(ConnectError, match=f"no port of {port}-{port} is free"):
                    other.ping_sync()
            eventually(lambda: server.stats()["turned_away"])


def test_the_core_holds_no_object_of_python(tmp_path: Path) -> None:
    """A thread of the core that let go of one last would take the GIL, of an ending process too."""
    storage, counter = core.MemoryStorage(), core.Counter()
    spaces, disk = core.Spaces(storage), core.DiskCache(str(tmp_path), 1 << 20)
    shared = [storage, spaces, counter, disk]
    held = [sys.getrefcount(each) for each in shared]
    server = core.Server(storage, 1, ({}, False, True, False), read_only=False, scratch=spaces)
    server.tell("count", counter)
    server.tell("disk", disk)
    assert [sys.getrefcount(each) for each in shared] == held
    server.close(10)
