"""`Peering`: join the peers, keep links to them, and shut out those that cannot be reached."""

from collections.abc import Iterator
from math import inf
from typing import cast

from ucxstore.server.peers import times
from ucxstore.server.peers.card import Card
from ucxstore.server.peers.changes import Changes
from ucxstore.server.peers.events import (
    Answer,
    Carry,
    Dial,
    Failed,
    Fence,
    ForgetAll,
    Found,
    HangUp,
    IsOver,
    ListAll,
    Listing,
    ReadCard,
    ReadNote,
    RemoveCard,
    Report,
    Tell,
    Unknown,
    WriteCard,
)
from ucxstore.server.peers.lease import Lease
from ucxstore.server.peers.ledger import Ledger
from ucxstore.server.peers.messages import Begin, Bye, End, Hello, Here, Message, Noted, Synced
from ucxstore.server.peers.names import Names
from ucxstore.server.peers.notes import Notes
from ucxstore.server.peers.state import LinkState, Peer, Pending, State, server_of

# Servers that were shut out, and may come back.
_MOST_UNREACHED = 100


class Peering:
    """A membership among the peers: join, look at the own presence, link, shut out, quit."""

    def __init__(
        self, state: State, ledger: Ledger, notes: Notes, lease: Lease, changes: Changes
    ) -> None:
        self.state = state
        self.ledger = ledger
        self.notes = notes
        self.lease = lease
        self.changes = changes

    def join(self) -> None:
        """Begin to join the peers."""
        state = self.state
        state.epoch += 1
        state.phase = "joining"
        state.retry_at = inf
        state.stage = "card"
        state.meeting.clear()
        state.skipped.clear()
        contact = state.contact
        state.card = Card(
            server=state.server,
            epoch=state.epoch,
            asks=not state.relies,
            addresses=contact.addresses,
            port=contact.port,
            process=contact.process,
        )
        state.here_at = state.now + times.RENEW_SECONDS
        state.request(WriteCard(state.card), "join")

    def go_on_joining(self, pending: Pending, answer: Answer) -> None:
        """Take an answer of the source while joining."""
        state = self.state
        what = pending.what
        if isinstance(answer, Failed):
            self._not_joined(answer)
            return
        match what:
            case WriteCard():
                # Whoever writes a card after this listing sees this one's in his own.
                state.stage = "meet"
                state.request(ListAll(), "join")
            case ListAll() if isinstance(answer, Listing):
                if state.stage == "meet":
                    self._meet_all(answer)
                else:
                    self._read_notes(answer)
            case ReadCard(name) if state.stage == "meet":
                self._met(name, answer)
            case ReadNote(note):
                state.read[note] = answer
            case ReadCard():
                if not (isinstance(answer, Found) and answer.card == state.card):
                    self._not_joined(Failed("another server has shut this one out", passing=True))
                else:
                    self._joined(pending.began)
                return
        self._check_met()

    def _meet_all(self, listing: Listing) -> None:
        state = self.state
        card = cast(Card, state.card)
        if card.name not in listing.cards:
            self._not_joined(
                Failed("a listing of the source does not show what is there", never=state.unlisted)
            )
            return
        for name in sorted(listing.cards):
            if server_of(name) != state.server:
                state.meeting[name] = inf
                if name not in state.peers:
                    state.request(ReadCard(name), "join")
            elif name != card.name:
                state.request(RemoveCard(name))

    def _met(self, name: str, answer: Answer) -> None:
        """Link to a server that was listed, or make sure that it relies on nothing."""
        state = self.state
        if name in state.peers or name not in state.meeting:
            return
        if answer is None:
            del state.meeting[name]  # it has left, or was shut out for long enough
        elif not isinstance(answer, Found) or answer.card.name != name:
            state.meeting[name] = state.now + times.FENCE_SECONDS  # somebody shuts it out
        elif answer.over:
            del state.meeting[name]
            state.request(RemoveCard(name))
        elif answer.card.asks and not state.relies:
            del state.meeting[name]  # neither relies on a lease, so neither needs to be told
            state.skipped.add(answer.card.server)
        else:
            peer = state.peers[name] = Peer(answer.card)
            self._recover(peer, dial=True)

    def _check_met(self) -> None:
        """Go on once all that were listed are linked, or rely on nothing."""
        state = self.state
        if state.phase != "joining" or state.stage in ("card", "look"):
            return
        if any(one.why == "join" for one in state.requests.values()) or any(
            until < inf and state.now < until for until in state.meeting.values()
        ):
            return
        if not all(peer.synced for peer in state.peers.values()):
            return
        if state.stage == "meet":
            for name, until in state.meeting.items():
                if until < inf:
                    state.request(RemoveCard(name))
            state.meeting.clear()
            self._list_notes()
        elif None in state.read.values():
            self._list_notes()  # its server may have left another one in its place
        else:
            for note, names in state.read.items():
                self._hold(note, cast(Names, names))
            state.read.clear()
            state.stage = "look"
            state.request(ReadCard(cast(Card, state.card).name), "join")

    def _list_notes(self) -> None:
        state = self.state
        state.stage = "notes"
        state.read.clear()
        state.request(ListAll(), "join")

    def _read_notes(self, listing: Listing) -> None:
        """Read what those have noted of whom nobody can tell what they may still change."""
        state = self.state
        known = {peer.card.server for peer in state.peers.values() if peer.synced} | {state.server}
        skipped = {server_of(name) for name in listing.cards} & state.skipped
        claimed = set(state.claims).union(*(peer.knows for peer in state.peers.values()))
        for note in sorted(listing.notes):
            name = note.rpartition("-")[0]
            server = server_of(name)
            if name not in claimed and server not in known | skipped:
                state.request(ReadNote(note), "join")

    def _hold(self, note: str, names: Names) -> None:
        name = note.rpartition("-")[0]
        self.ledger.lose(server_of(name), names)
        self.state.claims[name] = self.state.now + times.LATE_SECONDS

    def _joined(self, looked_at: float) -> None:
        state = self.state
        state.phase = "member"
        state.failures = 0
        state.meeting.clear()
        # What was fetched before may be older than what those have written who were shut out.
        state.out.append(ForgetAll())
        for change in state.changes.values():
            change.alone = False
        self.lease.hold_until(looked_at + times.LEASE_SECONDS)
        state.look_at = state.now + times.RENEW_SECONDS
        state.yields_until = state.now + times.YIELD_SECONDS
        state.out.append(Report("joined"))
        self.notes.want(Names.of(state.lost.get(state.server, {})))
        for number, change in list(state.changes.items()):
            if change.step in ("waiting", "sent", "made"):
                self.changes.tell(number)
        if self.notes.may_take_back():
            self.notes.take_back()

    def _not_joined(self, problem: Failed) -> None:
        state = self.state
        self._quit()
        if problem.never:
            state.phase = "alone"
            for number, change in list(state.changes.items()):
                if change.step == "waiting":
                    change.step = "ready"
                    state.out.append(Carry(number))
                elif change.step == "made":
                    self.changes.conclude(number, change.outcome or Unknown())
            state.out.append(Report("alone", problem.why))
            return
        state.retry_at = state.now + times.PAUSES[min(state.failures, len(times.PAUSES) - 1)]
        state.failures += 1
        state.out.append(Report("not_joined", problem.why))
        if not problem.passing:
            self.changes.refuse_unsent(problem.why)

    def _quit(self) -> None:
        """Rely on nothing until the next joining."""
        state = self.state
        self.lease.hold_until(0.0)
        state.phase = "out"
        for peer in list(state.peers.values()):
            self._forget(peer, say=True)
        for link in state.links:
            state.out.append(HangUp(link))
        state.links.clear()
        state.claims.clear()  # others may have told more of those to whom they were still linked
        state.trials.clear()
        state.unready.clear()
        if state.card is not None:
            state.requests.clear()
            state.request(RemoveCard(state.card.name))
        self.notes.drop()
        for change in state.changes.values():
            if change.step in ("told", "ready"):
                change.step = "waiting"
                change.since = state.now
        state.card = None

    def renewed(self, began: float, answer: Answer) -> None:
        """Take the answer to a look at the own presence."""
        state = self.state
        if state.phase != "member":
            return
        if isinstance(answer, Failed):
            # The lease ends by itself.
            state.look_after = state.now + times.AGAIN_SECONDS
            state.look_at = min(state.look_at, state.look_after)
            return
        if isinstance(answer, Found) and answer.card == state.card:
            self.lease.hold_until(max(state.lease_until, began + times.LEASE_SECONDS))
            for peer in state.peers.values():
                if peer.recovery == "check" and peer.until <= began:
                    state.out.append(Report("fencing", peer.why, peer.card))
                    self._fence(peer)
                elif peer.recovery == "check":
                    self.lease.look()
        else:
            state.out.append(Report("fenced"))
            self._rejoin()

    def _rejoin(self) -> None:
        state = self.state
        self._quit()
        state.failures = 0
        state.retry_at = state.now + times.PAUSES[0]

    def dialled(self, dial: int, link: int) -> None:
        """Take a link that this server has asked for."""
        state = self.state
        if dial in state.trials:
            state.trials.pop(dial)
            state.out.append(HangUp(link))
            self._end_trial()
            return
        dialled = [name for name, peer in state.peers.items() if peer.dial == dial]
        if not dialled or state.card is None:
            state.out.append(HangUp(link))
            return
        state.links[link] = LinkState(state.now, dial, dialled[0])
        state.out.append(Tell(link, Hello(state.card)))

    def not_dialled(self, dial: int, why: str) -> None:
        """Take it that a link could not be made."""
        state = self.state
        if dial in state.trials:
            state.trials.clear()
            state.yields_until = state.now + times.YIELD_SECONDS
            return
        for peer in list(state.peers.values()):
            if peer.dial == dial:
                self._not_reached(peer, why or "it does not answer")
                return

    def broke(self, link: int) -> None:
        """Take the end of a link."""
        found = self.state.links.pop(link, None)
        if found is None:
            return
        peer = self.state.peers.get(found.peer)
        if peer is not None and peer.link == link:
            self._drop(peer, stands_still=False)
        elif found.dial:
            self.not_dialled(found.dial, "it has closed the connection")

    def received(self, link: int, message: Message) -> None:
        """Take a message of a peer."""
        state = self.state
        found = state.links.get(link)
        if found is None:
            return
        if not found.peer:
            if isinstance(message, Hello):
                self._greeted(link, found, message.card)
            else:
                self._hang_up(link)
            return
        peer = state.peers[found.peer]
        peer.heard = state.now
        match message:
            case Begin(number, names):
                state.seq += 1
                into = peer.changes if peer.coming is None else peer.coming
                new = [name for name in names if name not in into]
                into.update(dict.fromkeys(names, state.seq))
                self.ledger.ask(new)
                state.out.append(Tell(link, Noted(number)))
            case Noted(number):
                peer.noted = max(peer.noted, min(number, peer.told))
                peer.waits_since = None if peer.noted >= peer.told else state.now
            case End(names, done):
                ended = [name for name in names if name in peer.changes]
                begun = [peer.changes.pop(name) for name in ended]
                if done and state.lost:
                    for name, since in zip(ended, begun, strict=True):
                        self.ledger.settle(Names.of([name]), since)
                self.ledger.trust(ended)
            case Synced(knows):
                if peer.coming is not None:
                    before, peer.changes, peer.coming = peer.changes, peer.coming, None
                    peer.synced, peer.knows = True, knows
                    self.ledger.find(peer.card.server)
                    self.ledger.trust(before)
                    self._check_met()
            case Bye():
                self._forget(peer)
            case Here():
                pass
            case _:
                self._hang_up(link)
                self._drop(peer, stands_still=False)

    def _greeted(self, link: int, found: LinkState, card: Card) -> None:
        state = self.state
        mine = state.card
        if mine is None or card.server == state.server or state.phase not in ("joining", "member"):
            self._hang_up(link)
            return
        if found.dial and card.server != server_of(found.to):
            self._hang_up(link)
            self.not_dialled(found.dial, "another server is there")
            return
        for former in list(state.peers.values()):
            if former.card.server == card.server and former.card.epoch < card.epoch:
                self._forget(former)  # it does not rely on that any more
        peer = state.peers.get(card.name)
        dialler = mine.name if found.dial else card.name
        if peer is not None and (
            peer.recovery in ("look", "check", "fence", "again", "wait")
            or (peer.link and dialler > peer.dialler)
        ):
            self._hang_up(link)
            return
        if peer is None:
            if any(
                one.card.server == card.server and one.card.epoch > card.epoch
                for one in state.peers.values()
            ):
                self._hang_up(link)
                return
            peer = state.peers[card.name] = Peer(card)
        if not found.dial:
            state.out.append(Tell(link, Hello(mine)))
        self._attach(peer, link, dialler)

    def _attach(self, peer: Peer, link: int, dialler: str) -> None:
        """Use a link from now on; tell the peer first all that this server changes, or may."""
        state = self.state
        if peer.link:
            self._hang_up(peer.link)
        state.links[link].peer = peer.card.name
        peer.link, peer.dialler = link, dialler
        peer.recovery, peer.dial = "", 0
        peer.synced = False
        peer.heard = state.now
        before, peer.coming = peer.coming, {}
        if before is not None:
            self.ledger.trust(before)
        mine = Names.of(state.mine)
        peer.told = state.number
        peer.waits_since = None
        if mine:
            state.out.append(Tell(link, Begin(state.number, mine)))
            if peer.noted < state.number:
                peer.waits_since = state.now
        else:
            peer.noted = state.number
        # Without a lease, others may know more of those than this one.
        knows = frozenset(state.claims) if state.now < state.lease_until else frozenset[str]()
        state.out.append(Tell(link, Synced(knows)))

    def _hang_up(self, link: int) -> None:
        self.state.links.pop(link, None)
        self.state.out.append(HangUp(link))

    def _drop(self, peer: Peer, *, stands_still: bool) -> None:
        """End the link of a peer, and make another one, or shut the peer out."""
        if peer.link in self.state.links:
            self._hang_up(peer.link)
        peer.link = 0
        peer.waits_since = None
        self._recover(peer, dial=not stands_still)

    def _recover(self, peer: Peer, *, dial: bool) -> None:
        state = self.state
        if peer.recovery:
            return
        if dial:
            state.last += 1
            peer.recovery, peer.dial = "dial", state.last
            peer.until = state.now + times.DIAL_SECONDS
            state.out.append(Dial(state.last, peer.card))
        else:
            self._not_reached(peer, "it does not answer")

    def _not_reached(self, peer: Peer, why: str) -> None:
        state = self.state
        peer.dial = 0
        peer.recovery = ""
        if peer.link:
            return
        name = peer.card.name
        if name in state.meeting and peer.card.server in state.unreached and state.relies:
            # It was shut out, and has come back: it lives. Shutting it out again would only make
            # it do the same. If neither relies on a lease, neither needs to be told anything.
            state.out.append(Report("yielding", why, peer.card))
            state.yields = True
            self._not_joined(Failed("it relies on no lease from now on", passing=True))
            return
        peer.recovery, peer.why = "look", why
        state.request(IsOver(peer.card))

    def judged(self, card: Card, answer: Answer) -> None:
        """Take whether the process of a peer that cannot be reached has ended."""
        state = self.state
        peer = state.peers.get(card.name)
        if peer is None or peer.recovery != "look":
            return
        if answer is True:
            self._forget(peer)
            state.request(RemoveCard(card.name))
        elif state.phase == "member":
            # Whoever was shut out, and does not know it, must not shut out others for that.
            peer.recovery, peer.until = "check", state.now
            state.look_after = 0.0
            self.lease.look()
        else:
            state.out.append(Report("fencing", peer.why, card))
            self._fence(peer)

    def _fence(self, peer: Peer) -> None:
        """Shut a peer out."""
        peer.recovery = "fence"
        self.state.request(Fence(peer.card.name))

    def fenced(self, name: str, answer: Answer) -> None:
        """Take the answer to an attempt to shut a peer out; wait for the end of its lease."""
        state = self.state
        peer = state.peers.get(name)
        if peer is None or peer.recovery != "fence":
            return
        if isinstance(answer, Failed):
            peer.recovery, peer.until = "again", state.now + times.AGAIN_SECONDS
        else:
            peer.recovery, peer.until = "wait", state.now + times.FENCE_SECONDS
            state.unreached[peer.card.server] = peer.card
            if len(state.unreached) > _MOST_UNREACHED:
                del state.unreached[next(iter(state.unreached))]

    def _forget(self, peer: Peer, *, say: bool = False) -> None:
        """Take no more note of a peer, but of what it may still change."""
        state = self.state
        name = peer.card.name
        if peer.link:
            if say:
                state.out.append(Tell(peer.link, Bye()))
            if peer.link in state.links:
                self._hang_up(peer.link)
        del state.peers[name]
        changes = {**peer.changes, **(peer.coming or {})}
        self.ledger.lose(peer.card.server, changes)
        self.ledger.trust(peer.changes)
        self.ledger.trust(peer.coming or {})
        if state.phase == "member" or (state.phase == "joining" and peer.synced):
            state.claims[name] = state.now + times.LATE_SECONDS
            if peer.card.server not in state.lost:
                self.ledger.drop_claims(peer.card.server)
        self._check_met()

    def try_unreached(self, answer: Answer) -> None:
        """Dial those that were shut out and have come back, from a listing."""
        state = self.state
        state.yields_until = state.now + times.YIELD_SECONDS
        if not isinstance(answer, Listing) or state.phase != "member":
            return
        there = {server_of(name) for name in answer.cards}
        for server, card in list(state.unreached.items()):
            if server not in there:
                del state.unreached[server]
                continue
            state.last += 1
            state.trials[state.last] = server
            state.out.append(Dial(state.last, card))
        self._end_trial()

    def _end_trial(self) -> None:
        state = self.state
        if not state.trials and state.phase == "member":
            state.unreached.clear()
            state.yields = False
            self._rejoin()

    def _tick_peer(self, peer: Peer) -> None:
        state = self.state
        now = state.now
        if peer.link:
            is_late = peer.waits_since is not None and peer.waits_since + times.ACK_SECONDS <= now
            if is_late or peer.heard + times.SILENCE_SECONDS <= now:
                self._drop(peer, stands_still=True)
        elif peer.recovery == "dial" and peer.until <= now:
            for link, found in list(state.links.items()):
                if found.dial == peer.dial:
                    self._hang_up(link)
            self._not_reached(peer, "it does not answer")
        elif peer.recovery == "again" and peer.until <= now:
            self._fence(peer)
        elif peer.recovery == "wait" and peer.until <= now:
            self._forget(peer)
            state.request(RemoveCard(peer.card.name))

    def tick(self) -> None:
        """Take it that time has passed: for links and peers, for joining, for the lease."""
        state = self.state
        now = state.now
        for link, found in list(state.links.items()):
            if not found.peer and found.since + times.DIAL_SECONDS <= now:
                self._hang_up(link)
        for peer in list(state.peers.values()):
            if state.peers.get(peer.card.name) is peer:
                self._tick_peer(peer)
        if state.phase == "out" and state.retry_at <= now:
            self.join()
        elif state.phase == "joining":
            self._check_met()
        elif state.phase == "member":
            self._tick_member()
        if state.here_at <= now:
            state.here_at = now + times.RENEW_SECONDS
            state.tell_all(Here())

    def _tick_member(self) -> None:
        state = self.state
        now = state.now
        if state.look_at <= now:
            self.lease.look()
        if state.yields and state.yields_until <= now and not state.trials:
            state.yields_until = now + times.YIELD_SECONDS
            state.request(ListAll(), "trial")
        if self.notes.may_take_back() and state.note.idle_since + times.IDLE_SECONDS <= now:
            self.notes.take_back()
        if state.note.retry_at <= now:
            self.notes.write()

    def deadlines(self) -> Iterator[float]:
        """Yield when `tick` is due."""
        state = self.state
        if state.phase == "out":
            yield state.retry_at
        elif state.phase == "joining":
            yield from (until for until in state.meeting.values() if until > state.now)
        elif state.phase == "member":
            if not any(one.why == "renew" for one in state.requests.values()):
                yield max(state.look_at, state.look_after)
            if state.yields:
                yield state.yields_until
            if self.notes.may_take_back():
                yield state.note.idle_since + times.IDLE_SECONDS
            yield state.note.retry_at
        for found in state.links.values():
            if not found.peer:
                yield found.since + times.DIAL_SECONDS
        if state.peers:
            yield state.here_at
        for peer in state.peers.values():
            if peer.link:
                yield peer.heard + times.SILENCE_SECONDS
                if peer.waits_since is not None:
                    yield peer.waits_since + times.ACK_SECONDS
            elif peer.recovery in ("dial", "again", "wait"):
                yield peer.until
