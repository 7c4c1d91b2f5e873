"""What a process listens on, and the questions about it that a script answers."""

import json
import socket
import sys
from contextlib import suppress
from pathlib import Path

_LISTENING = "0A"
_ACCEPTS = 0x10000


def _own_sockets() -> dict[int, int]:
    """Return the descriptors of this process's sockets, by inode."""
    found = {}
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            name = str(entry.readlink())
            if name.startswith("socket:["):
                found[int(name[8:-1])] = int(entry.name)
    return found


def _lines(table: str) -> list[list[str]]:
    path = Path(f"/proc/self/net/{table}")
    return [line.split() for line in path.read_text().splitlines()[1:]] if path.exists() else []


def _tcp() -> list[tuple[str, int, int]]:
    """Return the host, port and descriptor of each TCP socket that listens."""
    own = _own_sockets()
    found = []
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in _lines(table):
            if line[3] == _LISTENING and int(line[9]) in own:
                packed, port = line[1].split(":")
                words = [packed[i : i + 8] for i in range(0, len(packed), 8)]
                address = b"".join(bytes.fromhex(word)[::-1] for word in words)
                fd = own[int(line[9])]
                found.append((socket.inet_ntop(family, address), int(port, 16), fd))
    return found


def listening() -> list[str]:
    """Return all that this process listens on, or gets datagrams at, as "tcp HOST:PORT" and such.

    A Unix socket is "unix stream NAME" or "unix datagram", whose names nobody chooses.
    """
    own = _own_sockets()
    found = [f"tcp {host}:{port}" for host, port, _ in _tcp()]
    for table in ("udp", "udp6", "raw", "raw6"):
        found += [f"{table} {line[1]}" for line in _lines(table) if int(line[9]) in own]
    for line in _lines("unix"):
        if int(line[6]) in own and len(line) > 7:
            if int(line[3], 16) & _ACCEPTS:
                found.append(f"unix stream {line[7]}")
            elif line[4] == "0002":
                found.append("unix datagram")
    return sorted(found)


def answer() -> None:
    """Answer the questions that come on standard input, a line each, until its end."""
    print("ready", flush=True)
    for line in sys.stdin:
        if line.strip() == "listening":
            print(json.dumps(listening()), flush=True)
