"""A foreign process that speaks the language of UCX's TCP transport (uct/tcp of UCX 1.18 to 1.22).

It needs no key, no address of a worker's, and no permission: whoever is let in may write anywhere.
"""

import os
import socket
import struct
from contextlib import suppress

from tests.eventually import nothing_happens

_MAGIC = 0xCAFEBABE12345678
_CONNECT, _PUT = 32, 33  # identifiers of messages
_REQUEST = 1

NOBODY = 65534


def reach(host: str, port: int, seconds: float = 1.5) -> str:
    """Try to connect: "connected", or what came of it."""
    with socket.socket() as sock:
        sock.settimeout(seconds)
        try:
            sock.connect((host, port))
        except TimeoutError:
            return "no answer"
        except OSError as error:
            return os.strerror(error.errno or 0)
        return "connected"


def put(host: str, port: int, place: int, data: bytes) -> str:
    """Write `data` into the memory of the process that has this socket, at the address `place`."""
    with socket.socket() as sock:
        sock.settimeout(1.5)
        try:
            sock.connect((host, port))
        except OSError as error:
            return str(error)
        own, own_port = sock.getsockname()
        address = struct.pack("<H", socket.AF_INET) + struct.pack("!H", own_port)
        address += socket.inet_aton(own) + bytes(8)
        request = struct.pack("<IBQ", _REQUEST, 0, 0) + address
        sock.sendall(struct.pack("<Q", _MAGIC))
        sock.sendall(struct.pack("<BI", _CONNECT, len(request)) + request)
        write = struct.pack("<QQI", place, len(data), 1)
        sock.sendall(struct.pack("<BI", _PUT, len(write)) + write + data)
        with suppress(OSError):
            sock.recv(4096)
        nothing_happens(0.5)
        return "sent"


def become_nobody() -> None:
    """Go on as another user."""
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
