"""Presence: what a server keeps in a source, so that the other servers of that source know of it.

Whoever writes "fenced" in its place shuts the server out: see docs/consistency.md.
"""

import json
import os
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from ucxstore.errors import ProtocolError
from ucxstore.foreign import Fields
from ucxstore.keys import RESERVED_FOLDER
from ucxstore.server.sources.source import Source

FOLDER = f"{RESERVED_FOLDER}servers/"

_MAX_CARD_BYTES = 64 * 1024
_FENCED = b'{"fenced": true}'
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_seconds() -> float:
    """Return the time on the clock of leases, which counts while the host is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """What a server tells others of itself.

    Parameters
    ----------
    server : str
        Tells servers apart: of each start another one.
    epoch : int
        Counts how often it has joined the others.
    asks : bool
        Whether it never relies on its lease, since its user has chosen a freshness.
    addresses : tuple of str
        The hosts by which it may be reached, best first.
    port : int
    process : tuple
        Host, namespace, number and start of its process, by which others of that host see its end.
    """

    server: str
    epoch: int
    asks: bool
    addresses: tuple[str, ...]
    port: int
    process: tuple[str, str, int, int]

    @property
    def name(self) -> str:
        """The name under which it is kept."""
        return f"{self.server}-{self.epoch}"

    def encode(self) -> bytes:
        """Write it as JSON."""
        return json.dumps(asdict(self)).encode()

    @staticmethod
    def parse(data: bytes) -> "Card | None":
        """Read what `encode` has written; ``None`` for anything else, such as "fenced"."""
        try:
            fields = Fields.read(data, "a presence", _MAX_CARD_BYTES)
            match fields.plain_list("process", 4):
                case [str(host), str(namespace), int(number), int(start)]:
                    return Card(
                        server=fields.text("server"),
                        epoch=fields.integer("epoch"),
                        asks=fields.flag("asks"),
                        addresses=tuple(fields.texts("addresses")),
                        port=fields.integer("port"),
                        process=(host, namespace, number, start),
                    )
        except ProtocolError:
            pass
        return None


class Presences:
    """The presences in a source.

    Parameters
    ----------
    source : Source
    """

    def __init__(self, source: Source) -> None:
        self._source = source

    async def put(self, card: Card) -> None:
        """Write a card."""
        await self._write(card.name, card.encode())

    async def names(self) -> list[str]:
        """List the names of all that are there."""
        found = await self._source.list_reserved()
        return [path.removeprefix(FOLDER) for path in found if path.startswith(FOLDER)]

    async def read(self, name: str) -> bytes | None:
        """Return what is kept under a name; ``None`` for nothing."""
        found = await self._source.get(f"{FOLDER}{name}", None)
        return None if found is None else bytes(found.buffer)

    async def fence(self, name: str) -> None:
        """Shut a server out. It may rely on its lease until that is over."""
        await self._write(name, _FENCED)

    async def remove(self, name: str) -> None:
        """Remove what is kept under a name."""
        await self._source.remove([f"{FOLDER}{name}"])

    async def _write(self, name: str, data: bytes) -> None:
        value = np.frombuffer(data, np.uint8)
        await self._source.put(f"{FOLDER}{name}", value, if_absent=False)


def this_process() -> tuple[str, str, int, int]:
    """Return what tells this process from all others."""
    number = os.getpid()
    with suppress(OSError, ValueError):
        host = _BOOT_ID.read_text().strip()
        return host, str(Path("/proc/self/ns/pid").readlink()), number, _look(number)[1]
    return "", "", number, 0


def has_ended(process: tuple[str, str, int, int]) -> bool:
    """Tell whether a process is known to have ended: one that this host has had."""
    host, namespace, number, start = process
    mine = this_process()
    if not host or (host, namespace) != mine[:2]:
        return False
    try:
        state, began = _look(number)
    except OSError:
        return not Path(f"/proc/{number}").exists()
    except ValueError:
        return False
    return began != start or state in "ZX"


def _look(number: int) -> tuple[str, int]:
    """Return the state and the start of a process."""
    fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
    return fields[0], int(fields[19])
