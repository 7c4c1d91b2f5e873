"""Options and names of the control connection's sockets, at both ends."""

import socket

from ucxstore.base.address import HostPort

type SocketAddress = tuple[str, int] | tuple[str, int, int, int]

# Seconds. A machine that vanishes without a word is noticed after 10 + 3 * 5 of them; a process
# that dies is noticed at once, by the end of its connection.
_KEEPALIVE_IDLE = 10
_KEEPALIVE_INTERVAL = 5
_KEEPALIVE_PROBES = 3


def tune(sock: socket.socket) -> None:
    """Send small frames at once, and notice a peer that has vanished."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE_IDLE)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _KEEPALIVE_INTERVAL)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _KEEPALIVE_PROBES)


def name_of(address: SocketAddress) -> str:
    """Write a socket's address as "host:port"."""
    return str(HostPort(address[0], address[1]))
