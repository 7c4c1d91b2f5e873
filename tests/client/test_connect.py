"""`Greeting` against sockets on loopback: our server, and other programs."""

import fcntl
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from tests.adversity.fake_servers import Behaviour, welcomes
from ucxstore.base.address import HostPort
from ucxstore.base.errors import AuthenticationError, ConnectError, NotAServerError
from ucxstore.base.secret import Secret
from ucxstore.client.connect import Greeting
from ucxstore.protocol.frames import FrameKind, Welcome, encode

WELCOME = Welcome(b"t" * 16, b"i" * 16, True)
SERVER_ADDRESS = b"<the server's UCX address>"
CLIENT_ADDRESS = b"<the client's UCX address>"

type Listen = Callable[[Behaviour], int]


@pytest.fixture
def listen() -> Iterator[Listen]:
    """Start servers of one connection each; return the port."""
    listeners: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def start(behave: Behaviour) -> int:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def run() -> None:
            sock, _ = listener.accept()
            with sock, suppress(ConnectionError):
                behave(sock)
                while sock.fileno() != -1 and sock.recv(4096):  # until the client is gone
                    pass

        thread = threading.Thread(target=run)
        threads.append(thread)
        thread.start()
        return int(listener.getsockname()[1])

    yield start
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    for listener in listeners:
        listener.close()


def connect_to(
    host: str, port: int, secret: Secret | None = None, timeout: float = 5.0
) -> tuple[int, Welcome, bytes]:
    """Take both steps; return the connection, what was granted, and the server's UCX address."""
    with Greeting(HostPort(host, port), secret, timeout) as greeting:
        fd, address = greeting.attach(CLIENT_ADDRESS)
        return fd, greeting.welcome, address


def connect(
    port: int, secret: Secret | None = None, timeout: float = 5.0
) -> tuple[int, Welcome, bytes]:
    return connect_to("127.0.0.1", port, secret, timeout)


def serve(secret: bytes, attached: list[bytes]) -> Behaviour:
    """Behave as our server does, by blocking calls."""
    return welcomes(
        SERVER_ADDRESS, stays=True, secret=secret, welcome=WELCOME, attached=attached.append
    )


def open_descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))  # noqa: PTH208


