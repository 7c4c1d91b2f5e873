"""What goes into the machine of a member, and what comes out: events and actions.

Numbers of changes and doubts are chosen by who feeds the events, and those of links, too; numbers
of requests and dials by the machine. No number is used twice.
"""

from dataclasses import dataclass

from ucxstore.server.peers.messages import Message
from ucxstore.server.peers.names import Names
from ucxstore.server.peers.presence import Presence

# ---- how a change ends ----


@dataclass(frozen=True, slots=True)
class Done:
    """It was made."""


@dataclass(frozen=True, slots=True)
class Refused:
    """It was not made, and never will be.

    `late`: since nobody answered in time. `partly`: some of its keys were changed.
    """

    why: str = ""
    late: bool = False
    partly: bool = False


@dataclass(frozen=True, slots=True)
class NotSent:
    """It was not sent, since `may_send` did not allow it any more. It is told anew, and carried.

    `partly`: some of its keys were changed before that.
    """

    partly: bool = False


@dataclass(frozen=True, slots=True)
class Unknown:
    """It was made or not, or may still be."""

    why: str = ""


type Outcome = Done | Refused | NotSent | Unknown

# ---- events ----


class Event:
    """What comes in."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Contacted(Event):
    """Others can reach this server from now on, so it joins them."""

    addresses: tuple[str, ...] = ()
    port: int = 0
    process: tuple[str, str, int, int] = ("", "", 0, 0)


@dataclass(frozen=True, slots=True)
class Asked(Event):
    """A client asks for a change.

    `value` is for the function `holds` of the machine alone; ``None`` for a removal.
    """

    change: int
    names: Names
    value: object = None


@dataclass(frozen=True, slots=True)
class GivenUp(Event):
    """Nobody waits for a change any more. Before it is sent, it ends.

    A removal of a prefix goes on once it is sent, and later changes below that wait for its end.
    """

    change: int
    why: str = "nobody waits for it any more"
    late: bool = False


@dataclass(frozen=True, slots=True)
class TurnCame(Event):
    """The request of a change, of which `Carry` has told, can be sent now. `Go` follows, or not."""

    change: int


@dataclass(frozen=True, slots=True)
class Ended(Event):
    """The source has answered the request of a change, or was waited for in vain."""

    change: int
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Doubted(Event):
    """A request was given up, and the source may still carry it out.

    It fails if its `condition` does not hold then: see `holds` of the machine.
    """

    doubt: int
    names: Names
    condition: str = ""


@dataclass(frozen=True, slots=True)
class Landed(Event):
    """The source has answered such a request after all."""

    doubt: int


@dataclass(frozen=True, slots=True)
class Heard(Event):
    """The source has answered any call."""


@dataclass(frozen=True, slots=True)
class Answered(Event):
    """The source has answered a `AskSource`."""

    request: int
    answer: "Answer"


@dataclass(frozen=True, slots=True)
class Accepted(Event):
    """Another server has made a link to this one."""

    link: int


@dataclass(frozen=True, slots=True)
class Dialled(Event):
    """A link was made, as `Dial` has asked for."""

    dial: int
    link: int


@dataclass(frozen=True, slots=True)
class NotDialled(Event):
    """No link could be made."""

    dial: int
    why: str = ""


@dataclass(frozen=True, slots=True)
class Received(Event):
    """A message has come."""

    link: int
    message: Message


@dataclass(frozen=True, slots=True)
class Broke(Event):
    """A link has ended, by itself or from its other end."""

    link: int


@dataclass(frozen=True, slots=True)
class Tick(Event):
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class Leave(Event):
    """The server ends. Nothing is sent for clients any more."""


# ---- what is asked of the source, beside changes, and the answers ----


class What:
    """What the source is asked."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class WritePresence(What):
    """Write a presence. The answer is ``None``."""

    presence: Presence


