"""Who must go where too many are in the handshake at once."""

import os
import socket
from collections.abc import Iterator

import pytest

from ucxstore.protocol.handshake import ReceivedBytes
from ucxstore.server.accepting.guests import Guest, Guests


@pytest.fixture
def sock() -> Iterator[socket.socket]:
    with socket.socket() as one:
        yield one


def test_the_most_silent_of_those_from_where_most_come(sock: socket.socket) -> None:
    guests = Guests(5)
    few = Guest(sock, "few", heard=0.0)
    many = [Guest(sock, "many", heard=10.0 - number) for number in range(4)]
    for guest in (few, *many):
        assert guests.add(guest) is None
    many[-1].hear(ReceivedBytes(b"hello"))
    assert guests.add(Guest(sock, "new", heard=5.0)) is many[2]
    assert guests.add(Guest(sock, "new", heard=6.0)) is many[1]
    assert len(guests) == 5


def test_one_that_has_gone_makes_room(sock: socket.socket) -> None:
    guests = Guests(1)
    first = Guest(sock, "a")
    assert guests.add(first) is None
    guests.remove(first)
    guests.remove(first)
    assert guests.remove_most_silent() is None
    assert guests.add(Guest(sock, "a")) is None


def test_where_they_come_from() -> None:
    one, other = socket.socketpair()
    with one, other:
        guest = Guest.at(one)
        assert (guest.origin, guest.user) == (f"user {os.getuid()}", os.getuid())
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as client,
    ):
        accepted, _ = listener.accept()
        with accepted:
            guest = Guest.at(accepted)
            assert (guest.origin, guest.user) == (f"127.0.0.1, user {os.getuid()}", os.getuid())
            assert guest.owner == f"user {os.getuid()}"
            client.close()  # then it is nobody's
            guest = Guest.at(accepted)
            assert (guest.origin, guest.user) == ("127.0.0.1", None)
            assert guest.owner == "127.0.0.1"
    with socket.socket() as unconnected, pytest.raises(OSError, match="not connected"):
        Guest.at(unconnected)
