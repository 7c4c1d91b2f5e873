"""The Unix socket of a server, and the clients that may join their session there."""

import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from ucxstore.base.grants import Bounds
from ucxstore.protocol.handshake import join_mac

_SO_PASSRIGHTS = 83  # since Linux 6.16; of all architectures that have Python's wheels


def let_pass_descriptors(sock: socket.socket, *, allowed: bool) -> None:
    """Let peers pass descriptors over a Unix socket, or have the kernel refuse them to the sender.

    To receive bytes closes the descriptors that came with them, and to close some waits for as long
    as whoever has passed them likes: for a file system of theirs, or a connection that lingers. So
    none comes before the peer has proved that it knows the secret. Older kernels let them come.
    """
    with suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, _SO_PASSRIGHTS, int(allowed))


@dataclass(frozen=True, slots=True)
class Client:
    """A client that has been authenticated.

    Parameters
    ----------
    token : bytes
        The token of its session.
    peer : str
        Its "host:port".
    rights : Bounds
        What it may do.
    origin : str
        Whose session it is: the `owner` of the `Guest`.
    record : bytes
        The record of the server's set that it is sent; empty for none.
    """

    token: bytes
    peer: str
    rights: Bounds
    origin: str
    record: bytes = b""


@dataclass(slots=True)
class Offer:
    """A client that was told of the Unix socket. As a context, it may join until its end."""

    joining: "Joining"
    client: Client
    joined: bool = False

    def __enter__(self) -> Self:
        self.joining.offers[join_mac(self.client.token)] = self
        return self

    def __exit__(self, *_: object) -> None:
        self.joining.offers.pop(join_mac(self.client.token), None)


class Joining:
    """The Unix socket, bound and listening, and the offers to join there.

    Parameters
    ----------
    listener : socket.socket
    """

    def __init__(self, listener: socket.socket) -> None:
        let_pass_descriptors(listener, allowed=False)  # those that it accepts begin like it
        self.listener = listener
        self.listener.setblocking(False)
        bound = listener.getsockname()
        self.name = bound if isinstance(bound, bytes) else os.fsencode(bound)
        self.offers: dict[bytes, Offer] = {}  # by what is sent to take them

    @property
    def has_path(self) -> bool:
        """Whether processes of other network namespaces may reach it, by a path."""
        return not self.name.startswith(b"\0")

    def offers_to(self, sock: socket.socket) -> bool:
        """Whether the peer of a TCP connection may be able to join here."""
        return self.has_path or sock.getpeername()[0] == sock.getsockname()[0]

    def take(self, mac: bytes) -> Offer | None:
        """Take an offer, once; ``None`` where there is none."""
        offer = self.offers.pop(mac, None)
        if offer is not None:
            offer.joined = True
        return offer

    def close(self) -> None:
        """Close the socket, and remove its file."""
        self.listener.close()
        if self.has_path:
            with suppress(OSError):
                Path(os.fsdecode(self.name)).unlink()
