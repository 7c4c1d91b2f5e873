"""The Unix socket of a server: its name, its file, and who may join there."""

import asyncio
import errno
import logging
import os
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import address_of
from tests.eventually import eventually, nothing_happens, nothing_happens_async
from tests.values import as_buffer
from ucxstore import UcxStore
from ucxstore.base import grants
from ucxstore.base.address import Address, HostPort
from ucxstore.base.errors import ConnectError
from ucxstore.base.grants import ALL, Bounds, Role
from ucxstore.base.options import Local
from ucxstore.base.secret import Secret
from ucxstore.client.connect import Greeting
from ucxstore.protocol.frames import (
    TOKEN_BYTES,
    FrameKind,
    RejectCode,
    Welcome,
    encode,
    encode_reject,
)
from ucxstore.protocol.handshake import ConnectAnewError, join_mac, joined
from ucxstore.server import Server
from ucxstore.server.accepting import acceptor, reception
from ucxstore.server.accepting.acceptor import Acceptor
from ucxstore.server.accepting.joining import Client, Joining, Offer
from ucxstore.server.accepting.listen import listen, listen_locally
from ucxstore.server.accepting.reception import Reception
from ucxstore.server.accepting.sessions import NewSessions
from ucxstore.server.identity import Identity

TOKEN = b"t" * TOKEN_BYTES
CLIENT = Client(TOKEN, "a client", ALL, "user 7")
SECRET = Secret("correct horse battery staple")
TERMS = Welcome(b"", bytes(16), read_only=False)


class Sessions:
    """In place of the native server: keeps the sockets of those who have joined."""

    def __init__(self) -> None:
        self.joined: dict[bytes, tuple[int, socket.socket]] = {}
        self.bounds: dict[bytes, Bounds] = {}
        self.on_room: Callable[[], bool] = lambda: True
        self.renewed = 0

    def tell(self, name: str, count: object) -> None: ...

    def open(self, thread: int, fd: int) -> "Sessions":
        raise NotImplementedError

    @property
    def address(self) -> bytes:
        raise NotImplementedError

    def attach(
        self, fd: int, token: bytes, address: bytes, peer: str, bounds: Bounds, origin: str
    ) -> None:
        raise NotImplementedError

    def make_room(self, origin: str, waiting: int, is_short: bool) -> bool:
        return self.on_room()

    def renew_sessions(self, timeout: float) -> None:
        self.renewed += 1

    def join(
        self,
        thread: int,
        fd: int,
        token: bytes,
        peer: str,
        bounds: Bounds,
        origin: str,
        answer: bytes,
    ) -> None:
        self.joined[token] = thread, socket.socket(fileno=fd)
        self.joined[token][1].sendall(answer)
        self.bounds[token] = bounds


@pytest.fixture
def sessions() -> Iterator[Sessions]:
    sessions = Sessions()
    yield sessions
    for _, sock in sessions.joined.values():
        sock.close()


@pytest.fixture
def accepting(sessions: Sessions) -> Iterator[Acceptor]:
    listener = listen(HostPort("127.0.0.1", 0), anywhere=False)
    accepting = Acceptor(
        listener,
        Reception(
            NewSessions(sessions, 2),
            b"",
            Identity(bytes(16)),
            TERMS,
            Joining(listen_locally(None)),
        ),
    )
    yield accepting
    accepting.stop(20.0)


def guests_of(accepting: Acceptor) -> int:
    """Count those whose handshake is under way."""
    return len(accepting._guests)


@pytest.fixture
def few_handshakes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let only three be under way, at servers that are made from now on."""
    monkeypatch.setattr(acceptor, "MAX_HANDSHAKES", 3)


def greet(accepting: Acceptor) -> Greeting:
    host, port = accepting._listener.getsockname()
    return Greeting(HostPort(host, port), None, 20.0)


def says(name: bytes, data: bytes) -> bytes:
    """Say this on a Unix socket, and return all that is answered."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(20)
        sock.connect(name)
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        answer = b""
        try:
            while part := sock.recv(4096):
                answer += part
        except ConnectionResetError:
            pass
        return answer


