"""`State`: what a member knows, in small records, and how they are copied and compared."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from math import inf
from typing import Any, Literal, cast

from ucxstore.server.peers import times
from ucxstore.server.peers.events import (
    Action,
    Answer,
    AskSource,
    Believe,
    Contacted,
    Dial,
    Outcome,
    ReadPresence,
    Tell,
    What,
)
from ucxstore.server.peers.messages import Message
from ucxstore.server.peers.names import Name, Names
from ucxstore.server.peers.presence import Presence

type Phase = Literal["new", "out", "joining", "member", "alone", "leaving", "left"]
"""Of a member: see `State`."""

type Step = Literal["queued", "waiting", "told", "ready", "sent", "made"]
"""Of a change: it waits for earlier ones, for a membership, for peers and the note, for a turn, for
the source; or it was made, and is to be confirmed."""

type Recovery = Literal["", "dial", "look", "check", "fence", "again", "wait"]
"""What is done to link to a peer anew, or to shut it out: dial; look whether its process has ended;
check that this one was not shut out itself; write "fenced", once more if that fails; wait."""


class StateRecord:
    """What changes, and is copied with the state that it belongs to."""

    __slots__ = ()


@dataclass(slots=True)
class Change(StateRecord):
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
class Peer(StateRecord):
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

    presence: Presence
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
class LinkState(StateRecord):
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
class Pending(StateRecord):
    """A request to the source."""

    what: What
    began: float
    why: str


@dataclass(slots=True)
class Note(StateRecord):
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
class Doubt(StateRecord):
    """A request that was given up; later changes of its names may have to wait for its end."""

    names: Names
    condition: str
    until: float


def _always(condition: str, value: object) -> bool:
    return True


@dataclass(slots=True)
class State(StateRecord):
    """All that a member knows, and what it says is to be done.

    Parameters
    ----------
    server : str
        Tells it from all others, and from its earlier starts.
    shared : bool
        Whether other servers may write to the source. If not, there is no protocol, but changes of
        a key still go one after another.
    asks : bool
        Whether a freshness that was chosen decides what is believed, and no lease.
    unlisted : bool
        Whether the source may have no listings at all, as a listing that misses a presence tells.
    patience : float
        Seconds for which a change waits while the source answers nothing.
    lasting : float
        Seconds for which later changes of the same key wait for the end of one that was given up,
        if it may undo them.
    holds : callable
        Tells whether a condition of a request that was given up may hold once a change has made a
        value: ``(condition, value)``, with ``None`` for a removal. It must be pure.

    Attributes
    ----------
    phase : str
        "new" before `Contacted`, "out" between two attempts to join, "joining", "member", "alone"
        if no server can find others in the source, "leaving", "left".
    """

    server: str
    shared: bool = True
    asks: bool = False
    unlisted: bool = False
    patience: float = 30.0
    lasting: float = 30.0
    holds: Callable[[str, object], bool] = _always
    phase: Phase = "new"
    contact: Contacted = field(default_factory=Contacted)
    epoch: int = 0
    presence: Presence | None = None
    lease_until: float = 0.0
    look_at: float = 0.0
    look_after: float = 0.0
    retry_at: float = inf
    failures: int = 0
    here_at: float = 0.0
    # If one of these comes back, and still cannot be reached, this one yields: it relies on no
    # lease for a while. They were shut out.
    unreached: dict[str, Presence] = field(default_factory=dict)
    yields: bool = False
    yields_until: float = 0.0
    trials: dict[int, str] = field(default_factory=dict)
    last: int = 0  # of the numbers of requests and dials
    requests: dict[int, Pending] = field(default_factory=dict)
    stage: str = ""  # of joining: "presence", "meet", "notes", "look"
    # Whom this one must meet; until when it waits.
    meeting: dict[str, float] = field(default_factory=dict)
    skipped: set[str] = field(default_factory=set)  # servers that need not be met
    read: dict[str, Answer] = field(default_factory=dict)  # notes of one listing, and what they say
    links: dict[int, LinkState] = field(default_factory=dict)
    peers: dict[str, Peer] = field(default_factory=dict)
    # Changes of clients. `lines`: the last one of each key. `begun`: the one that is not queued any
    # more. `followers`: by number, those that are behind it. `unready`: told, or made, in the order
    # of their numbers.
    heard_at: float = 0.0
    changes: dict[int, Change] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    begun: dict[str, int] = field(default_factory=dict)
    removals: set[int] = field(default_factory=set)
    followers: dict[int, set[int]] = field(default_factory=dict)
    doubts: dict[int, Doubt] = field(default_factory=dict)
    unready: dict[int, None] = field(default_factory=dict)
    number: int = 0
    seq: int = 0
    # By server: what it may change without telling; since when, and until when at most. By
    # membership: until when its notes are kept, although this one knows what they say.
    lost: dict[str, dict[Name, tuple[int, float]]] = field(default_factory=dict)
    claims: dict[str, float] = field(default_factory=dict)
    note: Note = field(default_factory=Note)
    # How often each name is asked for, and is told to peers, for one reason or another.
    asked: dict[Name, int] = field(default_factory=dict)
    prefixes: dict[str, int] = field(default_factory=dict)
    mine: dict[Name, int] = field(default_factory=dict)
    out: list[Action] = field(default_factory=list)
    now: float = 0.0

    def __post_init__(self) -> None:
        if not self.shared:
            self.phase = "alone"

    @property
    def relies(self) -> bool:
        """Whether it believes its cache while its lease holds."""
        return not (self.asks or self.yields)

    def request(self, what: What, why: str = "") -> int:
        """Ask the source, and return the number of the request."""
        self.last += 1
        self.requests[self.last] = Pending(what, self.now, why)
        self.out.append(AskSource(self.last, what))
        return self.last

    def dial(self, presence: Presence) -> int:
        """Ask for a link to the server of a presence, and return its number."""
        self.last += 1
        self.out.append(Dial(self.last, presence))
        return self.last

    def tell_all(self, message: Message) -> None:
        """Tell all peers that are linked."""
        for peer in self.peers.values():
            if peer.link:
                self.out.append(Tell(peer.link, message))

    def hold_lease(self, until: float) -> None:
        """Believe the cache until then, unless a freshness or the peers forbid it."""
        self.lease_until = until
        if self.shared and not self.asks:
            self.out.append(Believe(0.0 if self.yields else until))

    def look(self) -> None:
        """Look at the own presence, if no look is under way: that prolongs the lease."""
        is_under_way = any(one.why == "renew" for one in self.requests.values())
        if self.presence is None or is_under_way or self.now < self.look_after:
            return
        self.look_at = self.now + times.RENEW_SECONDS
        self.request(ReadPresence(self.presence.name), "renew")

    def copy(self) -> "State":
        """Return a copy that goes its own way."""
        return cast(State, copied(self))

    def key(self, now: float) -> Hashable:
        """Return what is equal for equal states, seen from a time."""
        return frozen(self, now)


def server_of(name: str) -> str:
    """Return the server of a membership, by the name of that."""
    return name.rpartition("-")[0]


def copied(value: Any) -> Any:
    """Copy what may change; share the rest."""
    if isinstance(value, dict):
        return {name: copied(one) for name, one in value.items()}
    if isinstance(value, set):
        return set(value)
    if isinstance(value, StateRecord):
        same = object.__new__(type(value))
        for one in cast(tuple[str, ...], type(value).__slots__):
            setattr(same, one, copied(getattr(value, one)))
        return same
    return value


# Numbers that are no points in time, which are compared as seen from now.
_LENGTHS = ("patience", "lasting")

# No part of a state when two are compared.
_PASSING = ("now", "out", "holds")


def frozen(value: Any, now: float, name: str = "") -> Hashable:
    """Return what is equal for equal states, seen from a time."""
    if isinstance(value, dict):
        return frozenset((one, frozen(value[one], now, name)) for one in value)
    if isinstance(value, set):
        return frozenset(value)
    if isinstance(value, tuple) and value and isinstance(value[-1], float):
        return (*value[:-1], round(value[-1] - now, 3))
    if isinstance(value, float) and name not in _LENGTHS:
        return round(value - now, 3)
    if isinstance(value, StateRecord):
        return tuple(
            frozen(getattr(value, one), now, one)
            for one in cast(tuple[str, ...], type(value).__slots__)
            if one not in _PASSING
        )
    return cast(Hashable, value)
