"""Faults that servers of one source once had."""

from collections.abc import Iterable
from math import inf

from tests.simulator.faults.planting import planted
from ucxstore.server.peers import events
from ucxstore.server.peers.changes import Changes
from ucxstore.server.peers.events import Answer, Failed, Outcome, Refused
from ucxstore.server.peers.ledger import Ledger
from ucxstore.server.peers.machine import PeerMachine
from ucxstore.server.peers.names import Name, Names
from ucxstore.server.peers.peering import Peering
from ucxstore.server.peers.state import State


class QuitsUntold(Peering):
    """Leaving takes the peers' notes as given: it sends changes that nobody was told of."""

    def _quit(self) -> None:
        for number, change in self.state.changes.items():
            if change.step == "told":
                change.step = "ready"
                self.state.out.append(events.Carry(number))
        ready = [change for change in self.state.changes.values() if change.step == "ready"]
        super()._quit()
        for change in ready:
            change.step = "ready"


class SendsUntold(Changes):
    """A change whose turn has come is sent, whoever was told of it."""

    def turn_came(self, number: int) -> None:
        change = self.state.changes.get(number)
        if change is not None and change.step == "ready":
            _send(self.state, number)


class LeavesUntold(PeerMachine):
    """The end of a server sends what peers are told of."""

    def _leave(self) -> None:
        for number, change in self.state.changes.items():
            if change.step == "told":
                _send(self.state, number)
        super()._leave()


def _send(state: State, number: int) -> None:
    change = state.changes[number]
    change.step = "sent"
    state.seq += 1
    change.seq = state.seq
    state.out.append(events.Go(number))


class TellsMadeAsNotMade(Peering):
    """A failed look at the presence, after the source's answer, counts as "not made"."""

    def renewed(self, began: float, answer: Answer) -> None:
        if isinstance(answer, Failed):
            for number, change in list(self.state.changes.items()):
                if change.step == "made":
                    self.changes.conclude(number, Refused("the presence cannot be read"))
        super().renewed(began, answer)


class ForgetsAtRestart(Peering):
    """Nobody learns what members that are gone may still change."""

    def _read_notes(self, listing: events.PeerListing) -> None:
        pass


class ConcludesRefused(Changes):
    """What the source has refused counts as what may still be made."""

    def conclude(self, number: int, outcome: Outcome) -> None:
        if isinstance(outcome, Refused) and self.state.changes[number].step == "sent":
            self.ledger.lose(self.state.server, self.state.changes[number].names)
        super().conclude(number, outcome)


class RemembersAll(Ledger):
    """A single lost name counts as more than can be told apart, which turns caches off for good."""

    def lose(self, server: str, names: Iterable[Name]) -> None:
        super().lose(server, names)
        before = self.state.lost.get(server, {})
        if any(not is_prefix for is_prefix, _ in before):
            # As if there had been ten thousand; and for good.
            whole = Names(prefixes=frozenset({""}))
            self.state.lost[server] = dict.fromkeys(whole, (self.state.seq, inf))
            self.ask(whole)
            self.claim(whole)
            self.announce(whole)
            self.trust(before)
            self.release(before)


FAULTS = {
    "sends-untold": planted(LeavesUntold, QuitsUntold, SendsUntold),
    "tells-made-as-not-made": planted(TellsMadeAsNotMade),
    "forgets-at-restart": planted(ForgetsAtRestart),
    "remembers-refused": planted(ConcludesRefused, RemembersAll),
}