class TestOffers:
    def test_taken_once_by_who_knows_the_token(self) -> None:
        joining = Joining(listen_locally(None))
        with Offer(joining, CLIENT) as offer:
            assert joining.take(join_mac(b"another")) is None
            assert not offer.joined
            assert joining.take(join_mac(TOKEN)) is offer
            assert offer.joined
            assert joining.take(join_mac(TOKEN)) is None
        joining.close()

    def test_gone_with_its_handshake(self) -> None:
        joining = Joining(listen_locally(None))
        with Offer(joining, CLIENT):
            pass
        assert joining.take(join_mac(TOKEN)) is None
        assert not joining.offers
        joining.close()

    def test_made_to_clients_of_this_host(self, tmp_path: Path) -> None:
        class Connection:
            def __init__(self, ours: str, theirs: str) -> None:
                self.getsockname = lambda: (ours, 1)
                self.getpeername = lambda: (theirs, 2)

        here, there = Connection("10.0.0.1", "10.0.0.1"), Connection("10.0.0.1", "10.0.0.2")
        name, path = (
            Joining(listen_locally(place)) for place in (None, os.fspath(tmp_path / "socket"))
        )
        assert name.offers_to(here)
        assert not name.offers_to(there)
        assert path.offers_to(here)
        assert path.offers_to(there)
        name.close()
        path.close()


