"""`Changes`: changes that clients have asked for, from their queue to their end."""

from collections.abc import Iterator
from dataclasses import replace
from math import inf

from ucxstore.server.peers import times
from ucxstore.server.peers.events import (
    Asked,
    Carry,
    Done,
    Go,
    NotSent,
    Outcome,
    Refused,
    Reply,
    Unknown,
)
from ucxstore.server.peers.ledger import Ledger
from ucxstore.server.peers.notes import SourceNotes
from ucxstore.server.peers.state import Change, State


class Changes:
    """Changes that clients have asked for: queued by key, told to all peers, sent, concluded."""

    def __init__(self, state: State, ledger: Ledger, notes: SourceNotes) -> None:
        self.state = state
        self.ledger = ledger
        self.notes = notes

    def ask(self, event: Asked) -> None:
        """Queue a change behind earlier ones of its keys, and begin it if there are none."""
        state = self.state
        change = Change(event.names, event.value, state.now)
        if state.phase in ("leaving", "left"):
            state.out.append(Reply(event.change, Refused("the server ends")))
            return
        for number in state.removals:
            other = state.changes[number]
            if other.unwanted and any(map(other.names.meets, event.names)):
                change.behind.add(number)
        if event.names.prefixes:
            for number, other in state.changes.items():
                if number not in state.removals and any(map(event.names.covers, other.names)):
                    change.behind.add(number)
        for key in event.names.keys:
            if key in state.lines:
                change.behind.add(state.lines[key])
            state.lines[key] = event.change
        if event.names.prefixes:
            state.removals.add(event.change)
        state.changes[event.change] = change
        self._put_behind(event.change, change.behind)
        self._start(event.change)

    def _put_behind(self, number: int, earlier: set[int]) -> None:
        """Let a change wait for earlier ones."""
        self.state.changes[number].behind |= earlier
        for one in earlier:
            self.state.followers.setdefault(one, set()).add(number)

    def _start(self, number: int) -> None:
        """Begin a change, if it need not wait for earlier ones."""
        state = self.state
        change = state.changes[number]
        if change.step != "queued" or change.behind or self._is_doubted(change):
            return
        change.since = state.now
        change.alone = True
        for key in change.names.keys:
            state.begun[key] = number
        self.ledger.ask(change.names, change)
        self.ledger.claim(change.names)
        change.step = "waiting"
        if state.phase == "alone":
            change.step = "ready"
            state.out.append(Carry(number))
        elif state.phase == "member":
            self.tell(number)
        elif state.phase == "out":
            state.retry_at = state.now

    def _is_doubted(self, change: Change) -> bool:
        """Tell whether a request that was given up may undo a change, if that were sent now."""
        return any(
            any(map(change.names.meets, doubt.names))
            and self.state.holds(doubt.condition, change.value)
            for doubt in self.state.doubts.values()
        )

    def start_queued(self) -> None:
        """Begin what need not wait any more."""
        for number in [
            number for number, one in self.state.changes.items() if one.step == "queued"
        ]:
            self._start(number)

    def tell(self, number: int) -> None:
        """Tell all peers of a change, under this membership."""
        state = self.state
        change = state.changes[number]
        change.number = self.ledger.announce(change.names)
        change.epoch = state.epoch
        # The note of a membership only grows while there are changes.
        change.noted = all(map(state.note.names.covers, change.names))
        if not change.noted:
            self.notes.want(change.names)
        if change.step == "waiting":
            change.step = "told"
        if change.step in ("told", "made"):
            state.unready.pop(number, None)
            state.unready[number] = None

    def _is_told(self, change: Change) -> bool:
        """Tell whether all peers have noted a change, and the source has it."""
        state = self.state
        return (
            state.phase == "member"
            and change.epoch == state.epoch
            and change.noted
            and all(peer.noted >= change.number for peer in state.peers.values())
        )

    def covers(self, change: Change, now: float) -> bool:
        """Tell whether all servers know of a change, and this one may rely on that."""
        if self.state.phase == "alone":
            return True
        return now < self.state.lease_until and self._is_told(change)

    def turn_came(self, number: int) -> None:
        """Send a change, if all servers know of it now."""
        state = self.state
        change = state.changes.get(number)
        if change is None or change.step != "ready":
            return
        if self.covers(change, state.now):
            change.step = "sent"
            state.seq += 1
            change.seq = state.seq
            state.out.append(Go(number))
        else:
            self._tell_again(number)

    def _tell_again(self, number: int) -> None:
        """Take back that a change may be sent, as this membership, or its lease, may be over."""
        state = self.state
        change = state.changes[number]
        change.since = state.now
        if state.phase == "member" and change.epoch == state.epoch:
            change.step = "told"
            state.unready[number] = None
            self.proceed()
        else:
            change.step = "waiting"
            if state.phase == "member":
                self.tell(number)

    def give_up(self, number: int, outcome: Refused) -> None:
        """Take it that nobody waits for a change any more."""
        change = self.state.changes.get(number)
        if change is None:
            return
        change.unwanted = True
        if change.step not in ("sent", "made"):
            self.conclude(number, outcome)

    def ended(self, number: int, outcome: Outcome) -> None:
        """Take how the source has answered; conclude the change, or confirm it first."""
        state = self.state
        change = state.changes.get(number)
        if change is None or change.step != "sent":
            return
        is_made = isinstance(outcome, Done) or (isinstance(outcome, Refused) and outcome.partly)
        if isinstance(outcome, NotSent):
            change.partly |= outcome.partly
            self._tell_again(number)
        elif not is_made or self.covers(change, state.now):
            self.conclude(number, outcome)
        else:
            # Others may have found out that this one is gone, and have forgotten its change.
            change.step, change.outcome = "made", outcome
            change.since = state.now
            if change.epoch == state.epoch and state.phase == "member":
                state.unready[number] = None
            elif state.phase == "out":
                state.retry_at = state.now

    def conclude(self, number: int, outcome: Outcome) -> None:
        """End a change, and let those go on that have waited for it."""
        state = self.state
        change = state.changes.pop(number)
        state.unready.pop(number, None)
        state.removals.discard(number)
        for key in change.names.keys:
            if state.lines.get(key) == number:
                del state.lines[key]
                # Whoever comes next waits for those before this one.
                earlier = [one for one in change.behind if key in state.changes[one].names.keys]
                if earlier:
                    state.lines[key] = max(earlier)
            if state.begun.get(key) == number:
                del state.begun[key]
        begun = change.step != "queued"
        done = isinstance(outcome, Done)
        if isinstance(outcome, Refused) and change.partly:
            outcome = replace(outcome, partly=True)
        if isinstance(outcome, Unknown):
            self.notes.want(change.names)
            self.ledger.lose(state.server, change.names)
        elif done:
            self.ledger.settle(change.names, change.seq)
        state.out.append(Reply(number, outcome, done and change.alone))
        if begun:
            self.ledger.trust(change.names)
            self.ledger.release(change.names, done=done)
        state.note.idle_since = state.now
        for after in sorted(state.followers.pop(number, ())):
            other = state.changes.get(after)
            if other is not None:
                other.behind.discard(number)
                self._put_behind(after, change.behind)
                self._start(after)

    def proceed(self) -> None:
        """Let changes go on of which all know."""
        state = self.state
        if not state.unready or state.phase != "member":
            return
        low = min([peer.noted for peer in state.peers.values()], default=inf)
        for number in list(state.unready):
            change = state.changes[number]
            if change.number > low:
                continue
            if not change.noted:
                if not all(map(state.note.names.covers, change.names)):
                    continue
                change.noted = True
            if state.now >= state.lease_until:
                state.look()
                break
            del state.unready[number]
            if change.step == "told":
                change.step = "ready"
                state.out.append(Carry(number))
            else:
                self.conclude(number, change.outcome or Unknown())

    def refuse_unsent(self, why: str) -> None:
        """End all changes that were not sent."""
        for number, change in list(self.state.changes.items()):
            if number in self.state.changes and change.step in ("waiting", "told", "ready"):
                self.conclude(number, Refused(why))

    def refuse_unnoted(self, why: str) -> None:
        """End the changes that were told, but could not be noted in the source."""
        state = self.state
        for number in list(state.unready):
            change = state.changes.get(number)
            covered = change is None or all(map(state.note.names.covers, change.names))
            if change is not None and change.step == "told" and not covered:
                self.conclude(number, Refused(why))

    def tick(self) -> None:
        """End what has waited for too long."""
        state = self.state
        for number, change in list(state.changes.items()):
            if number in state.changes:
                until, outcome = self._limit_of(change)
                if until <= state.now:
                    self.conclude(number, outcome)
        for number, doubt in list(state.doubts.items()):
            if doubt.until <= state.now:
                del state.doubts[number]
                self.start_queued()

    def _limit_of(self, change: Change) -> tuple[float, Outcome]:
        """Return until when a change waits for what it waits for, and how it ends then."""
        state = self.state
        if change.step == "queued" and change.behind:
            why = (
                f"the source has answered nothing for {state.patience:g} s, and this change "
                "waited for earlier ones of its key"
            )
            until = max(change.since, state.heard_at) + state.patience
            return until, Refused(why, late=True)
        if change.step in ("waiting", "told"):
            why = "other servers of the source do not answer"
            return change.since + times.PATIENCE_SECONDS, Refused(why, late=True)
        if change.step == "made":
            why = "it was made, but other servers of the source do not answer"
            return change.since + state.patience, Unknown(why)
        return inf, Unknown()

    def deadlines(self) -> Iterator[float]:
        """Yield when `tick` is due."""
        for change in self.state.changes.values():
            yield self._limit_of(change)[0]
        for doubt in self.state.doubts.values():
            yield doubt.until