@dataclass(frozen=True, slots=True)
class ListAll(What):
    """List presences and notes. The answer is `PeerListing`."""


@dataclass(frozen=True, slots=True)
class ReadPresence(What):
    """Read a presence. The answer is a `FoundPresence`, `Fenced`, or ``None`` if it is missing."""

    name: str


@dataclass(frozen=True, slots=True)
class IsOver(What):
    """Tell whether the process of a presence is known to have ended; a `bool`, from this host."""

    presence: Presence


@dataclass(frozen=True, slots=True)
class Fence(What):
    """Overwrite a presence with "fenced". The answer is ``None``."""

    name: str


@dataclass(frozen=True, slots=True)
class RemovePresence(What):
    """Remove a presence, which may be missing. The answer is ``None``."""

    name: str


@dataclass(frozen=True, slots=True)
class WriteNote(What):
    """Write of which names the requests may still be carried out. The answer is ``None``."""

    note: str
    names: Names


@dataclass(frozen=True, slots=True)
class ReadNote(What):
    """Read that. The answer is `Names`, or ``None`` if it is missing."""

    note: str


@dataclass(frozen=True, slots=True)
class RemoveNotes(What):
    """Remove all notes whose names begin so. The answer is ``None``."""

    start: str


@dataclass(frozen=True, slots=True)
class PeerListing:
    """The names of presences, and of notes."""

    presences: frozenset[str]
    notes: frozenset[str]


@dataclass(frozen=True, slots=True)
class FoundPresence:
    """A presence. `over`: its process is known to have ended."""

    presence: Presence
    over: bool = False


@dataclass(frozen=True, slots=True)
class Fenced:
    """A presence that somebody has overwritten."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The source has failed. `never`: no server can ever find others in it.

    `passing`: the source was not reached, so it may be soon.
    """

    why: str = ""
    never: bool = False
    passing: bool = False


type Answer = bool | PeerListing | FoundPresence | Fenced | Names | Failed | None

# ---- actions, to be done in their order ----


class Action:
    """Something to do."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Tell(Action):
    """Send a message on a link, after those before."""

    link: int
    message: Message


@dataclass(frozen=True, slots=True)
class HangUp(Action):
    """End a link, once all was sent. No `Broke` need follow."""

    link: int


@dataclass(frozen=True, slots=True)
class Dial(Action):
    """Make a link to the server of a presence. `Dialled` or `NotDialled` follows, some time."""

    dial: int
    presence: Presence


@dataclass(frozen=True, slots=True)
class AskSource(Action):
    """Ask the source. `Answered` follows some time, in any order."""

    request: int
    what: What


@dataclass(frozen=True, slots=True)
class Carry(Action):
    """A change may be sent soon: say `TurnCame` when the source has a turn for it."""

    change: int


@dataclass(frozen=True, slots=True)
class Go(Action):
    """Send the request of a change now. `Ended` follows."""

    change: int


@dataclass(frozen=True, slots=True)
class Reply(Action):
    """Tell the client how its change has ended. `keep`: the cache may keep what was written."""

    change: int
    outcome: Outcome
    keep: bool = False


@dataclass(frozen=True, slots=True)
class AskFor(Action):
    """Answer no get of these from the cache; forget them, and what is on its way of them."""

    names: Names


@dataclass(frozen=True, slots=True)
class Trust(Action):
    """The cache may answer for these again, but not with what is on its way now."""

    names: Names


@dataclass(frozen=True, slots=True)
class Believe(Action):
    """The cache may answer, for all but what is asked for, until then; 0.0 for no longer."""

    until: float


@dataclass(frozen=True, slots=True)
class ForgetAll(Action):
    """Forget all that the cache has, and keep nothing that is on its way."""


@dataclass(frozen=True, slots=True)
class Notice(Action):
    """Something that an operator may want to know: "fencing", "fenced", "yielding" and so on."""

    event: str
    why: str = ""
    presence: Presence | None = None