class TestJoin:
    def test_a_session_on_the_unix_socket(self, accepting: Acceptor, sessions: Sessions) -> None:
        with greet(accepting) as greeting:
            token = greeting.welcome.token
            fd = greeting.join()
            assert fd is not None
            assert list(sessions.joined) == [token]
            with socket.socket(fileno=fd) as sock:
                assert not os.get_blocking(fd)
                assert not os.get_inheritable(fd)
                with pytest.raises(BlockingIOError):
                    sock.recv(1, socket.MSG_DONTWAIT)  # nothing is left to read
                sessions.joined[token][1].sendall(b"hello")
                sock.settimeout(20)
                assert sock.recv(5) == b"hello"
        eventually(lambda: not guests_of(accepting))
        assert int(accepting.reception.refusals.turned_away) == 0

    def test_only_the_session_has_the_socket(
        self,
        accepting: Acceptor,
        sessions: Sessions,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Who is the last to close it waits for the closes of the descriptors in it."""
        hung_up = threading.Event()
        alone = []

        def end_at_once(_thread: int, fd: int, *_rest: object) -> None:
            os.close(fd)
            alone.append(hung_up.wait(10))

        monkeypatch.setattr(sessions, "join", end_at_once)
        with greet(accepting) as greeting:
            welcome = greeting.welcome
            says(welcome.socket, encode(FrameKind.JOIN, join_mac(welcome.token)))
            hung_up.set()
        eventually(lambda: alone == [True])

    def test_threads_take_turns(self, accepting: Acceptor, sessions: Sessions) -> None:
        for _ in range(4):
            with greet(accepting) as greeting:
                fd = greeting.join()
                assert fd is not None
                os.close(fd)
        assert [thread for thread, _ in sessions.joined.values()] == [0, 1, 0, 1]

    @pytest.mark.parametrize("secret", [SECRET, SECRET.grant("run-1/", expires="1h")])
    def test_a_session_is_bound_before_the_client_is_told_that_it_may_join(
        self, secret: Secret, sessions: Sessions, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        listener = listen(HostPort("127.0.0.1", 0), anywhere=False)
        identity, joining = Identity(bytes(16)), Joining(listen_locally(None))
        new = NewSessions(sessions, 1)
        accepting = Acceptor(listener, Reception(new, SECRET.reveal(), identity, TERMS, joining))
        send = asyncio.SelectorEventLoop.sock_sendall

        async def send_and_dawdle(loop: Any, sock: socket.socket, data: bytes) -> None:
            await send(loop, sock, data)
            await nothing_happens_async(0.2)  # the client has read it, and goes on

        monkeypatch.setattr(asyncio.SelectorEventLoop, "sock_sendall", send_and_dawdle)
        host, port = listener.getsockname()
        with Greeting(HostPort(host, port), secret, 20.0) as greeting:
            fd = greeting.join()
            assert fd is not None
            os.close(fd)
        accepting.stop(20.0)
        caveats = grants.credentials_of(secret.reveal()).caveats
        bounds = grants.bounds_of(caveats)
        if not caveats:  # who has the secret itself may operate the server
            bounds = bounds._replace(role=Role.OWNER)
        assert sessions.bounds == {greeting.welcome.token: bounds}

    def test_used_twice(self, accepting: Acceptor, sessions: Sessions) -> None:
        with greet(accepting) as greeting:
            token, name = greeting.welcome.token, greeting.welcome.socket
            fd = greeting.join()
            assert fd is not None
            os.close(fd)
            assert says(name, encode(FrameKind.JOIN, join_mac(token))) == b""
            assert greeting.join() is None
        assert len(sessions.joined) == 1
        eventually(lambda: int(accepting.reception.refusals.turned_away) == 2)

    def test_unknown(self, accepting: Acceptor, sessions: Sessions) -> None:
        with greet(accepting) as greeting:
            name = greeting.welcome.socket
            assert says(name, encode(FrameKind.JOIN, join_mac(TOKEN))) == b""
            # The client that has the offer can still take it.
            fd = greeting.join()
            assert fd is not None
            os.close(fd)
        assert len(sessions.joined) == 1

    def test_expired(self, accepting: Acceptor, sessions: Sessions) -> None:
        with greet(accepting) as greeting:
            token, name = greeting.welcome.token, greeting.welcome.socket
        eventually(lambda: not guests_of(accepting))
        assert says(name, encode(FrameKind.JOIN, join_mac(token))) == b""
        assert not sessions.joined

    def test_after_a_while(
        self,
        accepting: Acceptor,
        sessions: Sessions,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(reception, "HANDSHAKE_SECONDS", 0.1)
        with greet(accepting) as greeting:
            eventually(lambda: int(accepting.reception.refusals.turned_away) == 1)
            assert greeting.join() is None
        assert not sessions.joined

    def test_a_server_that_joins_a_set_while_a_client_waits_for_room(
        self, accepting: Acceptor, sessions: Sessions
    ) -> None:
        identity = accepting.reception.identity

        def make_room() -> bool:
            had_record, identity.record = bool(identity.record), b"a record"
            return had_record

        sessions.on_room = make_room
        with greet(accepting) as greeting, pytest.raises(ConnectAnewError):
            greeting.join()
        assert identity.record
        assert not sessions.joined, "it was told of no set"

    def test_one_that_has_joined_may_hang_up_when_it_likes(
        self,
        accepting: Acceptor,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        caplog.set_level(logging.INFO, "ucxstore.server")
        monkeypatch.setattr(reception, "HANDSHAKE_SECONDS", 0.3)
        with greet(accepting) as greeting:
            fd = greeting.join()
            assert fd is not None
            eventually(lambda: not guests_of(accepting))  # the deadline has passed
            os.close(fd)
        assert int(accepting.reception.refusals.turned_away) == 0
        assert "handshake" not in caplog.text

    @pytest.mark.parametrize(
        "data",
        [
            b"",
            b"UCXS",
            b"GET / HTTP/1.0\r\n\r\n",
            b"\0" * 10_000,
            joined(TOKEN),
            encode_reject(RejectCode.BUSY, "no"),
            encode(FrameKind.HELLO, bytes(32)),
        ],
    )
    def test_strangers(self, accepting: Acceptor, sessions: Sessions, data: bytes) -> None:
        with greet(accepting) as greeting:
            try:
                answer = says(greeting.welcome.socket, data)
            except (BrokenPipeError, ConnectionResetError):  # it hung up before the last byte
                answer = b""
            assert answer == b""
            refusals = accepting.reception.refusals
            eventually(lambda: int(refusals.turned_away) + int(refusals.probes) == 1)
            assert int(refusals.probes) == (data == b"")
            fd = greeting.join()
            assert fd is not None
            os.close(fd)

    def test_the_silent_keep_nobody_waiting(
        self, accepting: Acceptor, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with greet(accepting) as greeting, ExitStack() as stack:
            for _ in range(20):
                silent = stack.enter_context(socket.socket(socket.AF_UNIX))
                silent.connect(greeting.welcome.socket)
            fd = greeting.join()
            assert fd is not None
            os.close(fd)

    def test_too_many_that_are_silent_give_way(
        self, few_handshakes: None, accepting: Acceptor
    ) -> None:
        with greet(accepting) as greeting, ExitStack() as stack:
            silent = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(5)]
            for one in silent:
                one.settimeout(20)
                one.connect(greeting.welcome.socket)
            fd = greeting.join()
            assert fd is not None
            os.close(fd)
            assert b"silent for longest" in silent[0].recv(4096)


@pytest.mark.parametrize("local", ["auto", "off"])
def test_a_client_is_welcomed_just_before_another_one_makes_the_set(
    local: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the processes of a job do, which begin at once: nobody is refused."""
    with Server("memory://") as one, Server("memory://") as two:
        address, made = address_of([one, two]), False
        find_room = NewSessions.find_room

        def make_set() -> None:
            with UcxStore(address, local=local, integrity=True) as other:
                other.set_sync("other", as_buffer(b"its value"))

        async def find_room_late(self: NewSessions, origin: str, files: int) -> None:
            nonlocal made
            if not made:
                made = True
                await asyncio.to_thread(make_set)
            await find_room(self, origin, files)

        monkeypatch.setattr(NewSessions, "find_room", find_room_late)
        with UcxStore(address, local=local) as store:
            for number in range(16):
                store.set_sync(f"{number}", as_buffer(b"value"))
            found = store.get_sync("other")
        assert made
        assert found is not None
        assert found.to_bytes() == b"its value"


def test_clients_connect_anew_also_if_who_has_made_the_set_goes_before_it_is_kept(
    accepting: Acceptor, sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity = accepting.reception.identity
    keep, keeping, go_on = identity.keep, threading.Event(), threading.Event()

    def dawdle(expected: bytes, record: bytes) -> bytes:
        keeping.set()
        assert go_on.wait(20.0)
        return keep(expected, record)

    monkeypatch.setattr(identity, "keep", dawdle)
    monkeypatch.setattr(reception, "HANDSHAKE_SECONDS", 0.3)
    with greet(accepting) as greeting, pytest.raises(ConnectError):
        greeting.keep(b"", b"a record")
    assert keeping.is_set()
    monkeypatch.setattr(reception, "HANDSHAKE_SECONDS", 20.0)
    with ThreadPoolExecutor(1) as pool:
        later = pool.submit(lambda: greet(accepting))
        nothing_happens(0.1)
        assert not later.done(), "it is to be told of the set"
        go_on.set()
        with later.result(20.0) as greeting:
            assert greeting.welcome.record == b"a record"
    assert sessions.renewed == 1


class TestClients:
    """What a client does where the socket cannot be had."""

    def test_a_server_without_one(self) -> None:
        with (
            Server("memory://", local=False) as server,
            greeting_of(server) as greeting,
        ):
            assert greeting.welcome.socket == b""
            assert greeting.join() is None

    def test_a_name_that_nobody_has_here(
        self, accepting: Acceptor, sessions: Sessions, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert accepting.reception.joining is not None
        monkeypatch.setattr(accepting.reception.joining, "name", b"\0ucxstore-of-another-namespace")
        with greet(accepting) as greeting:
            assert greeting.join() is None
        assert not sessions.joined

    def test_a_server_that_does_not_know_the_token(
        self, accepting: Acceptor, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Another program has the name: it gets a MAC, and cannot answer with its own."""
        name = b"\0ucxstore-squatted"
        with socket.socket(socket.AF_UNIX) as squatter:
            squatter.bind(name)
            squatter.listen()
            assert accepting.reception.joining is not None
            monkeypatch.setattr(accepting.reception.joining, "name", name)
            with greet(accepting) as greeting:
                token = greeting.welcome.token
                monkeypatch.setattr(greeting._deadline, "left", lambda: 0.3)
                assert greeting.join() is None
            met, _ = squatter.accept()
            with met:
                assert met.recv(4096) == encode(FrameKind.JOIN, join_mac(token))

    def test_no_descriptor_is_left(
        self, accepting: Acceptor, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with greet(accepting) as greeting:

            def refuse(*_: object) -> socket.socket:
                raise OSError(errno.EMFILE, "Too many open files")

            with monkeypatch.context() as patch:
                patch.setattr("ucxstore.client.connect.socket.socket", refuse)
                assert greeting.join() is None


def greeting_of(server: Server) -> Greeting:
    [place] = Address.parse(server.address).servers
    return Greeting(place, None, 20.0)


class TestSocket:
    def test_a_name_of_its_own(self) -> None:
        one, two = Joining(listen_locally(None)), Joining(listen_locally(None))
        assert one.name.startswith(b"\0ucxstore-")
        assert one.name != two.name
        assert not one.has_path
        one.close()
        two.close()

    def test_a_path(self, tmp_path: Path) -> None:
        path = tmp_path / "of the store"
        with Server("memory://", local=True, socket=path) as server:
            assert stat.S_ISSOCK(path.stat().st_mode)
            with greeting_of(server) as greeting:
                assert greeting.welcome.socket == os.fsencode(path)
                fd = greeting.join()
                assert fd is not None
                os.close(fd)
        assert not path.exists()

    def test_a_stale_one_is_replaced(self, tmp_path: Path) -> None:
        path = tmp_path / "socket"
        with socket.socket(socket.AF_UNIX) as gone:
            gone.bind(os.fspath(path))
        assert path.is_socket()
        with Server("memory://", local=True, socket=path) as server, greeting_of(server) as one:
            fd = one.join()
            assert fd is not None
            os.close(fd)

    def test_one_in_use_is_named(self, tmp_path: Path) -> None:
        path = tmp_path / "socket"
        with Server("memory://", local=True, socket=path) as server:
            with pytest.raises(OSError, match=str(path)) as caught:
                Server("memory://", local=True, socket=path)
            assert caught.value.errno == errno.EADDRINUSE
            with greeting_of(server) as greeting:  # it goes on
                fd = greeting.join()
                assert fd is not None
                os.close(fd)

    def test_a_file_is_not_replaced(self, tmp_path: Path) -> None:
        path = tmp_path / "data"
        path.write_bytes(b"precious")
        with pytest.raises(OSError, match=str(path)):
            Server("memory://", local=True, socket=path)
        assert path.read_bytes() == b"precious"

    def test_a_folder_that_is_not_there(self, tmp_path: Path) -> None:
        path = tmp_path / "nowhere" / "socket"
        with pytest.raises(FileNotFoundError, match=str(path)):
            Server("memory://", local=True, socket=path)

    def test_a_server_that_cannot_start_leaves_none(self, tmp_path: Path) -> None:
        path = tmp_path / "socket"
        with Server("memory://") as other:
            place = other.address.removeprefix("ucx://")
            with pytest.raises(OSError, match="in use"):
                Server("memory://", place, local=True, socket=path)
        assert not path.exists()

    def test_draining_closes_it(self, tmp_path: Path) -> None:
        path = tmp_path / "socket"
        with Server("memory://", local=True, socket=path) as server:
            assert server.drain(20.0)
            assert not path.exists()
