"""`Member`: a server among those that write to one source, as a pure state machine.

It knows of each key who changes it, or may: from that follow what the cache may answer, when a
change may be sent, and when it may be acknowledged. docs/consistency.md has the argument.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import replace
from math import inf
from typing import cast

from ucxstore.server.peers import times
from ucxstore.server.peers.card import Card
from ucxstore.server.peers.events import (
    Accepted,
    Action,
    Answer,
    Answered,
    Asked,
    AskFor,
    Believe,
    Broke,
    Carry,
    Contacted,
    Dial,
    Dialled,
    Done,
    Doubted,
    Ended,
    Event,
    Failed,
    Fence,
    ForgetAll,
    Found,
    GivenUp,
    Go,
    HangUp,
    Heard,
    IsOver,
    Landed,
    Leave,
    ListAll,
    Listing,
    NotDialled,
    NotSent,
    Outcome,
    ReadCard,
    ReadNote,
    Received,
    Refused,
    RemoveCard,
    RemoveNotes,
    Reply,
    Report,
    Request,
    Tell,
    Tick,
    Trust,
    TurnCame,
    Unknown,
    What,
    WriteCard,
    WriteNote,
)
from ucxstore.server.peers.messages import Begin, Bye, End, Hello, Here, Message, Noted, Synced
from ucxstore.server.peers.names import Name, Names
from ucxstore.server.peers.state import (
    Change,
    Doubt,
    LinkState,
    Note,
    Peer,
    Pending,
    copied,
    frozen,
)

# Names that one server may still change, and which are told apart. Beyond that all are asked for.
MOST_LOST = 10_000

# Prefixes in a note. Beyond that it says all.
_MOST_NOTED = 16

# Notes to be removed. Of more, those that could not be written stay until this server leaves.
_MOST_OLD_NOTES = 100

# Servers that were shut out, and may come back.
_MOST_UNREACHED = 100

_ALL = Names(prefixes=frozenset({""}))


def _always(condition: str, value: object) -> bool:
    return True


class Member:
    """A server among those that write to one source.

    Events go into `handle`, with the time of their coming on a clock that all of them share; what
    comes out is to be done in that order. `Tick` is due at `wakes_at`, and may come at any time.

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

    def __init__(
        self,
        server: str,
        *,
        shared: bool = True,
        asks: bool = False,
        unlisted: bool = False,
        patience: float = 30.0,
        lasting: float = 30.0,
        holds: Callable[[str, object], bool] = _always,
    ) -> None:
        self.server = server
        self.shared = shared
        self.asks = asks
        self.unlisted = unlisted
        self.patience = patience
        self.lasting = lasting
        self.holds = holds
        self.phase = "new" if shared else "alone"
        self.contact = Contacted()
        self.epoch = 0
        self.card: Card | None = None
        self.lease_until = 0.0
        self.look_at = 0.0
        self.look_after = 0.0
        self.retry_at = inf
        self.failures = 0
        self.here_at = 0.0
        # If one of these comes back, and still cannot be reached, this one yields: it relies on no
        # lease for a while. They were shut out.
        self.unreached: dict[str, Card] = {}
        self.yields = False
        self.yields_until = 0.0
        self.trials: dict[int, str] = {}
        self.last = 0  # of the numbers of requests and dials
        self.requests: dict[int, Pending] = {}
        self.stage = ""  # of joining: "card", "meet", "notes", "look"
        self.meeting: dict[str, float] = {}  # whom this one must meet; until when it waits
        self.skipped: set[str] = set()  # servers that need not be met
        self.read: dict[str, Answer] = {}  # notes of one listing, and what they say
        self.links: dict[int, LinkState] = {}
        self.peers: dict[str, Peer] = {}
        # Changes of clients. `lines`: the last one of each key.
        self.heard_at = 0.0
        self.changes: dict[int, Change] = {}
        self.lines: dict[str, int] = {}
        self.begun: dict[str, int] = {}  # the one of each key that is not queued any more
        self.removals: set[int] = set()
        self.followers: dict[int, set[int]] = {}  # by number, those that are behind it
        self.doubts: dict[int, Doubt] = {}
        self.unready: dict[int, None] = {}  # told, or made: in the order of their numbers
        self.number = 0
        self.seq = 0
        # By server: what it may change without telling; since when, and until when at most. By
        # membership: until when its notes are kept, although this one knows what they say.
        self.lost: dict[str, dict[Name, tuple[int, float]]] = {}
        self.claims: dict[str, float] = {}
        self.note = Note()
        # How often each name is asked for, and is told to peers, for one reason or another.
        self.asked: dict[Name, int] = {}
        self.prefixes: dict[str, int] = {}
        self.mine: dict[Name, int] = {}
        self._out: list[Action] = []
        self._now = 0.0

    # ---- for who runs it ----

    def start(self) -> list[Action]:
        """Return what is to be done before any event."""
        return [Believe(0.0)] if self.shared and not self.asks else []

    def handle(self, event: Event, now: float) -> list[Action]:
        """Take an event that comes now, and return what is to be done."""
        self._now = now
        self._out = []
        match event:
            case Received(link, message):
                self._received(link, message)
            case Asked():
                self._asked(event)
            case TurnCame(change):
                self._turn_came(change)
            case Ended(change, outcome):
                self._ended(change, outcome)
            case Heard():
                self.heard_at = now
            case Tick():
                self._tick()
            case GivenUp(change, why, late):
                self._given_up(change, Refused(why, late))
            case Answered(request, answer):
                pending = self.requests.pop(request, None)
                if pending is not None:
                    self._answered(pending, answer)
            case Doubted(number, names, condition):
                self.doubts[number] = Doubt(names, condition, now + self.lasting)
            case Landed(number):
                if self.doubts.pop(number, None) is not None:
                    self._start_queued()
            case Accepted(link):
                self.links[link] = LinkState(now)
            case Dialled(dial, link):
                self._dialled(dial, link)
            case NotDialled(dial, why):
                self._not_dialled(dial, why)
            case Broke(link):
                self._broke(link)
            case Contacted():
                self.contact = event
                if self.phase == "new":
                    self.phase = "out"
                    self._join()
            case Leave():
                self._leave()
        if not isinstance(event, Heard | TurnCame | Doubted) and not (
            self.peers and isinstance(event, Asked)
        ):
            self._proceed()
        if self.phase == "out" and self.retry_at <= now:
            self._join()
        out, self._out = self._out, []
        return out

    def may_send(self, change: int, now: float) -> bool:
        """Tell whether the request of a change may be sent, or sent again, now."""
        found = self.changes.get(change)
        return found is not None and found.step == "sent" and self._covers(found, now)

    def wakes_at(self) -> float:
        """Return when the next `Tick` is due."""
        return min(self._deadlines(), default=inf)

    @property
    def relies(self) -> bool:
        """Whether it believes its cache while its lease holds."""
        return not (self.asks or self.yields)

    def copy(self) -> "Member":
        """Return a copy that goes its own way."""
        same = object.__new__(type(self))
        for name, value in vars(self).items():
            setattr(same, name, copied(value))
        return same

    def key(self, now: float = 0.0) -> Hashable:
        """Return what is equal for equal states, seen from now."""
        return tuple(
            frozen(value, now, name)
            for name, value in vars(self).items()
            if name not in ("_now", "_out", "holds")
        )

    # ---- who changes what, or may: for the cache, and for the peers ----

    def _ask(self, names: Iterable[Name], own: Change | None = None) -> None:
        """Ask for names for one more reason."""
        new = []
        for name in names:
            is_prefix, text = name
            count = self.asked.get(name, 0)
            if own is not None and (count or any(map(text.startswith, self.prefixes))):
                own.alone = False
            self.asked[name] = count + 1
            if not count:
                new.append(name)
                if is_prefix:
                    self.prefixes[text] = 1
            self._disturb(name, own)
        if new:
            self._out.append(AskFor(Names.of(new)))

    def _disturb(self, name: Name, own: Change | None) -> None:
        is_prefix, text = name
        if not is_prefix:
            changes = [self.changes[self.begun[text]]] if text in self.begun else []
        else:
            changes = [one for one in self.changes.values() if one.names.meets(name)]
        for change in changes:
            if change is not own:
                change.alone = False

    def _trust(self, names: Iterable[Name]) -> None:
        over = []
        for name in names:
            count = self.asked[name] - 1
            if count:
                self.asked[name] = count
            else:
                del self.asked[name]
                over.append(name)
                if name[0]:
                    del self.prefixes[name[1]]
        if over:
            self._out.append(Trust(Names.of(over)))

    def _claim(self, names: Iterable[Name]) -> None:
        """Tell peers that link later of these, for one more reason."""
        for name in names:
            self.mine[name] = self.mine.get(name, 0) + 1

    def _release(self, names: Iterable[Name], *, done: bool = False) -> None:
        over = []
        for name in names:
            count = self.mine[name] - 1
            if count:
                self.mine[name] = count
            else:
                del self.mine[name]
                over.append(name)
        if over and self.peers:
            self._tell_all(End(Names.of(over), done))

    def _tell_all(self, message: Message) -> None:
        for peer in self.peers.values():
            if peer.link:
                self._out.append(Tell(peer.link, message))

    def _announce(self, names: Names) -> int:
        """Tell all peers that names change; return the number under which they note it."""
        self.number += 1
        message = Begin(self.number, names)
        for peer in self.peers.values():
            if peer.link:
                self._out.append(Tell(peer.link, message))
                peer.told = self.number
                if peer.waits_since is None:
                    peer.waits_since = self._now
        return self.number

    # ---- what may still be changed without telling ----

    def _lose(self, server: str, names: Iterable[Name]) -> None:
        """Go on to ask for what a server may still change."""
        lost = self.lost.setdefault(server, {})
        self.seq += 1
        entry = self.seq, self._now + times.LATE_SECONDS
        new = [name for name in names if name not in lost]
        lost.update(dict.fromkeys(names, entry))
        if not lost:
            del self.lost[server]
        self._ask(new)
        self._claim(new)
        if len(lost) > MOST_LOST:
            self.lost[server] = dict.fromkeys(_ALL, entry)
            self._ask(_ALL)
            self._claim(_ALL)
            self._announce(_ALL)  # before the end of the others, on each link
            self._trust(lost)
            self._release(lost)

    def _settle(self, names: Names, seq: int) -> None:
        """Note that names have changed, with a known end, by what was sent after this."""
        for server, lost in list(self.lost.items()):
            if names.prefixes or len(lost) < len(names):
                over = [name for name in lost if names.covers(name)]
            else:
                over = [name for name in names if name in lost]
            self._found(server, [name for name in over if lost[name][0] < seq])

    def _found(self, server: str, names: list[Name]) -> None:
        """Do not ask any more for what a server may not change any more."""
        lost = self.lost[server]
        for name in names:
            del lost[name]
        if not lost:
            del self.lost[server]
            self._drop_claims(server)
        self._trust(names)
        self._release(names)

    def _find(self, server: str) -> None:
        """Forget what a server may still change: it has told anew what it does."""
        for name in [one for one in self.claims if _server_of(one) == server]:
            del self.claims[name]
        lost = self.lost.pop(server, {})
        self._trust(lost)
        self._release(lost)

    def _drop_claims(self, server: str) -> None:
        """Remove the notes of a server that may change nothing any more.

        Without a lease, others may know more of it than this one.
        """
        if self._now >= self.lease_until:
            return
        for name in [one for one in self.claims if _server_of(one) == server]:
            del self.claims[name]
            self._request(RemoveNotes(f"{name}-"))

    # ---- changes of clients ----

    def _asked(self, event: Asked) -> None:
        change = Change(event.names, event.value, self._now)
        if self.phase in ("leaving", "left"):
            self._out.append(Reply(event.change, Refused("the server ends")))
            return
        for number in self.removals:
            other = self.changes[number]
            if other.unwanted and any(map(other.names.meets, event.names)):
                change.behind.add(number)
        if event.names.prefixes:
            for number, other in self.changes.items():
                if number not in self.removals and any(map(event.names.covers, other.names)):
                    change.behind.add(number)
        for key in event.names.keys:
            if key in self.lines:
                change.behind.add(self.lines[key])
            self.lines[key] = event.change
        if event.names.prefixes:
            self.removals.add(event.change)
        self.changes[event.change] = change
        self._put_behind(event.change, change.behind)
        self._start(event.change)

    def _put_behind(self, number: int, earlier: set[int]) -> None:
        """Let a change wait for earlier ones."""
        self.changes[number].behind |= earlier
        for one in earlier:
            self.followers.setdefault(one, set()).add(number)

    def _start(self, number: int) -> None:
        """Begin a change, if it need not wait for earlier ones."""
        change = self.changes[number]
        if change.step != "queued" or change.behind or self._is_doubted(change):
            return
        change.since = self._now
        change.alone = True
        for key in change.names.keys:
            self.begun[key] = number
        self._ask(change.names, change)
        self._claim(change.names)
        change.step = "waiting"
        if self.phase == "alone":
            change.step = "ready"
            self._out.append(Carry(number))
        elif self.phase == "member":
            self._tell_change(number)
        elif self.phase == "out":
            self.retry_at = self._now

    def _is_doubted(self, change: Change) -> bool:
        """Tell whether a request that was given up may undo a change, if that were sent now."""
        return any(
            any(map(change.names.meets, doubt.names)) and self.holds(doubt.condition, change.value)
            for doubt in self.doubts.values()
        )

    def _start_queued(self) -> None:
        for number in [number for number, one in self.changes.items() if one.step == "queued"]:
            self._start(number)

    def _tell_change(self, number: int) -> None:
        """Tell all peers of a change, under this membership."""
        change = self.changes[number]
        change.number = self._announce(change.names)
        change.epoch = self.epoch
        # The note of a membership only grows while there are changes.
        change.noted = all(map(self.note.names.covers, change.names))
        if not change.noted:
            self._want_note(change.names)
        if change.step == "waiting":
            change.step = "told"
        if change.step in ("told", "made"):
            self.unready.pop(number, None)
            self.unready[number] = None

    def _is_told(self, change: Change) -> bool:
        """Tell whether all peers have noted a change, and the source has it."""
        return (
            self.phase == "member"
            and change.epoch == self.epoch
            and change.noted
            and all(peer.noted >= change.number for peer in self.peers.values())
        )

    def _covers(self, change: Change, now: float) -> bool:
        """Tell whether all servers know of a change, and this one may rely on that."""
        if self.phase == "alone":
            return True
        return now < self.lease_until and self._is_told(change)

    def _turn_came(self, number: int) -> None:
        change = self.changes.get(number)
        if change is None or change.step != "ready":
            return
        if self._covers(change, self._now):
            change.step = "sent"
            self.seq += 1
            change.seq = self.seq
            self._out.append(Go(number))
        else:
            self._tell_again(number)

    def _tell_again(self, number: int) -> None:
        """Take back that a change may be sent, as this membership, or its lease, may be over."""
        change = self.changes[number]
        change.since = self._now
        if self.phase == "member" and change.epoch == self.epoch:
            change.step = "told"
            self.unready[number] = None
            self._proceed()
        else:
            change.step = "waiting"
            if self.phase == "member":
                self._tell_change(number)

    def _given_up(self, number: int, outcome: Refused) -> None:
        change = self.changes.get(number)
        if change is None:
            return
        change.unwanted = True
        if change.step not in ("sent", "made"):
            self._conclude(number, outcome)

    def _ended(self, number: int, outcome: Outcome) -> None:
        change = self.changes.get(number)
        if change is None or change.step != "sent":
            return
        is_made = isinstance(outcome, Done) or (isinstance(outcome, Refused) and outcome.partly)
        if isinstance(outcome, NotSent):
            change.partly |= outcome.partly
            self._tell_again(number)
        elif not is_made or self._covers(change, self._now):
            self._conclude(number, outcome)
        else:
            # Others may have found out that this one is gone, and have forgotten its change.
            change.step, change.outcome = "made", outcome
            change.since = self._now
            if change.epoch == self.epoch and self.phase == "member":
                self.unready[number] = None
            elif self.phase == "out":
                self.retry_at = self._now

    def _conclude(self, number: int, outcome: Outcome) -> None:
        """End a change, and let those go on that have waited for it."""
        change = self.changes.pop(number)
        self.unready.pop(number, None)
        self.removals.discard(number)
        for key in change.names.keys:
            if self.lines.get(key) == number:
                del self.lines[key]
                # Whoever comes next waits for those before this one.
                earlier = [one for one in change.behind if key in self.changes[one].names.keys]
                if earlier:
                    self.lines[key] = max(earlier)
            if self.begun.get(key) == number:
                del self.begun[key]
        begun = change.step != "queued"
        done = isinstance(outcome, Done)
        if isinstance(outcome, Refused) and change.partly:
            outcome = replace(outcome, partly=True)
        if isinstance(outcome, Unknown):
            self._want_note(change.names)
            self._lose(self.server, change.names)
        elif done:
            self._settle(change.names, change.seq)
        self._out.append(Reply(number, outcome, done and change.alone))
        if begun:
            self._trust(change.names)
            self._release(change.names, done=done)
        self.note.idle_since = self._now
        for after in sorted(self.followers.pop(number, ())):
            other = self.changes.get(after)
            if other is not None:
                other.behind.discard(number)
                self._put_behind(after, change.behind)
                self._start(after)

    def _proceed(self) -> None:
        """Let changes go on of which all know."""
        if not self.unready or self.phase != "member":
            return
        low = min([peer.noted for peer in self.peers.values()], default=inf)
        for number in list(self.unready):
            change = self.changes[number]
            if change.number > low:
                continue
            if not change.noted:
                if not all(map(self.note.names.covers, change.names)):
                    continue
                change.noted = True
            if self._now >= self.lease_until:
                self._look()
                break
            del self.unready[number]
            if change.step == "told":
                change.step = "ready"
                self._out.append(Carry(number))
            else:
                self._conclude(number, change.outcome or Unknown())

    def _refuse_unsent(self, why: str) -> None:
        for number, change in list(self.changes.items()):
            if number in self.changes and change.step in ("waiting", "told", "ready"):
                self._conclude(number, Refused(why))

    # ---- the note: of which names requests may still be carried out, if this one is lost ----

    def _want_note(self, names: Names) -> None:
        if self.phase != "member" or all(map(self.note.names.covers, names)):
            return
        self.note.wanted |= Names(prefixes=frozenset(_root(text) for _, text in names))
        self._write_note()

    def _write_note(self) -> None:
        note = self.note
        if note.request or not note.wanted or self.card is None:
            return
        names = note.names | note.wanted
        if len(names) > _MOST_NOTED:
            names = _ALL
        note.count += 1
        note.retry_at = inf
        name = f"{self.card.name}-{note.count:08}"
        if len(note.old) < _MOST_OLD_NOTES:
            note.old.add(name)  # if it fails, it may be there all the same
        note.request = self._request(WriteNote(name, names))

    def _note_answered(self, what: WriteNote, answer: Answer) -> None:
        note = self.note
        note.request = 0
        if isinstance(answer, Failed):
            note.retry_at = self._now + times.AGAIN_SECONDS
            for number in list(self.unready):
                change = self.changes.get(number)
                covered = change is None or all(map(note.names.covers, change.names))
                if change is not None and change.step == "told" and not covered:
                    self._conclude(number, Refused(answer.why))
            return
        self._leave_note()
        note.old.discard(what.note)
        note.name, note.names = what.note, what.names
        note.wanted = Names.of(one for one in note.wanted if not note.names.covers(one))
        if not note.wanted:
            self._remove_old_notes()
        self._write_note()

    def _leave_note(self) -> None:
        """Count the note as an old one, which is removed by its name, and no later one with it."""
        note = self.note
        if note.name:
            note.old.add(note.name)
        note.name, note.names = "", Names()

    def _want_no_note(self) -> None:
        self._leave_note()
        self.note.wanted, self.note.retry_at, self.note.request = Names(), inf, 0

    def _remove_old_notes(self) -> None:
        for old in self.note.old:
            self._request(RemoveNotes(old))
        self.note.old.clear()

    def _may_take_note_back(self) -> bool:
        note = self.note
        return (
            self.phase == "member"
            and bool(note.name or note.old)
            and not (self.changes or note.request or self.server in self.lost)
        )

    def _take_note_back(self) -> None:
        self._want_no_note()
        self._remove_old_notes()

    # ---- requests to the source ----

    def _request(self, what: What, why: str = "") -> int:
        self.last += 1
        self.requests[self.last] = Pending(what, self._now, why)
        self._out.append(Request(self.last, what))
        return self.last

    def _answered(self, pending: Pending, answer: Answer) -> None:
        match pending.what:
            case WriteNote() if self.phase == "leaving":
                if not isinstance(answer, Failed):
                    self._remove_old_notes()
            case WriteNote():
                self._note_answered(pending.what, answer)
            case RemoveNotes() | RemoveCard():
                pass
            case IsOver(card):
                self._judged(card, answer)
            case Fence(name):
                self._fenced(name, answer)
            case ReadCard() if pending.why == "renew":
                self._renewed(pending.began, answer)
            case ListAll() if pending.why == "trial":
                self._try_unreached(answer)
            case _ if self.phase == "joining":
                self._go_on_joining(pending, answer)
        if self.phase == "leaving" and not self.requests:
            self.phase = "left"

    # ---- joining ----

    def _join(self) -> None:
        self.epoch += 1
        self.phase = "joining"
        self.retry_at = inf
        self.stage = "card"
        self.meeting.clear()
        self.skipped.clear()
        contact = self.contact
        self.card = Card(
            server=self.server,
            epoch=self.epoch,
            asks=not self.relies,
            addresses=contact.addresses,
            port=contact.port,
            process=contact.process,
        )
        self.here_at = self._now + times.RENEW_SECONDS
        self._request(WriteCard(self.card), "join")

    def _go_on_joining(self, pending: Pending, answer: Answer) -> None:
        what = pending.what
        if isinstance(answer, Failed):
            self._not_joined(answer)
            return
        match what:
            case WriteCard():
                # Whoever writes a card after this listing sees this one's in his own.
                self.stage = "meet"
                self._request(ListAll(), "join")
            case ListAll() if isinstance(answer, Listing):
                if self.stage == "meet":
                    self._meet_all(answer)
                else:
                    self._read_notes(answer)
            case ReadCard(name) if self.stage == "meet":
                self._met(name, answer)
            case ReadNote(note):
                self.read[note] = answer
            case ReadCard():
                if not (isinstance(answer, Found) and answer.card == self.card):
                    self._not_joined(Failed("another server has shut this one out", passing=True))
                else:
                    self._joined(pending.began)
                return
        self._check_met()

    def _meet_all(self, listing: Listing) -> None:
        card = cast(Card, self.card)
        if card.name not in listing.cards:
            self._not_joined(
                Failed("a listing of the source does not show what is there", never=self.unlisted)
            )
            return
        for name in sorted(listing.cards):
            if _server_of(name) != self.server:
                self.meeting[name] = inf
                if name not in self.peers:
                    self._request(ReadCard(name), "join")
            elif name != card.name:
                self._request(RemoveCard(name))

    def _met(self, name: str, answer: Answer) -> None:
        """Link to a server that was listed, or make sure that it relies on nothing."""
        if name in self.peers or name not in self.meeting:
            return
        if answer is None:
            del self.meeting[name]  # it has left, or was shut out for long enough
        elif not isinstance(answer, Found) or answer.card.name != name:
            self.meeting[name] = self._now + times.FENCE_SECONDS  # somebody shuts it out
        elif answer.over:
            del self.meeting[name]
            self._request(RemoveCard(name))
        elif answer.card.asks and not self.relies:
            del self.meeting[name]  # neither relies on a lease, so neither needs to be told
            self.skipped.add(answer.card.server)
        else:
            peer = self.peers[name] = Peer(answer.card)
            self._recover(peer, dial=True)

    def _check_met(self) -> None:
        """Go on once all that were listed are linked, or rely on nothing."""
        if self.phase != "joining" or self.stage in ("card", "look"):
            return
        if any(one.why == "join" for one in self.requests.values()) or any(
            until < inf and self._now < until for until in self.meeting.values()
        ):
            return
        if not all(peer.synced for peer in self.peers.values()):
            return
        if self.stage == "meet":
            for name, until in self.meeting.items():
                if until < inf:
                    self._request(RemoveCard(name))
            self.meeting.clear()
            self._list_notes()
        elif None in self.read.values():
            self._list_notes()  # its server may have left another one in its place
        else:
            for note, names in self.read.items():
                self._hold(note, cast(Names, names))
            self.read.clear()
            self.stage = "look"
            self._request(ReadCard(cast(Card, self.card).name), "join")

    def _list_notes(self) -> None:
        self.stage = "notes"
        self.read.clear()
        self._request(ListAll(), "join")

    def _read_notes(self, listing: Listing) -> None:
        """Read what those have noted of whom nobody can tell what they may still change."""
        known = {peer.card.server for peer in self.peers.values() if peer.synced} | {self.server}
        skipped = {_server_of(name) for name in listing.cards} & self.skipped
        claimed = set(self.claims).union(*(peer.knows for peer in self.peers.values()))
        for note in sorted(listing.notes):
            name = note.rpartition("-")[0]
            server = _server_of(name)
            if name not in claimed and server not in known | skipped:
                self._request(ReadNote(note), "join")

    def _hold(self, note: str, names: Names) -> None:
        name = note.rpartition("-")[0]
        self._lose(_server_of(name), names)
        self.claims[name] = self._now + times.LATE_SECONDS

    def _joined(self, looked_at: float) -> None:
        self.phase = "member"
        self.failures = 0
        self.meeting.clear()
        # What was fetched before may be older than what those have written who were shut out.
        self._out.append(ForgetAll())
        for change in self.changes.values():
            change.alone = False
        self._set_lease(looked_at + times.LEASE_SECONDS)
        self.look_at = self._now + times.RENEW_SECONDS
        self.yields_until = self._now + times.YIELD_SECONDS
        self._out.append(Report("joined"))
        self._want_note(Names.of(self.lost.get(self.server, {})))
        for number, change in list(self.changes.items()):
            if change.step in ("waiting", "sent", "made"):
                self._tell_change(number)
        if self._may_take_note_back():
            self._take_note_back()

    def _not_joined(self, problem: Failed) -> None:
        self._quit()
        if problem.never:
            self.phase = "alone"
            for number, change in list(self.changes.items()):
                if change.step == "waiting":
                    change.step = "ready"
                    self._out.append(Carry(number))
                elif change.step == "made":
                    self._conclude(number, change.outcome or Unknown())
            self._out.append(Report("alone", problem.why))
            return
        self.retry_at = self._now + times.PAUSES[min(self.failures, len(times.PAUSES) - 1)]
        self.failures += 1
        self._out.append(Report("not_joined", problem.why))
        if not problem.passing:
            self._refuse_unsent(problem.why)

    def _quit(self) -> None:
        """Rely on nothing until the next joining."""
        self._set_lease(0.0)
        self.phase = "out"
        for peer in list(self.peers.values()):
            self._forget(peer, say=True)
        for link in self.links:
            self._out.append(HangUp(link))
        self.links.clear()
        self.claims.clear()  # others may have told more of those to whom they were still linked
        self.trials.clear()
        self.unready.clear()
        if self.card is not None:
            self.requests.clear()
            self._request(RemoveCard(self.card.name))
        self._want_no_note()
        for change in self.changes.values():
            if change.step in ("told", "ready"):
                change.step = "waiting"
                change.since = self._now
        self.card = None

    def _set_lease(self, until: float) -> None:
        self.lease_until = until
        if self.shared and not self.asks:
            self._out.append(Believe(0.0 if self.yields else until))

    # ---- the lease ----

    def _look(self) -> None:
        """Look at the own presence, if no look is under way."""
        is_under_way = any(one.why == "renew" for one in self.requests.values())
        if self.card is None or is_under_way or self._now < self.look_after:
            return
        self.look_at = self._now + times.RENEW_SECONDS
        self._request(ReadCard(self.card.name), "renew")

    def _renewed(self, began: float, answer: Answer) -> None:
        if self.phase != "member":
            return
        if isinstance(answer, Failed):
            # The lease ends by itself.
            self.look_after = self._now + times.AGAIN_SECONDS
            self.look_at = min(self.look_at, self.look_after)
            return
        if isinstance(answer, Found) and answer.card == self.card:
            self._set_lease(max(self.lease_until, began + times.LEASE_SECONDS))
            for peer in self.peers.values():
                if peer.recovery == "check" and peer.until <= began:
                    self._out.append(Report("fencing", peer.why, peer.card))
                    self._fence(peer)
                elif peer.recovery == "check":
                    self._look()
        else:
            self._out.append(Report("fenced"))
            self._rejoin()

    def _rejoin(self) -> None:
        self._quit()
        self.failures = 0
        self.retry_at = self._now + times.PAUSES[0]

    # ---- links ----

    def _dialled(self, dial: int, link: int) -> None:
        if dial in self.trials:
            self.trials.pop(dial)
            self._out.append(HangUp(link))
            self._end_trial()
            return
        dialled = [name for name, peer in self.peers.items() if peer.dial == dial]
        if not dialled or self.card is None:
            self._out.append(HangUp(link))
            return
        self.links[link] = LinkState(self._now, dial, dialled[0])
        self._out.append(Tell(link, Hello(self.card)))

    def _not_dialled(self, dial: int, why: str) -> None:
        if dial in self.trials:
            self.trials.clear()
            self.yields_until = self._now + times.YIELD_SECONDS
            return
        for peer in list(self.peers.values()):
            if peer.dial == dial:
                self._not_reached(peer, why or "it does not answer")
                return

    def _broke(self, link: int) -> None:
        state = self.links.pop(link, None)
        if state is None:
            return
        peer = self.peers.get(state.peer)
        if peer is not None and peer.link == link:
            self._drop(peer, stands_still=False)
        elif state.dial:
            self._not_dialled(state.dial, "it has closed the connection")

    def _received(self, link: int, message: Message) -> None:
        state = self.links.get(link)
        if state is None:
            return
        if not state.peer:
            if isinstance(message, Hello):
                self._greeted(link, state, message.card)
            else:
                self._hang_up(link)
            return
        peer = self.peers[state.peer]
        peer.heard = self._now
        match message:
            case Begin(number, names):
                self.seq += 1
                into = peer.changes if peer.coming is None else peer.coming
                new = [name for name in names if name not in into]
                into.update(dict.fromkeys(names, self.seq))
                self._ask(new)
                self._out.append(Tell(link, Noted(number)))
            case Noted(number):
                peer.noted = max(peer.noted, min(number, peer.told))
                peer.waits_since = None if peer.noted >= peer.told else self._now
            case End(names, done):
                ended = [name for name in names if name in peer.changes]
                begun = [peer.changes.pop(name) for name in ended]
                if done and self.lost:
                    for name, since in zip(ended, begun, strict=True):
                        self._settle(Names.of([name]), since)
                self._trust(ended)
            case Synced(knows):
                if peer.coming is not None:
                    before, peer.changes, peer.coming = peer.changes, peer.coming, None
                    peer.synced, peer.knows = True, knows
                    self._find(peer.card.server)
                    self._trust(before)
                    self._check_met()
            case Bye():
                self._forget(peer)
            case Here():
                pass
            case _:
                self._hang_up(link)
                self._drop(peer, stands_still=False)

    def _greeted(self, link: int, state: LinkState, card: Card) -> None:
        mine = self.card
        if mine is None or card.server == self.server or self.phase not in ("joining", "member"):
            self._hang_up(link)
            return
        if state.dial and card.server != _server_of(state.to):
            self._hang_up(link)
            self._not_dialled(state.dial, "another server is there")
            return
        for former in list(self.peers.values()):
            if former.card.server == card.server and former.card.epoch < card.epoch:
                self._forget(former)  # it does not rely on that any more
        peer = self.peers.get(card.name)
        dialler = mine.name if state.dial else card.name
        if peer is not None and (
            peer.recovery in ("look", "check", "fence", "again", "wait")
            or (peer.link and dialler > peer.dialler)
        ):
            self._hang_up(link)
            return
        if peer is None:
            if any(
                one.card.server == card.server and one.card.epoch > card.epoch
                for one in self.peers.values()
            ):
                self._hang_up(link)
                return
            peer = self.peers[card.name] = Peer(card)
        if not state.dial:
            self._out.append(Tell(link, Hello(mine)))
        self._attach(peer, link, dialler)

    def _attach(self, peer: Peer, link: int, dialler: str) -> None:
        """Use a link from now on; tell the peer first all that this server changes, or may."""
        if peer.link:
            self._hang_up(peer.link)
        self.links[link].peer = peer.card.name
        peer.link, peer.dialler = link, dialler
        peer.recovery, peer.dial = "", 0
        peer.synced = False
        peer.heard = self._now
        before, peer.coming = peer.coming, {}
        if before is not None:
            self._trust(before)
        mine = Names.of(self.mine)
        peer.told = self.number
        peer.waits_since = None
        if mine:
            self._out.append(Tell(link, Begin(self.number, mine)))
            if peer.noted < self.number:
                peer.waits_since = self._now
        else:
            peer.noted = self.number
        # Without a lease, others may know more of those than this one.
        knows = frozenset(self.claims) if self._now < self.lease_until else frozenset[str]()
        self._out.append(Tell(link, Synced(knows)))

    def _hang_up(self, link: int) -> None:
        self.links.pop(link, None)
        self._out.append(HangUp(link))

    # ---- how links end ----

    def _drop(self, peer: Peer, *, stands_still: bool) -> None:
        """End the link of a peer, and make another one, or shut the peer out."""
        if peer.link in self.links:
            self._hang_up(peer.link)
        peer.link = 0
        peer.waits_since = None
        self._recover(peer, dial=not stands_still)

    def _recover(self, peer: Peer, *, dial: bool) -> None:
        if peer.recovery:
            return
        if dial:
            self.last += 1
            peer.recovery, peer.dial = "dial", self.last
            peer.until = self._now + times.DIAL_SECONDS
            self._out.append(Dial(self.last, peer.card))
        else:
            self._not_reached(peer, "it does not answer")

    def _not_reached(self, peer: Peer, why: str) -> None:
        peer.dial = 0
        peer.recovery = ""
        if peer.link:
            return
        name = peer.card.name
        if name in self.meeting and peer.card.server in self.unreached and self.relies:
            # It was shut out, and has come back: it lives. Shutting it out again would only make
            # it do the same. If neither relies on a lease, neither needs to be told anything.
            self._out.append(Report("yielding", why, peer.card))
            self.yields = True
            self._not_joined(Failed("it relies on no lease from now on", passing=True))
            return
        peer.recovery, peer.why = "look", why
        self._request(IsOver(peer.card))

    def _judged(self, card: Card, answer: Answer) -> None:
        peer = self.peers.get(card.name)
        if peer is None or peer.recovery != "look":
            return
        if answer is True:
            self._forget(peer)
            self._request(RemoveCard(card.name))
        elif self.phase == "member":
            # Whoever was shut out, and does not know it, must not shut out others for that.
            peer.recovery, peer.until = "check", self._now
            self.look_after = 0.0
            self._look()
        else:
            self._out.append(Report("fencing", peer.why, card))
            self._fence(peer)

    def _fence(self, peer: Peer) -> None:
        """Shut a peer out."""
        peer.recovery = "fence"
        self._request(Fence(peer.card.name))

    def _fenced(self, name: str, answer: Answer) -> None:
        peer = self.peers.get(name)
        if peer is None or peer.recovery != "fence":
            return
        if isinstance(answer, Failed):
            peer.recovery, peer.until = "again", self._now + times.AGAIN_SECONDS
        else:
            peer.recovery, peer.until = "wait", self._now + times.FENCE_SECONDS
            self.unreached[peer.card.server] = peer.card
            if len(self.unreached) > _MOST_UNREACHED:
                del self.unreached[next(iter(self.unreached))]

    def _forget(self, peer: Peer, *, say: bool = False) -> None:
        """Take no more note of a peer, but of what it may still change."""
        name = peer.card.name
        if peer.link:
            if say:
                self._out.append(Tell(peer.link, Bye()))
            if peer.link in self.links:
                self._hang_up(peer.link)
        del self.peers[name]
        changes = {**peer.changes, **(peer.coming or {})}
        self._lose(peer.card.server, changes)
        self._trust(peer.changes)
        self._trust(peer.coming or {})
        if self.phase == "member" or (self.phase == "joining" and peer.synced):
            self.claims[name] = self._now + times.LATE_SECONDS
            if peer.card.server not in self.lost:
                self._drop_claims(peer.card.server)
        self._check_met()

    # ---- those that cannot be reached ----

    def _try_unreached(self, answer: Answer) -> None:
        self.yields_until = self._now + times.YIELD_SECONDS
        if not isinstance(answer, Listing) or self.phase != "member":
            return
        there = {_server_of(name) for name in answer.cards}
        for server, card in list(self.unreached.items()):
            if server not in there:
                del self.unreached[server]
                continue
            self.last += 1
            self.trials[self.last] = server
            self._out.append(Dial(self.last, card))
        self._end_trial()

    def _end_trial(self) -> None:
        if not self.trials and self.phase == "member":
            self.unreached.clear()
            self.yields = False
            self._rejoin()

    # ---- the end of this one ----

    def _leave(self) -> None:
        if self.phase in ("leaving", "left"):
            return
        has_joined, self.phase = self.phase != "alone" and self.epoch > 0, "leaving"
        why = "the server ends"
        for number, change in list(self.changes.items()):
            change.behind.clear()
            sent = change.step in ("sent", "made")
            self._conclude(number, Unknown(why) if sent else Refused(why))
        self._set_lease(0.0)
        card, note = self.card, self.note
        for peer in self.peers.values():
            if peer.link:
                self._out += [Tell(peer.link, Bye()), HangUp(peer.link)]
        self.peers.clear()
        self.links.clear()
        self.requests.clear()
        if card is not None:
            self._request(RemoveCard(card.name))
        if has_joined:
            lost = self.lost.get(self.server)
            if lost is None:
                self._request(RemoveNotes(f"{self.server}-"))
            else:
                # What exactly may still be carried out takes the place of what might have been.
                note.count += 1
                at = f"{self.server}-{self.epoch}-{note.count:08}"
                self._leave_note()
                self._request(WriteNote(at, Names.of(lost)))
        if not self.requests:
            self.phase = "left"

    # ---- time ----

    def _tick(self) -> None:
        now = self._now
        if self.phase in ("leaving", "left"):
            return  # nothing is waited for any more
        self._end_waits()
        for number, doubt in list(self.doubts.items()):
            if doubt.until <= now:
                del self.doubts[number]
                self._start_queued()
        for server, lost in list(self.lost.items()):
            over = [name for name, (_, until) in lost.items() if until <= now]
            if over:
                self._found(server, over)
        for name, until in list(self.claims.items()):
            if until <= now:
                del self.claims[name]
                self._request(RemoveNotes(f"{name}-"))
        for link, state in list(self.links.items()):
            if not state.peer and state.since + times.DIAL_SECONDS <= now:
                self._hang_up(link)
        for peer in list(self.peers.values()):
            if self.peers.get(peer.card.name) is peer:
                self._tick_peer(peer)
        if self.phase == "out" and self.retry_at <= now:
            self._join()
        elif self.phase == "joining":
            self._check_met()
        elif self.phase == "member":
            if self.look_at <= now:
                self._look()
            if self.yields and self.yields_until <= now and not self.trials:
                self.yields_until = now + times.YIELD_SECONDS
                self._request(ListAll(), "trial")
            if self._may_take_note_back() and self.note.idle_since + times.IDLE_SECONDS <= now:
                self._take_note_back()
            if self.note.retry_at <= now:
                self._write_note()
        if self.here_at <= now:
            self.here_at = now + times.RENEW_SECONDS
            self._tell_all(Here())

    def _end_waits(self) -> None:
        now = self._now
        for number, change in list(self.changes.items()):
            if number not in self.changes:
                continue
            if change.step == "queued" and change.behind:
                if max(change.since, self.heard_at) + self.patience <= now:
                    why = (
                        f"the source has answered nothing for {self.patience:g} s, and this change "
                        "waited for earlier ones of its key"
                    )
                    self._conclude(number, Refused(why, late=True))
            elif change.step in ("waiting", "told"):
                if change.since + times.PATIENCE_SECONDS <= now:
                    why = "other servers of the source do not answer"
                    self._conclude(number, Refused(why, late=True))
            elif change.step == "made" and change.since + self.patience <= now:
                why = "it was made, but other servers of the source do not answer"
                self._conclude(number, Unknown(why))

    def _tick_peer(self, peer: Peer) -> None:
        now = self._now
        if peer.link:
            is_late = peer.waits_since is not None and peer.waits_since + times.ACK_SECONDS <= now
            if is_late or peer.heard + times.SILENCE_SECONDS <= now:
                self._drop(peer, stands_still=True)
        elif peer.recovery == "dial" and peer.until <= now:
            for link, state in list(self.links.items()):
                if state.dial == peer.dial:
                    self._hang_up(link)
            self._not_reached(peer, "it does not answer")
        elif peer.recovery == "again" and peer.until <= now:
            self._fence(peer)
        elif peer.recovery == "wait" and peer.until <= now:
            self._forget(peer)
            self._request(RemoveCard(peer.card.name))

    def _deadlines(self) -> Iterator[float]:
        if self.phase in ("leaving", "left"):
            return
        if self.phase == "out":
            yield self.retry_at
        elif self.phase == "joining":
            yield from (until for until in self.meeting.values() if until > self._now)
        elif self.phase == "member":
            if not any(one.why == "renew" for one in self.requests.values()):
                yield max(self.look_at, self.look_after)
            if self.yields:
                yield self.yields_until
            if self._may_take_note_back():
                yield self.note.idle_since + times.IDLE_SECONDS
            yield self.note.retry_at
        if self.peers:
            yield self.here_at
        for change in self.changes.values():
            if change.step == "queued" and change.behind:
                yield max(change.since, self.heard_at) + self.patience
            elif change.step in ("waiting", "told"):
                yield change.since + times.PATIENCE_SECONDS
            elif change.step == "made":
                yield change.since + self.patience
        for doubt in self.doubts.values():
            yield doubt.until
        for lost in self.lost.values():
            for _, until in lost.values():
                yield until
        yield from self.claims.values()
        for state in self.links.values():
            if not state.peer:
                yield state.since + times.DIAL_SECONDS
        for peer in self.peers.values():
            if peer.link:
                yield peer.heard + times.SILENCE_SECONDS
                if peer.waits_since is not None:
                    yield peer.waits_since + times.ACK_SECONDS
            elif peer.recovery in ("dial", "again", "wait"):
                yield peer.until


def _server_of(name: str) -> str:
    return name.rpartition("-")[0]


def _root(text: str) -> str:
    """Return the prefix under which a name is noted in the source."""
    first, slash, _ = text.partition("/")
    return first + slash if slash else ""
