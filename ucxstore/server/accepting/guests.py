"""`Guests`: the peers in the handshake, and which of them must go for others."""

import socket
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

from ucxstore.base.native import core
from ucxstore.protocol.handshake import ReceivedBytes
from ucxstore.protocol.sockets import name_of


@dataclass(slots=True, eq=False)
class Guest:
    """A peer in the handshake.

    Parameters
    ----------
    sock : socket.socket
    origin : str
        Its address and, if it is a process of this host, its user.
    user : int or None
        The user, if it is a process of this host.
    name : str
        Its "host:port"; empty on a Unix socket.
    leave : callable
        Ends its handshake.
    """

    sock: socket.socket
    origin: str
    user: int | None = None
    name: str = ""
    leave: Callable[[], object] = lambda: None
    heard: float = field(default_factory=time.monotonic)
    spoke: bool = False  # whether a byte has come
    welcomed: bool = False
    hung_up: bool = False

    @classmethod
    def at(cls, sock: socket.socket) -> Self:
        """Return the one at the other end of a connection.

        Raises
        ------
        OSError
            If it is not connected any more.
        """
        user = core.user_at_other_end(sock.fileno())
        parts, name = [], ""
        if sock.family != socket.AF_UNIX:
            address = sock.getpeername()
            parts, name = [str(address[0])], name_of(address)
        if user is not None:
            parts.append(f"user {user}")
        return cls(sock, ", ".join(parts), user, name)

    @property
    def was_a_probe(self) -> bool:
        """Whether it has only looked: at the port, without a byte, or at the server's welcome.

        Health checks do the first, and clients of several servers the second, who compare what
        these are.
        """
        return self.hung_up and (self.welcomed or not self.spoke)

    @property
    def owner(self) -> str:
        """Whose session it will have.

        The user's, if it is a process of this host, which has many addresses; else the address's.
        """
        return self.origin if self.user is None else f"user {self.user}"

    def hear(self, received: ReceivedBytes) -> None:
        """Note what it has said when the handshake asked for something."""
        self.heard = time.monotonic()
        self.spoke = self.spoke or bool(received.data)
        self.hung_up = bool(received.ended)


class Guests:
    """The peers in the handshake. Only for the thread of the handshakes.

    Where there is no room, one goes that has been silent for the longest time, of those from where
    most come. So silent peers do not keep others out.

    Parameters
    ----------
    limit : int
        How many there may be.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._guests: set[Guest] = set()

    def __len__(self) -> int:
        return len(self._guests)

    @property
    def sockets(self) -> list[socket.socket]:
        """Their sockets."""
        return [guest.sock for guest in self._guests]

    def add(self, guest: Guest) -> Guest | None:
        """Add one; return the one that was removed for it, if any."""
        gone = self.remove_most_silent() if len(self._guests) >= self._limit else None
        self._guests.add(guest)
        return gone

    def remove(self, guest: Guest) -> None:
        """Remove one, if it is still there."""
        self._guests.discard(guest)

    def remove_most_silent(self) -> Guest | None:
        """Remove the one that must go first, and return it."""
        if not self._guests:
            return None
        [(origin, _)] = Counter(guest.origin for guest in self._guests).most_common(1)
        gone = min(
            (guest for guest in self._guests if guest.origin == origin),
            key=lambda guest: guest.heard,
        )
        self._guests.remove(gone)
        return gone
