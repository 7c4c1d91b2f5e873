"""The model of a source: one register a key, conditional writes, and requests that take their time.

A request is carried out in one step, at any time after it was sent, also when nobody waits for its
answer any more: its server was killed, or has given it up. It is written to be obvious, and shares
no code with the server.
"""

from collections.abc import Callable, Hashable
from typing import Any

from tests.simulator.monitor import MISSING, Value
from ucxstore.server.peers.events import (
    Fence,
    Fenced,
    FoundPresence,
    ListAll,
    PeerListing,
    ReadNote,
    ReadPresence,
    RemoveNotes,
    RemovePresence,
    WriteNote,
    WritePresence,
)
from ucxstore.server.peers.names import Names
from ucxstore.server.peers.presence import Presence

# Of one process.
_MOST_REQUESTS = 1_000_000


class Get:
    """Read a value."""

    __slots__ = ("key",)

    def __init__(self, key: str) -> None:
        self.key = key

    def __str__(self) -> str:
        return f"get {self.key}"


class Put:
    """Write a value, if the key has the one that is the `condition`."""

    __slots__ = ("condition", "key", "value")

    def __init__(self, key: str, value: Value, condition: Value) -> None:
        self.key = key
        self.value = value
        self.condition = condition

    def __str__(self) -> str:
        condition = "" if self.condition == ANYTHING else f" in the place of {self.condition}"
        return f"put {self.key}: {self.value}{condition}"


class Remove:
    """Remove a key."""

    __slots__ = ("key",)

    def __init__(self, key: str) -> None:
        self.key = key

    def __str__(self) -> str:
        return f"remove {self.key}"


# A change without a condition; and what a request is answered that was not carried out.
ANYTHING = -1
CHANGED, REFUSED, LOST = "changed", "refused", "lost"


class Request:
    """A request to the source.

    Attributes
    ----------
    owner : int
        The process that has sent it.
    asked : object
        What is asked.
    token : tuple or None
        By which the process knows it again; ``None`` once it waits for the answer no longer.
    change : int
        The client's change that it is a part of; 0 for none.
    doubt : int
        The number under which the process was told that it is in doubt.
    given_up : int
        When the process ceased to wait, or its change was given up.
    is_done : bool
    answer : object
    """

    __slots__ = (
        "answer", "asked", "change", "doubt", "given_up", "is_done", "owner", "token",
    )  # fmt: skip

    def __init__(self, owner: int, asked: Any, token: Any, change: int) -> None:
        self.owner = owner
        self.asked = asked
        self.token = token
        self.change = change
        self.doubt = self.given_up = 0
        self.is_done = False
        self.answer: Any = None

    def copy(self) -> "Request":
        other = Request(self.owner, self.asked, self.token, self.change)
        other.doubt = self.doubt
        other.given_up = self.given_up
        other.is_done = self.is_done
        other.answer = self.answer
        return other

    def key(self) -> Hashable:
        """Return what tells it from others."""
        return str(self.asked), self.token, self.doubt, self.is_done, self.answer

    @property
    def is_late(self) -> bool:
        """Whether nobody waits for it any more, and it may still be carried out."""
        return self.token is None and not self.is_done


class Source:
    """What is kept, and the requests that are under way.

    The version of a value is the value, as no two writes have the same.
    """

    __slots__ = ("last", "notes", "presences", "requests", "values")

    def __init__(self) -> None:
        self.values: dict[str, Value] = {}
        self.presences: dict[str, Presence | Fenced] = {}
        self.notes: dict[str, Names] = {}
        self.requests: dict[int, Request] = {}
        self.last: dict[int, int] = {}

    def copy(self) -> "Source":
        other = Source.__new__(Source)
        other.values = dict(self.values)
        other.presences = dict(self.presences)
        other.notes = dict(self.notes)
        other.requests = {at: one.copy() for at, one in self.requests.items()}
        other.last = dict(self.last)
        return other

    def send(self, owner: int, asked: Any, token: Any, change: int = 0) -> int:
        """Take a request; return its number."""
        at = self.number(owner)
        self.requests[at] = Request(owner, asked, token, change)
        return at

    def number(self, owner: int) -> int:
        """Draw a number for a request. Those of a process do not depend on others."""
        self.last[owner] = self.last.get(owner, 0) + 1
        return owner * _MOST_REQUESTS + self.last[owner]

    def key(self) -> Hashable:
        """Return what tells it from others."""
        return (
            frozenset(self.values.items()),
            frozenset(self.presences.items()),
            frozenset(self.notes.items()),
            frozenset((at, one.key()) for at, one in self.requests.items()),
        )

    def carry_out(self, request: Request, is_over: Callable[[Presence], bool]) -> bool:
        """Carry out a request now; tell whether that has changed a value."""
        request.is_done = True
        asked = request.asked
        match asked:
            case Get():
                request.answer = self.values.get(asked.key, MISSING)
            case Put():
                if asked.condition not in (ANYTHING, self.values.get(asked.key, MISSING)):
                    request.answer = CHANGED
                    return False
                self.values[asked.key] = request.answer = asked.value
                return True
            case Remove():
                self.values.pop(asked.key, None)
                request.answer = MISSING
                return True
            case WritePresence(presence):
                self.presences[presence.name] = presence
            case Fence(name):
                self.presences[name] = Fenced()
            case ReadPresence(name):
                kept = self.presences.get(name)
                request.answer = (
                    FoundPresence(kept, is_over(kept)) if isinstance(kept, Presence) else kept
                )
            case RemovePresence(name):
                self.presences.pop(name, None)
            case ListAll():
                request.answer = PeerListing(frozenset(self.presences), frozenset(self.notes))
            case WriteNote(note, names):
                self.notes[note] = names
            case ReadNote(note):
                request.answer = self.notes.get(note)
            case RemoveNotes(start):
                for note in [one for one in self.notes if one.startswith(start)]:
                    del self.notes[note]
            case _:
                raise NotImplementedError(asked)
        return False

    def forget(self, owner: int) -> None:
        """Let nobody wait for the answers to a process that has gone."""
        for at, one in list(self.requests.items()):
            if one.owner == owner:
                if one.is_done:
                    del self.requests[at]
                else:
                    one.token = None
