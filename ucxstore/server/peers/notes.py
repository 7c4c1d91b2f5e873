"""`SourceNotes`: requests that the source may still carry out, if this server is lost."""

from math import inf

from ucxstore.server.peers import times
from ucxstore.server.peers.events import RemoveNotes, WriteNote
from ucxstore.server.peers.names import ALL, Names
from ucxstore.server.peers.state import State

# Prefixes in a note. Beyond that it says all.
_MOST_NOTED = 16

# Notes to be removed. Of more, those that could not be written stay until this server leaves.
_MOST_OLD_NOTES = 100


class SourceNotes:
    """The note in the source: the names of requests that it may still carry out after a loss."""

    def __init__(self, state: State) -> None:
        self.state = state

    def want(self, names: Names) -> None:
        """Write a note that has these names, too, unless there is one."""
        state = self.state
        if state.phase != "member" or all(map(state.note.names.covers, names)):
            return
        state.note.wanted |= Names(prefixes=frozenset(_root(text) for _, text in names))
        self.write()

    def write(self) -> None:
        """Write what is wanted, if no write is under way."""
        state = self.state
        note = state.note
        if note.request or not note.wanted or state.presence is None:
            return
        names = note.names | note.wanted
        if len(names) > _MOST_NOTED:
            names = ALL
        note.count += 1
        note.retry_at = inf
        name = f"{state.presence.name}-{note.count:08}"
        if len(note.old) < _MOST_OLD_NOTES:
            note.old.add(name)  # if it fails, it may be there all the same
        note.request = state.request(WriteNote(name, names))

    def not_written(self) -> None:
        """Take the source's failure to write it: write it once more, later."""
        state = self.state
        state.note.request = 0
        state.note.retry_at = state.now + times.AGAIN_SECONDS

    def written(self, what: WriteNote) -> None:
        """Take the source's answer to one that was written."""
        note = self.state.note
        note.request = 0
        self.leave()
        note.old.discard(what.note)
        note.name, note.names = what.note, what.names
        note.wanted = Names.of(one for one in note.wanted if not note.names.covers(one))
        if not note.wanted:
            self.remove_old()
        self.write()

    def leave(self) -> None:
        """Count the note as an old one, which is removed by its name, and no later one with it."""
        note = self.state.note
        if note.name:
            note.old.add(note.name)
        note.name, note.names = "", Names()

    def drop(self) -> None:
        """Want no note any more."""
        self.leave()
        note = self.state.note
        note.wanted, note.retry_at, note.request = Names(), inf, 0

    def remove_old(self) -> None:
        """Remove the notes whose place another one has taken."""
        state = self.state
        for old in state.note.old:
            state.request(RemoveNotes(old))
        state.note.old.clear()

    def may_take_back(self) -> bool:
        """Tell whether there is a note, and no change needs it."""
        state = self.state
        note = state.note
        return (
            state.phase == "member"
            and bool(note.name or note.old)
            and not (state.changes or note.request or state.server in state.lost)
        )

    def take_back(self) -> None:
        """Remove all notes."""
        self.drop()
        self.remove_old()


def _root(text: str) -> str:
    """Return the prefix under which a name is noted in the source."""
    first, slash, _ = text.partition("/")
    return first + slash if slash else ""