class TestOurServer:
    @pytest.mark.parametrize("secret", [None, Secret("s")])
    def test_it_is_reached(self, listen: Listen, secret: Secret | None) -> None:
        attached: list[bytes] = []
        port = listen(serve(b"" if secret is None else secret.reveal(), attached))
        fd, welcome, address = connect(port, secret)
        with socket.socket(fileno=fd) as sock:
            assert (welcome, address) == (WELCOME, SERVER_ADDRESS)
            assert attached == [CLIENT_ADDRESS]
            assert fcntl.fcntl(fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
            assert fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_NONBLOCK
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            with pytest.raises(BlockingIOError):
                sock.recv(1, socket.MSG_DONTWAIT)  # open, and nothing left unread

    def test_by_name(self, listen: Listen) -> None:
        port = listen(serve(b"", []))
        os.close(connect_to("localhost", port)[0])

    def test_the_wrong_secret(self, listen: Listen) -> None:
        attached: list[bytes] = []
        port = listen(serve(b"right", attached))
        with pytest.raises(AuthenticationError, match=f"127.0.0.1:{port} refused this client"):
            connect(port, Secret("wrong"))
        assert not attached

    def test_a_secret_that_did_not_come_with_the_pickle(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("MY_SECRET", "s")
        secret = Secret.from_env("MY_SECRET").__reduce__()
        monkeypatch.delenv("MY_SECRET")
        monkeypatch.delenv("UCXSTORE_SECRET", raising=False)
        monkeypatch.delenv("UCXSTORE_SECRET_FILE", raising=False)
        make, arguments = secret
        assert callable(make)
        assert isinstance(arguments, tuple)
        with pytest.raises(AuthenticationError, match=r"cannot connect to 127\.0\.0\.1:9: .*MY_SE"):
            connect(9, make(*arguments))


class TestSomethingElse:
    def test_a_web_server(self, listen: Listen) -> None:
        def answer(sock: socket.socket) -> None:
            sock.recv(4096)
            sock.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")

        port = listen(answer)
        with pytest.raises(NotAServerError, match=f"127.0.0.1:{port} .*HTTP/1.1 400"):
            connect(port)

    def test_a_server_that_speaks_first(self, listen: Listen) -> None:
        port = listen(lambda sock: sock.sendall(b"220 mail.example.org ESMTP\r\n"))
        with pytest.raises(NotAServerError, match="220 mail"):
            connect(port)

    def test_garbage(self, listen: Listen) -> None:
        port = listen(lambda sock: sock.sendall(bytes(range(256)) * 100))
        with pytest.raises(NotAServerError, match=f"127.0.0.1:{port} is not a ucxstore server"):
            connect(port)

    def test_one_that_closes_at_once(self, listen: Listen) -> None:
        """A server that ends does so, and a proxy without one: neither says what it is."""
        port = listen(lambda sock: sock.close())
        message = f"^127.0.0.1:{port} does not answer: it (closed|reset) the connection$"
        with pytest.raises(ConnectError, match=message) as caught:
            connect(port)
        assert not isinstance(caught.value, NotAServerError)

    def test_one_that_resets(self, listen: Listen) -> None:
        def reset(sock: socket.socket) -> None:
            sock.recv(1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            sock.close()

        port = listen(reset)
        message = f"^127.0.0.1:{port} does not answer: it reset the connection$"
        with pytest.raises(ConnectError, match=message):
            connect(port)

    def test_a_silent_one_is_given_up_in_time(self, listen: Listen) -> None:
        port = listen(lambda sock: None)
        start = time.monotonic()
        message = f"^127.0.0.1:{port} does not answer: it sent nothing within 0.3 s$"
        with pytest.raises(ConnectError, match=message):
            connect(port, timeout=0.3)
        assert 0.2 < time.monotonic() - start < 20

    def test_a_trickling_one_is_given_up_in_time(self, listen: Listen) -> None:
        gone = threading.Event()

        def trickle(sock: socket.socket) -> None:
            for byte in encode(FrameKind.CHALLENGE, b"\0" * 36):
                sock.sendall(bytes([byte]))
                if gone.wait(0.1):
                    break

        port = listen(trickle)
        start = time.monotonic()
        with pytest.raises(NotAServerError, match=r"UCXS.* sent no more within 0\.5 s"):
            connect(port, timeout=0.5)
        assert time.monotonic() - start < 20
        gone.set()

    def test_nobody(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        with pytest.raises(ConnectError, match=f"cannot connect to 127.0.0.1:{port}: .*refused"):
            connect(port)

    def test_one_that_never_accepts(self) -> None:
        # With its backlog full, the kernel drops what more comes.
        with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
            place = listener.getsockname()
            with socket.create_connection(place):
                start = time.monotonic()
                with pytest.raises(ConnectError, match=r"within 0\.3 s"):
                    connect(place[1], timeout=0.3)
                assert time.monotonic() - start < 20

    def test_no_such_host(self) -> None:
        with pytest.raises(ConnectError, match=r"cannot connect to nowhere\.invalid:7400: "):
            connect_to("nowhere.invalid", 7400, timeout=10.0)

    def test_a_host_that_no_name_server_takes(self) -> None:
        host = "x" * 70 + ".example"
        with pytest.raises(ConnectError, match=f"cannot connect to {host}:7400: "):
            connect_to(host, 7400, timeout=10.0)

    def test_a_name_server_that_does_not_answer(self, monkeypatch: pytest.MonkeyPatch) -> None:
        answer = threading.Event()

        def hang(host: str, *_: object, flags: int = 0, **__: object) -> list[object]:
            if flags & socket.AI_NUMERICHOST:
                raise socket.gaierror(socket.EAI_NONAME, "a name")
            answer.wait(30)
            return []

        monkeypatch.setattr(socket, "getaddrinfo", hang)
        with pytest.raises(ConnectError, match=r"slow\.example:1: no address found within 0\.2 s"):
            connect_to("slow.example", 1, timeout=0.2)
        answer.set()

    def test_failures_leave_no_descriptor_behind(self, listen: Listen) -> None:
        port = listen(lambda sock: sock.sendall(b"nonsense and more of it"))
        before = open_descriptors()
        with pytest.raises(NotAServerError):
            connect(port)
        # The other end, in this very process, is closed once it has seen ours close.
        deadline = time.monotonic() + 10
        while len(open_descriptors()) > len(before) and time.monotonic() < deadline:
            threading.Event().wait(0.01)
        assert len(open_descriptors()) <= len(before)
