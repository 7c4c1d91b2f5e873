"""What servers keep in a source, so that the others of that source know of them.

Each has a presence; whoever writes "fenced" in its place shuts the server out. One that writes has
a note, too, of which keys its requests may still change if it is lost: see docs/consistency.md.
"""

import json
import os
import time
from contextlib import suppress
from pathlib import Path

import numpy as np

from ucxstore.base.errors import ProtocolError
from ucxstore.base.foreign import Fields
from ucxstore.base.keys import RESERVED_FOLDER
from ucxstore.server.peers import events
from ucxstore.server.peers.names import ALL, Names
from ucxstore.server.peers.presence import Presence
from ucxstore.server.sources.source import Source

FOLDER = f"{RESERVED_FOLDER}servers/"
NOTES = f"{RESERVED_FOLDER}writing/"

_MAX_NOTE_BYTES = 64 << 20
_FENCED = b'{"fenced": true}'
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_seconds() -> float:
    """Return the time on the clock of leases, which counts while the host is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Presences:
    """The presences and notes in a source.

    Parameters
    ----------
    source : Source
    """

    def __init__(self, source: Source) -> None:
        self._source = source

    async def perform(self, what: events.What) -> events.Answer:
        """Carry out a request, and return its answer."""
        match what:
            case events.WritePresence(presence):
                await self._write(f"{FOLDER}{presence.name}", presence.encode())
            case events.ListAll():
                return await self._list()
            case events.ReadPresence(name):
                return await self._read_presence(name)
            case events.IsOver(presence):
                return has_ended(presence.process)
            case events.Fence(name):
                await self._write(f"{FOLDER}{name}", _FENCED)
            case events.RemovePresence(name):
                await self._source.remove([f"{FOLDER}{name}"])
            case events.WriteNote(note, names):
                fields = {"keys": sorted(names.keys), "prefixes": sorted(names.prefixes)}
                await self._write(f"{NOTES}{note}", json.dumps(fields).encode())
            case events.ReadNote(note):
                return await self._read_note(note)
            case events.RemoveNotes(start):
                notes = (await self._list()).notes if start.endswith("-") else {start}
                paths = [f"{NOTES}{note}" for note in notes if note.startswith(start)]
                if paths:
                    await self._source.remove(paths)
        return None

    async def _list(self) -> events.PeerListing:
        found = await self._source.list_reserved()
        return events.PeerListing(
            *(
                frozenset(one.removeprefix(folder) for one in found if one.startswith(folder))
                for folder in (FOLDER, NOTES)
            )
        )

    async def _read_presence(self, name: str) -> events.FoundPresence | events.Fenced | None:
        data = await self._read(f"{FOLDER}{name}")
        if data is None:
            return None
        presence = Presence.parse(data)
        if presence is None:
            return events.Fenced()
        return events.FoundPresence(presence, has_ended(presence.process))

    async def _read_note(self, note: str) -> Names | None:
        data = await self._read(f"{NOTES}{note}")
        if data is None:
            return None
        try:
            fields = Fields.read(data, "a note", _MAX_NOTE_BYTES)
            return Names(frozenset(fields.texts("keys")), frozenset(fields.texts("prefixes")))
        except ProtocolError:
            return ALL  # whatever it was to say is among these

    async def _read(self, path: str) -> bytes | None:
        found = await self._source.get(path, None)
        return None if found is None else bytes(found.buffer)

    async def _write(self, path: str, data: bytes) -> None:
        await self._source.put(path, np.frombuffer(data, np.uint8), if_absent=False)


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
    except (OSError, ValueError):  # it has gone, or /proc hides processes of other users
        return _is_gone(number)
    return began != start or state in "ZX"


def _is_gone(number: int) -> bool:
    try:
        os.kill(number, 0)
    except OSError as error:
        return isinstance(error, ProcessLookupError)
    return False


def _look(number: int) -> tuple[str, int]:
    """Return the state and the start of a process."""
    fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
    return fields[0], int(fields[19])
