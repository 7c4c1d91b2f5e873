"""Each guard of the machine, taken away: so the simulator shows that it is needed."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from tests.simulator.chances import PATIENCE
from tests.simulator.world import holds
from ucxstore.server.peers import events
from ucxstore.server.peers.events import Action, Answer, Event, Outcome
from ucxstore.server.peers.machine import Member
from ucxstore.server.peers.messages import Begin, Noted
from ucxstore.server.peers.names import Name, Names
from ucxstore.server.peers.state import Change, Peer


class SettlesWhatCameLater(Member):
    """An end settles also what was lost after its change was sent."""

    def _settle(self, names: Names, seq: int) -> None:
        super()._settle(names, self.seq + 1)


class SendsUnchecked(Member):
    """Nobody looks whether this is still the member that announced when the turn comes."""

    def _turn_came(self, number: int) -> None:
        change = self.changes.get(number)
        if change is not None and change.step == "ready":
            change.step = "sent"
            self.seq += 1
            change.seq = self.seq
            self._out.append(events.Go(number))


class SendsAgainUnchecked(Member):
    """Nobody looks whether this is still the member that announced when a request is repeated."""

    def may_send(self, change: int, now: float) -> bool:
        return True


class AcknowledgesUnchecked(Member):
    """Nobody looks whether this is still the member that announced once the source has answered."""

    def _ended(self, number: int, outcome: Outcome) -> None:
        if isinstance(outcome, events.Done) and number in self.changes:
            self._conclude(number, outcome)
        else:
            super()._ended(number, outcome)


class WaitsForNobody(Member):
    """A change does not wait until its peers have noted it."""

    def _is_told(self, change: Change) -> bool:
        return self.phase == "member" and change.epoch == self.epoch

    def _announce(self, names: Names) -> int:
        number = super()._announce(names)
        for peer in self.peers.values():
            peer.noted = number
        return number


class TellsNobody(Member):
    """Peers are told of no change."""

    def _announce(self, names: Names) -> int:
        self.number += 1
        for peer in self.peers.values():
            peer.told = peer.noted = self.number
        return self.number


class KeepsAtJoining(Member):
    """Joining does not forget what was cached before."""

    def handle(self, event: Event, now: float) -> list[Action]:
        return [one for one in super().handle(event, now) if type(one) is not events.ForgetAll]


class KeepsWhatItWrote(Member):
    """What was written is kept, though others have changed it meanwhile."""

    def handle(self, event: Event, now: float) -> list[Action]:
        return [
            replace(one, keep=isinstance(one.outcome, events.Done))
            if isinstance(one, events.Reply)
            else one
            for one in super().handle(event, now)
        ]


class TellsNewPeersNothing(Member):
    """A new link begins without what this server changes."""

    def _attach(self, peer: Peer, link: int, dialler: str) -> None:
        mine, self.mine = self.mine, {}
        super()._attach(peer, link, dialler)
        self.mine = mine


class WaitsForNoSync(Member):
    """A server joins before its peers have told what they change."""

    def _attach(self, peer: Peer, link: int, dialler: str) -> None:
        super()._attach(peer, link, dialler)
        peer.synced = True
        self._check_met()


class NotesWithoutAsking(Member):
    """A peer says that it has noted a change, and goes on to answer from its cache."""

    def _received(self, link: int, message: Any) -> None:
        if isinstance(message, Begin) and self.links.get(link) and self.links[link].peer:
            self._out.append(events.Tell(link, Noted(message.number)))
        else:
            super()._received(link, message)


class ShutsOutAtOnce(Member):
    """Nobody waits for the lease of whom it has shut out."""

    def _fenced(self, name: str, answer: Answer) -> None:
        super()._fenced(name, answer)
        peer = self.peers.get(name)
        if peer is not None and peer.recovery == "wait":
            peer.until = self._now


class LooksNoMore(Member):
    """The lease is renewed without a look at the presence."""

    def _renewed(self, began: float, answer: Answer) -> None:
        mine = None if self.card is None else events.Found(self.card)
        super()._renewed(began, mine)


class RenewsFromTheAnswer(Member):
    """The lease counts from the answer to the look, and not from when it was sent."""

    def _renewed(self, began: float, answer: Answer) -> None:
        super()._renewed(self._now, answer)


class ForgetsWhatPeersChanged(Member):
    """What a peer was changing is trusted again once the peer is gone."""

    def _lose(self, server: str, names: Iterable[Name]) -> None:
        super()._lose(server, names if server == self.server else ())


class ForgetsWhatItGaveUp(Member):
    """What this server has given up is trusted again."""

    def _lose(self, server: str, names: Iterable[Name]) -> None:
        super()._lose(server, () if server == self.server else names)


class OvertakesDoubts(Member):
    """A change does not wait for the end of one that was given up and may undo it."""

    def _is_doubted(self, change: Change) -> bool:
        return False


class IgnoresFences(Member):
    """Nobody waits for a server that another one has just shut out."""

    def _met(self, name: str, answer: Answer) -> None:
        super()._met(name, None if isinstance(answer, events.Fenced) else answer)


_PLANTED: dict[str, type[Member]] = {
    "settles-what-came-later": SettlesWhatCameLater,
    "sends-unchecked": SendsUnchecked,
    "sends-again-unchecked": SendsAgainUnchecked,
    "acknowledges-unchecked": AcknowledgesUnchecked,
    "waits-for-nobody": WaitsForNobody,
    "tells-nobody": TellsNobody,
    "keeps-at-joining": KeepsAtJoining,
    "keeps-what-it-wrote": KeepsWhatItWrote,
    "tells-new-peers-nothing": TellsNewPeersNothing,
    "waits-for-no-sync": WaitsForNoSync,
    "notes-without-asking": NotesWithoutAsking,
    "shuts-out-at-once": ShutsOutAtOnce,
    "looks-no-more": LooksNoMore,
    "renews-from-the-answer": RenewsFromTheAnswer,
    "forgets-what-peers-changed": ForgetsWhatPeersChanged,
    "forgets-what-it-gave-up": ForgetsWhatItGaveUp,
    "overtakes-doubts": OvertakesDoubts,
    "ignores-fences": IgnoresFences,
}


def _maker(kind: type[Member]) -> Callable[[int], Member]:
    return lambda number: kind(str(number), patience=PATIENCE, holds=holds)


FAULTS: dict[str, Callable[[int], Member]] = {name: _maker(kind) for name, kind in _PLANTED.items()}
