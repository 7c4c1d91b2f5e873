"""The parts of a member's state, each a small record, and how they are copied and compared."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from math import inf
from typing import Any, Literal, cast

from ucxstore.server.peers.card import Card
from ucxstore.server.peers.events import Outcome, What
from ucxstore.server.peers.names import Name, Names

type Step = Literal["queued", "waiting", "told", "ready", "sent", "made"]
"""Of a change: it waits for earlier ones, for a membership, for peers and the note, for a turn, for
the source; or it was made, and is to be confirmed."""

type Recovery = Literal["", "dial", "look", "check", "fence", "again", "wait"]
"""What is done to link to a peer anew, or to shut it out: dial; look whether its process has ended;
check that this one was not shut out itself; write "fenced", once more if that fails; wait."""


class Record:
    """What changes, and is copied with the state that it belongs to."""

    __slots__ = ()


@dataclass(slots=True)
class Change(Record):
    """A change that a client of this server has asked for.

    Attributes
    ----------
    since : float
        Since when it waits for what its step says.
    behind : set of int
        Earlier changes that it waits for.
    number : int
        Under which it was told to peers last, in the membership `epoch`.
    noted : bool
        Whether the note in the source, in that membership, has its names.
    seq : int
        When it was sent.
    alone : bool
        Whether nobody else has changed its names meanwhile.
    unwanted : bool
        Whether nobody waits for it any more.
    partly : bool
        Whether some of its keys were changed, before the rest could not be sent.
    outcome : Outcome or None
        What is to be told to the client, once that is confirmed.
    """

    names: Names
    value: object
    since: float
    step: Step = "queued"
    behind: set[int] = field(default_factory=set)
    number: int = 0
    epoch: int = 0
    noted: bool = False
    seq: int = 0
    alone: bool = True
    unwanted: bool = False
    partly: bool = False
    outcome: Outcome | None = None


@dataclass(slots=True)
class Peer(Record):
    """Another membership, to which this one is linked, or is to be.

    Attributes
    ----------
    dialler : str
        Who has made the link.
    synced : bool
        Whether all that it changes was told on this link.
    knows : frozenset of str
        See `Synced`.
    changes, coming : dict
        What it changes, and since when; and what it has told of that on a link that is not synced.
    told, noted : int
        The number told last on this link, and the one noted last.
    waits_since : float or None
        Since when it has noted nothing of what it is to note.
    until : float
        For the step of `recovery`.
    """

    card: Card
    link: int = 0
    dialler: str = ""
    synced: bool = False
    heard: float = 0.0
    knows: frozenset[str] = frozenset()
    changes: dict[Name, int] = field(default_factory=dict)
    coming: dict[Name, int] | None = None
    told: int = 0
    noted: int = 0
    waits_since: float | None = None
    recovery: Recovery = ""
    dial: int = 0
    until: float = 0.0
    why: str = ""


@dataclass(slots=True)
class LinkState(Record):
    """A link.

    Attributes
    ----------
    dial : int
        With which this side has made it; 0 if the other has.
    to : str
        Whom it has dialled, by name.
    peer : str
        The other side, by name; "" before its hello.
    """

    since: float
    dial: int = 0
    to: str = ""
    peer: str = ""


@dataclass(slots=True)
class Pending(Record):
    """A request to the source."""

    what: What
    began: float
    why: str


@dataclass(slots=True)
class Note(Record):
    """What this server has noted in the source.

    Attributes
    ----------
    name : str
        Of the object; "" for none.
    names : Names
        What it says.
    wanted : Names
        What it must say, too.
    request : int
        That writes it; 0 for none.
    retry_at : float
        When it is written anew, as that has failed.
    count : int
        Of all that were written.
    old : set of str
        The names of others that may be there, and are to be removed once this one says all.
    idle_since : float
    """

    name: str = ""
    names: Names = field(default_factory=Names)
    wanted: Names = field(default_factory=Names)
    request: int = 0
    retry_at: float = inf
    count: int = 0
    old: set[str] = field(default_factory=set)
    idle_since: float = 0.0


@dataclass(slots=True)
class Doubt(Record):
    """A request that was given up; later changes of its names may have to wait for its end."""

    names: Names
    condition: str
    until: float


def copied(value: Any) -> Any:
    """Copy what may change; share the rest."""
    if isinstance(value, dict):
        return {name: copied(one) for name, one in value.items()}
    if isinstance(value, set):
        return set(value)
    if isinstance(value, Record):
        same = object.__new__(type(value))
        for one in cast(tuple[str, ...], type(value).__slots__):
            setattr(same, one, copied(getattr(value, one)))
        return same
    return value


# Names of what holds times, by which states are compared as seen from now.
_TIMES = frozenset(
    [
        "since",
        "heard",
        "waits_since",
        "until",
        "began",
        "idle_since",
        "lease_until",
        "look_at",
        "look_after",
        "retry_at",
        "here_at",
        "yields_until",
        "heard_at",
        "meeting",
        "claims",
    ]
)


def frozen(value: Any, now: float, name: str = "") -> Hashable:
    """Return what is equal for equal states, seen from a time."""
    if isinstance(value, dict):
        return frozenset((one, frozen(value[one], now, name)) for one in value)
    if isinstance(value, set):
        return frozenset(value)
    if isinstance(value, tuple) and value and isinstance(value[-1], float):
        return (*value[:-1], round(value[-1] - now, 3))
    if isinstance(value, float) and name in _TIMES:
        return round(value - now, 3)
    if isinstance(value, Record):
        return tuple(
            frozen(getattr(value, one), now, one)
            for one in cast(tuple[str, ...], type(value).__slots__)
        )
    return cast(Hashable, value)
