"""Notes of the incarnations of volatile servers, which clients leave at servers for one another.

A process that connects for the first time cannot know that a server has restarted before. Other
processes can. So before a client sends other requests, it leaves a note of each server's
incarnation at all of the other servers, unless a note is there. Notes are in memory and end with
the server that has them, as does the metadata that they protect there.

This is the exchange with one set of servers, without I/O. It yields `Notes` to be left where they
are absent, and is sent the notes that are then at each server that has answered.
`ucxstore.cluster.exchange` does the I/O.
"""

import hashlib
from collections.abc import Generator, Iterable, Mapping

from ucxstore.address import HostPort
from ucxstore.client.incarnations import Incarnations
from ucxstore.keys import NOTES_FOLDER
from ucxstore.protocol.frames import Welcome

type Notes = Mapping[HostPort, Mapping[HostPort, bytes]]
"""For each server that has notes, the incarnations of other servers."""


def folder_of(servers: Iterable[HostPort]) -> str:
    """Return the prefix of the keys of all notes about a set of servers."""
    names = ",".join(sorted(map(str, servers)))
    return f"{NOTES_FOLDER}{hashlib.blake2b(names.encode(), digest_size=16).hexdigest()}/"


def exchange(
    incarnations: Incarnations, welcomes: Mapping[HostPort, Welcome]
) -> Generator[Notes, Notes]:
    """Exchange notes: read those that servers have, and leave those that they lack.

    The incarnations that are found go into `incarnations`. A server that did not return its notes
    is sent none.

    Parameters
    ----------
    incarnations : Incarnations
    welcomes : mapping
        The welcomes of the connected servers.
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
        # If two clients leave different notes at once, the second one learns of it here.
        found = yield {holder: notes for holder, notes in absent.items() if notes}
        _learn(incarnations, found)


def incarnations_of(welcomes: Mapping[HostPort, Welcome]) -> dict[HostPort, bytes]:
    """Return the incarnations of the volatile servers."""
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
        # A server that has restarted has no values from before, so it gets no note from before.
        # Where all have restarted, such notes would keep new clients out for nothing.
        kept = holder not in now or before[holder] == now[holder]
        about = before if kept else now
        notes[holder] = {server: note for server, note in about.items() if server != holder}
    return notes
