"""`PeerMachine`: a server among those that write to one source, as a pure state machine.

It knows of each key who changes it, or may: from that follow what the cache may answer, when a
change may be sent, and when it may be acknowledged. docs/consistency.md has the argument.
"""

from collections.abc import Hashable, Iterator
from math import inf

from ucxstore.server.peers import events
from ucxstore.server.peers.changes import Changes
from ucxstore.server.peers.ledger import Ledger
from ucxstore.server.peers.messages import Bye
from ucxstore.server.peers.names import Names
from ucxstore.server.peers.notes import SourceNotes
from ucxstore.server.peers.peering import Peering
from ucxstore.server.peers.state import Doubt, LinkState, Pending, State


class PeerMachine:
    """A server among those that write to one source.

    Events go into `handle`, with the time of their coming on a clock that all of them share; what
    comes out is to be done in that order. `Tick` is due at `wakes_at`, and may come at any time.
    """

    # The parts, each with the rules for a part of the state: tests plant faults in them.
    Ledger = Ledger
    Changes = Changes
    Peering = Peering

    def __init__(self, state: State) -> None:
        self.state = state
        self.ledger = self.Ledger(state)
        self.notes = SourceNotes(state)
        self.changes = self.Changes(state, self.ledger, self.notes)
        self.peering = self.Peering(state, self.ledger, self.notes, self.changes)

    def start(self) -> list[events.Action]:
        """Return what is to be done before any event."""
        return [events.Believe(0.0)] if self.state.shared and not self.state.asks else []

    def handle(self, event: events.Event, now: float) -> list[events.Action]:
        """Take an event that comes now, and return what is to be done."""
        state = self.state
        state.now = now
        state.out = []
        match event:
            case events.Received(link, message):
                self.peering.received(link, message)
            case events.Asked():
                self.changes.ask(event)
            case events.TurnCame(change):
                self.changes.turn_came(change)
            case events.Ended(change, outcome):
                self.changes.ended(change, outcome)
            case events.Heard():
                state.heard_at = now
            case events.Tick():
                self._tick()
            case events.GivenUp(change, why, late):
                self.changes.give_up(change, events.Refused(why, late))
            case events.Answered(request, answer):
                pending = state.requests.pop(request, None)
                if pending is not None:
                    self._answered(pending, answer)
            case events.Doubted(number, names, condition):
                state.doubts[number] = Doubt(names, condition, now + state.lasting)
            case events.Landed(number):
                if state.doubts.pop(number, None) is not None:
                    self.changes.start_queued()
            case events.Accepted(link):
                state.links[link] = LinkState(now)
            case events.Dialled(dial, link):
                self.peering.dialled(dial, link)
            case events.NotDialled(dial, why):
                self.peering.not_dialled(dial, why)
            case events.Broke(link):
                self.peering.broke(link)
            case events.Contacted():
                state.contact = event
                if state.phase == "new":
                    state.phase = "out"
                    self.peering.join()
            case events.Leave():
                self._leave()
        if not isinstance(event, events.Heard | events.TurnCame | events.Doubted) and not (
            state.peers and isinstance(event, events.Asked)
        ):
            self.changes.proceed()
        if state.phase == "out" and state.retry_at <= now:
            self.peering.join()
        out, state.out = state.out, []
        return out

    def may_send(self, change: int, now: float) -> bool:
        """Tell whether the request of a change may be sent, or sent again, now."""
        found = self.state.changes.get(change)
        return found is not None and found.step == "sent" and self.changes.covers(found, now)

    def wakes_at(self) -> float:
        """Return when the next `Tick` is due."""
        return min(self._deadlines(), default=inf)

    def copy(self) -> "PeerMachine":
        """Return a copy that goes its own way."""
        return type(self)(self.state.copy())

    def key(self, now: float = 0.0) -> Hashable:
        """Return what is equal for equal states, seen from now."""
        return self.state.key(now)

    def _answered(self, pending: Pending, answer: events.Answer) -> None:
        state = self.state
        match pending.what:
            case events.WriteNote() if state.phase == "leaving":
                if not isinstance(answer, events.Failed):
                    self.notes.remove_old()
            case events.WriteNote():
                if isinstance(answer, events.Failed):
                    self.notes.not_written()
                    self.changes.refuse_unnoted(answer.why)
                else:
                    self.notes.written(pending.what)
            case events.RemoveNotes() | events.RemovePresence():
                pass
            case events.IsOver(presence):
                self.peering.judged(presence, answer)
            case events.Fence(name):
                self.peering.fenced(name, answer)
            case events.ReadPresence() if pending.why == "renew":
                self.peering.renewed(pending.began, answer)
            case events.ListAll() if pending.why == "trial":
                self.peering.try_unreached(answer)
            case _ if state.phase == "joining":
                self.peering.go_on_joining(pending, answer)
        if state.phase == "leaving" and not state.requests:
            state.phase = "left"

    def _leave(self) -> None:
        state = self.state
        if state.phase in ("leaving", "left"):
            return
        has_joined = state.phase != "alone" and state.epoch > 0
        state.phase = "leaving"
        why = "the server ends"
        for number, change in list(state.changes.items()):
            change.behind.clear()
            sent = change.step in ("sent", "made")
            self.changes.conclude(number, events.Unknown(why) if sent else events.Refused(why))
        state.hold_lease(0.0)
        presence, note = state.presence, state.note
        for peer in state.peers.values():
            if peer.link:
                state.out += [events.Tell(peer.link, Bye()), events.HangUp(peer.link)]
        state.peers.clear()
        state.links.clear()
        state.requests.clear()
        if presence is not None:
            state.request(events.RemovePresence(presence.name))
        if has_joined:
            lost = state.lost.get(state.server)
            if lost is None:
                state.request(events.RemoveNotes(f"{state.server}-"))
            else:
                # What exactly may still be carried out takes the place of what might have been.
                note.count += 1
                at = f"{state.server}-{state.epoch}-{note.count:08}"
                self.notes.leave()
                state.request(events.WriteNote(at, Names.of(lost)))
        if not state.requests:
            state.phase = "left"

    def _tick(self) -> None:
        if self.state.phase in ("leaving", "left"):
            return  # nothing is waited for any more
        self.changes.tick()
        self.ledger.tick()
        self.peering.tick()

    def _deadlines(self) -> Iterator[float]:
        if self.state.phase not in ("leaving", "left"):
            yield from self.changes.deadlines()
            yield from self.ledger.deadlines()
            yield from self.peering.deadlines()
