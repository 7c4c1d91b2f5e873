"""The TCP ports of this process and of the server's, for ``ucxstore doctor``."""

import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ucxstore.base.address import HostPort

_CONNECTED = "01"


@dataclass(frozen=True, kw_only=True)
class Ports:
    """Where the connections of this process go.

    Attributes
    ----------
    control : str
        ``host:port`` of the server, as it was dialled.
    data : list of str
        Where at the server UCX's connections go.
    """

    control: str
    data: list[str]


def examine_ports(server: HostPort) -> Ports:
    """Examine the connections of this process, while it is connected to a server."""
    own = set(_sockets())
    connected = set()
    for family, name in ((socket.AF_INET, "tcp"), (socket.AF_INET6, "tcp6")):
        for _, remote, state, inode in _table(Path("/proc/self/net", name), family):
            if inode in own and state == _CONNECTED and remote[1] != server.port:
                connected.add(remote)
    return Ports(
        control=str(server),
        data=[str(HostPort(*place)) for place in sorted(connected)],
    )


def _sockets() -> Iterator[str]:
    """Yield the inodes of this process's sockets."""
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # it was that of the listing
            target = str(descriptor.readlink())
            if target.startswith("socket:["):
                yield target[8:-1]


type _Place = tuple[str, int]


def _table(path: Path, family: int) -> Iterator[tuple[_Place, _Place, str, str]]:
    try:
        lines = path.read_text().splitlines()[1:]
    except OSError:  # a kernel without IPv6
        return
    for line in lines:
        fields = line.split()
        yield _place(fields[1], family), _place(fields[2], family), fields[3], fields[9]


def _place(text: str, family: int) -> _Place:
    """Read an address as the kernel writes it: in words of four bytes, in its own order."""
    address, _, port = text.partition(":")
    data = bytes.fromhex(address)
    if sys.byteorder == "little":
        data = b"".join(data[at : at + 4][::-1] for at in range(0, len(data), 4))
    return socket.inet_ntop(family, data), int(port, 16)
