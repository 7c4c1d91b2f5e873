"""Faults that servers of one source once had."""

from collections.abc import Iterable
from math import inf

from tests.simulator.chances import PATIENCE
from tests.simulator.world import holds
from ucxstore.server.peers import events
from ucxstore.server.peers.events import Answer, Failed, Outcome, Refused
from ucxstore.server.peers.machine import Member
from ucxstore.server.peers.names import Name, Names


class SendsUntold(Member):
    """Leaving takes the peers' notes as given: it sends changes that nobody was told of."""

    def _quit(self) -> None:
        for number, change in self.changes.items():
            if change.step == "told":
                change.step = "ready"
                self._out.append(events.Carry(number))
        ready = [change for change in self.changes.values() if change.step == "ready"]
        super()._quit()
        for change in ready:
            change.step = "ready"

    def _turn_came(self, number: int) -> None:
        change = self.changes.get(number)
        if change is not None and change.step == "ready":
            self._send(number)

    def _leave(self) -> None:
        for number, change in self.changes.items():
            if change.step == "told":
                self._send(number)
        super()._leave()

    def _send(self, number: int) -> None:
        change = self.changes[number]
        change.step = "sent"
        self.seq += 1
        change.seq = self.seq
        self._out.append(events.Go(number))


class TellsMadeAsNotMade(Member):
    """A failed look at the presence, after the source's answer, counts as "not made"."""

    def _renewed(self, began: float, answer: Answer) -> None:
        if isinstance(answer, Failed):
            for number, change in list(self.changes.items()):
                if change.step == "made":
                    self._conclude(number, Refused("the presence cannot be read"))
        super()._renewed(began, answer)


class ForgetsAtRestart(Member):
    """Nobody learns what members that are gone may still change."""

    def _read_notes(self, listing: events.Listing) -> None:
        pass


class RemembersRefused(Member):
    """What the source has refused counts as what may still be made; too many turn caches off."""

    def _conclude(self, number: int, outcome: Outcome) -> None:
        if isinstance(outcome, Refused) and self.changes[number].step == "sent":
            self._lose(self.server, self.changes[number].names)
        super()._conclude(number, outcome)

    def _lose(self, server: str, names: Iterable[Name]) -> None:
        super()._lose(server, names)
        before = self.lost.get(server, {})
        if any(not is_prefix for is_prefix, _ in before):
            # As if there had been ten thousand; and for good.
            whole = Names(prefixes=frozenset({""}))
            self.lost[server] = dict.fromkeys(whole, (self.seq, inf))
            self._ask(whole)
            self._claim(whole)
            self._announce(whole)
            self._trust(before)
            self._release(before)


def _make(kind: type[Member], number: int) -> Member:
    return kind(str(number), patience=PATIENCE, holds=holds)


FAULTS = {
    "sends-untold": lambda number: _make(SendsUntold, number),
    "tells-made-as-not-made": lambda number: _make(TellsMadeAsNotMade, number),
    "forgets-at-restart": lambda number: _make(ForgetsAtRestart, number),
    "remembers-refused": lambda number: _make(RemembersRefused, number),
}
