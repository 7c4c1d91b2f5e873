"""Refuse connections, and count and log the handshakes that fail."""

import logging
import socket

from ucxstore.base import logs
from ucxstore.base.native import core
from ucxstore.protocol.frames import RejectCode, encode_reject
from ucxstore.server.accepting.guests import Guest


class HandshakeRefusals:
    """The handshakes of a server that have failed.

    Parameters
    ----------
    native : core.Server
        Tells how many they are.

    Attributes
    ----------
    turned_away : core.Counter
        Connections whose handshake failed.
    probes : core.Counter
        Connections that only looked, as health checks do.
    """

    def __init__(self, native: core.Server) -> None:
        self.turned_away = core.Counter()
        self.probes = core.Counter()
        native.tell("turned_away", self.turned_away)
        native.tell("probes", self.probes)

    def note(
        self,
        level: int,
        origin: str,
        peer: str,
        message: str,
        *arguments: object,
        exc_info: bool = False,
    ) -> None:
        """Count a handshake that failed, and log it, unless there are many."""
        self.turned_away.add()
        extra = {"event": "handshake_refused", "peer": peer}
        logs.refusals.log(
            level, "refused handshakes", origin, message, *arguments, extra=extra, exc_info=exc_info
        )

    def note_end(self, guest: Guest, peer: str, what: str, error: Exception) -> None:
        """Note a handshake that did not come to its end, or that was only a probe of the port."""
        if guest.was_a_probe:
            self.probes.add()
            logs.refusals.log(
                logging.DEBUG,
                "probes of the port",
                guest.origin,
                "%s has closed its connection and asked for nothing",
                peer,
                extra={"event": "probed", "peer": peer},
            )
        else:
            self.note(logging.INFO, guest.origin, peer, "%s: %s", what, error)


def refuse(sock: socket.socket, code: RejectCode, reason: str) -> None:
    """Send a REJECT, if it fits without waiting."""
    send_now(sock, encode_reject(code, reason))


def send_now(sock: socket.socket, data: bytes) -> int:
    """Send as much as fits without waiting; return how many bytes that was."""
    try:
        return sock.send(data)
    except OSError:
        return 0
