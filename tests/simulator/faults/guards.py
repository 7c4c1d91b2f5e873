"""Each guard of the machine, taken away: so the simulator shows that it is needed."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from tests.simulator.faults.planting import planted
from ucxstore.server.peers import events
from ucxstore.server.peers.changes import Changes
from ucxstore.server.peers.events import Action, Answer, Event, Outcome
from ucxstore.server.peers.ledger import Ledger
from ucxstore.server.peers.machine import PeerMachine
from ucxstore.server.peers.messages import Begin, Noted
from ucxstore.server.peers.names import Name, Names
from ucxstore.server.peers.peering import Peering
from ucxstore.server.peers.state import Change, Peer


class SettlesWhatCameLater(Ledger):
    """An end settles also what was lost after its change was sent."""

    def settle(self, names: Names, seq: int) -> None:
        super().settle(names, self.state.seq + 1)


class SendsUnchecked(Changes):
    """Nobody looks whether this is still the member that announced when the turn comes."""

    def turn_came(self, number: int) -> None:
        change = self.state.changes.get(number)
        if change is not None and change.step == "ready":
            change.step = "sent"
            self.state.seq += 1
            change.seq = self.state.seq
            self.state.out.append(events.Go(number))


class SendsAgainUnchecked(PeerMachine):
    """Nobody looks whether this is still the member that announced when a request is repeated."""

    def may_send(self, change: int, now: float) -> bool:
        return True


class AcknowledgesUnchecked(Changes):
    """Nobody looks whether this is still the member that announced once the source has answered."""

    def ended(self, number: int, outcome: Outcome) -> None:
        if isinstance(outcome, events.Done) and number in self.state.changes:
            self.conclude(number, outcome)
        else:
            super().ended(number, outcome)


class WaitsForNobody(Changes):
    """A change does not wait until its peers have noted it."""

    def _is_told(self, change: Change) -> bool:
        return self.state.phase == "member" and change.epoch == self.state.epoch


class TakesNotesAsGiven(Ledger):
    """What peers are told counts as noted by them at once."""

    def announce(self, names: Names) -> int:
        number = super().announce(names)
        for peer in self.state.peers.values():
            peer.noted = number
        return number


class TellsNobody(Ledger):
    """Peers are told of no change."""

    def announce(self, names: Names) -> int:
        self.state.number += 1
        for peer in self.state.peers.values():
            peer.told = peer.noted = self.state.number
        return self.state.number


class KeepsAtJoining(PeerMachine):
    """Joining does not forget what was cached before."""

    def handle(self, event: Event, now: float) -> list[Action]:
        return [one for one in super().handle(event, now) if type(one) is not events.ForgetAll]


class KeepsWhatItWrote(PeerMachine):
    """What was written is kept, though others have changed it meanwhile."""

    def handle(self, event: Event, now: float) -> list[Action]:
        return [
            replace(one, keep=isinstance(one.outcome, events.Done))
            if isinstance(one, events.Reply)
            else one
            for one in super().handle(event, now)
        ]


class TellsNewPeersNothing(Peering):
    """A new link begins without what this server changes."""

    def _attach(self, peer: Peer, link: int, dialler: str) -> None:
        mine, self.state.mine = self.state.mine, {}
        super()._attach(peer, link, dialler)
        self.state.mine = mine


class WaitsForNoSync(Peering):
    """A server joins before its peers have told what they change."""

    def _attach(self, peer: Peer, link: int, dialler: str) -> None:
        super()._attach(peer, link, dialler)
        peer.synced = True
        self._check_met()


class NotesWithoutAsking(Peering):
    """A peer says that it has noted a change, and goes on to answer from its cache."""

    def received(self, link: int, message: Any) -> None:
        if (
            isinstance(message, Begin)
            and self.state.links.get(link)
            and self.state.links[link].peer
        ):
            self.state.out.append(events.Tell(link, Noted(message.number)))
        else:
            super().received(link, message)


class ShutsOutAtOnce(Peering):
    """Nobody waits for the lease of whom it has shut out."""

    def fenced(self, name: str, answer: Answer) -> None:
        super().fenced(name, answer)
        peer = self.state.peers.get(name)
        if peer is not None and peer.recovery == "wait":
            peer.until = self.state.now


class LooksNoMore(Peering):
    """The lease is renewed without a look at the presence."""

    def renewed(self, began: float, answer: Answer) -> None:
        mine = None if self.state.presence is None else events.FoundPresence(self.state.presence)
        super().renewed(began, mine)


class RenewsFromTheAnswer(Peering):
    """The lease counts from the answer to the look, and not from when it was sent."""

    def renewed(self, began: float, answer: Answer) -> None:
        super().renewed(self.state.now, answer)


class ForgetsWhatPeersChanged(Ledger):
    """What a peer was changing is trusted again once the peer is gone."""

    def lose(self, server: str, names: Iterable[Name]) -> None:
        super().lose(server, names if server == self.state.server else ())


class ForgetsWhatItGaveUp(Ledger):
    """What this server has given up is trusted again."""

    def lose(self, server: str, names: Iterable[Name]) -> None:
        super().lose(server, () if server == self.state.server else names)


class OvertakesDoubts(Changes):
    """A change does not wait for the end of one that was given up and may undo it."""

    def _is_doubted(self, change: Change) -> bool:
        return False


class IgnoresFences(Peering):
    """Nobody waits for a server that another one has just shut out."""

    def _met(self, name: str, answer: Answer) -> None:
        super()._met(name, None if isinstance(answer, events.Fenced) else answer)


FAULTS: dict[str, Callable[[int], PeerMachine]] = {
    "settles-what-came-later": planted(SettlesWhatCameLater),
    "sends-unchecked": planted(SendsUnchecked),
    "sends-again-unchecked": planted(SendsAgainUnchecked),
    "acknowledges-unchecked": planted(AcknowledgesUnchecked),
    "waits-for-nobody": planted(WaitsForNobody, TakesNotesAsGiven),
    "tells-nobody": planted(TellsNobody),
    "keeps-at-joining": planted(KeepsAtJoining),
    "keeps-what-it-wrote": planted(KeepsWhatItWrote),
    "tells-new-peers-nothing": planted(TellsNewPeersNothing),
    "waits-for-no-sync": planted(WaitsForNoSync),
    "notes-without-asking": planted(NotesWithoutAsking),
    "shuts-out-at-once": planted(ShutsOutAtOnce),
    "looks-no-more": planted(LooksNoMore),
    "renews-from-the-answer": planted(RenewsFromTheAnswer),
    "forgets-what-peers-changed": planted(ForgetsWhatPeersChanged),
    "forgets-what-it-gave-up": planted(ForgetsWhatItGaveUp),
    "overtakes-doubts": planted(OvertakesDoubts),
    "ignores-fences": planted(IgnoresFences),
}
