"""Notes of the incarnations of volatile servers, which clients leave for one another.

A process that knows several servers by their address alone cannot tell that one has restarted
before it came. Others could: so each leaves, with all of the servers, a note of the incarnation of
each that it has met, where there is none yet, before it asks them for anything. Notes lie in memory
and end with the server that has them: so does whatever they are to protect there.

This is the exchange with one set of servers, without I/O. It asks for `Notes` to be left where they
are absent, and is sent those that are then there, of each server that has answered.
`ucxstore.cluster.exchange` carries it out.
"""

import hashlib
from collections.abc import Generator, Iterable, Mapping

from ucxstore.address import HostPort
from ucxstore.client.incarnations import Incarnations
from ucxstore.keys import STARTS_FOLDER
from ucxstore.protocol.frames import Welcome

type Notes = Mapping[HostPort, Mapping[HostPort, bytes]]
"""By the server that has them: the incarnations of others."""


def folder_of(servers: Iterable[HostPort]) -> str:
    """Return what the keys of all notes about a set of servers begin with."""
    names = ",".join(sorted(map(str, servers)))
    return f"{STARTS_FOLDER}{hashlib.blake2b(names.encode(), digest_size=16).hexdigest()}/"


def exchange(
    incarnations: Incarnations, welcomes: Mapping[HostPort, Welcome]
) -> Generator[Notes, Notes]:
    """Tell servers, and learn from them, which incarnations all of them have had.

    What comes to light goes into `incarnations`. A server whose notes could not be asked for is to
    be left alone afterwards.

    Parameters
    ----------
    incarnations : Incarnations
    welcomes : mapping
        Of those servers that are connected.
    """
    for server, incarnation in incarnations_of(welcomes).items():
        incarnations.see(server, incarnation)
    found = yield {server: {} for server in welcomes}
    _learn(incarnations, found)
    absent = {
        holder: {server: note for server, note in notes.items() if server not in found[holder]}
        for holder, notes in _notes(incarnations, welcomes).items()
        if holder in found
    }
    if any(absent.values()):
        # Of two that leave different notes at once, the second one learns of it here.
        found = yield {holder: notes for holder, notes in absent.items() if notes}
        _learn(incarnations, found)


def incarnations_of(welcomes: Mapping[HostPort, Welcome]) -> dict[HostPort, bytes]:
    """Return the incarnations of those servers whose restart loses what they hold."""
    return {server: welcome.incarnation for server, welcome in welcomes.items() if welcome.volatile}


def _learn(incarnations: Incarnations, found: Notes) -> None:
    for notes in found.values():
        for server, incarnation in notes.items():
            incarnations.see(server, incarnation)


def _notes(incarnations: Incarnations, welcomes: Mapping[HostPort, Welcome]) -> Notes:
    """Return what each of the connected servers should have."""
    now = incarnations_of(welcomes)
    before = {}
    for server in incarnations.servers:
        seen = incarnations.seen(server)
        if seen:
            before[server] = next((one for one in seen if one != now.get(server)), seen[0])
    notes = {}
    for holder in welcomes:
        # One that has restarted holds nothing from before. What is remembered from then must not
        # be found there: where all have restarted, it would keep new clients out for nothing.
        kept = holder not in now or before[holder] == now[holder]
        about = before if kept else now
        notes[holder] = {server: note for server, note in about.items() if server != holder}
    return notes
