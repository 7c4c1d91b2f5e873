"""`Peering`: join the peers, keep links to them, and shut out those that cannot be reached."""

from collections.abc import Iterator
from math import inf
from typing import cast

from ucxstore.server.peers import events, times
from ucxstore.server.peers.changes import Changes
from ucxstore.server.peers.ledger import Ledger
from ucxstore.server.peers.messages import Begin, Bye, End, Hello, Here, Message, Noted, Synced
from ucxstore.server.peers.names import Names
from ucxstore.server.peers.notes import SourceNotes
from ucxstore.server.peers.presence import Presence
from ucxstore.server.peers.state import LinkState, Peer, Pending, State, server_of

# Servers that were shut out, and may come back.
_MOST_UNREACHED = 100


class Peering:
    """A membership among the peers: join, look at the own presence, link, shut out, quit."""

    def __init__(self, state: State, ledger: Ledger, notes: SourceNotes, changes: Changes) -> None:
        self.state = state
        self.ledger = ledger
        self.notes = notes
        self.changes = changes

    def join(self) -> None:
        """Begin to join the peers."""
        state = self.state
        state.epoch += 1
        state.phase = "joining"
        state.retry_at = inf
        state.stage = "presence"
        state.meeting.clear()
        state.skipped.clear()
        contact = state.contact
        state.presence = Presence(
            server=state.server,
            epoch=state.epoch,
            asks=not state.relies,
            addresses=contact.addresses,
            port=contact.port,
            process=contact.process,
        )
        state.here_at = state.now + times.RENEW_SECONDS
        state.request(events.WritePresence(state.presence), "join")

    def go_on_joining(self, pending: Pending, answer: events.Answer) -> None:
        """Take an answer of the source while joining."""
        state = self.state
        what = pending.what
        if isinstance(answer, events.Failed):
            self._not_joined(answer)
            return
        match what:
            case events.WritePresence():
                # Whoever writes a presence after this listing sees this one's in his own.
                state.stage = "meet"
                state.request(events.ListAll(), "join")
            case events.ListAll() if isinstance(answer, events.PeerListing):
                if state.stage == "meet":
                    self._meet_all(answer)
                else:
                    self._read_notes(answer)
            case events.ReadPresence(name) if state.stage == "meet":
                self._met(name, answer)
            case events.ReadNote(note):
                state.read[note] = answer
            case events.ReadPresence():
                if self._is_there(answer):
                    self._joined(pending.began)
                else:
                    why = "another server has shut this one out"
                    self._not_joined(events.Failed(why, passing=True))
                return
        self._check_met()

    def _meet_all(self, listing: events.PeerListing) -> None:
        state = self.state
        presence = cast(Presence, state.presence)
        if presence.name not in listing.presences:
            why = "a listing of the source does not show what is there"
            self._not_joined(events.Failed(why, never=state.unlisted))
            return
        for name in sorted(listing.presences):
            if server_of(name) != state.server:
                state.meeting[name] = inf
                if name not in state.peers:
                    state.request(events.ReadPresence(name), "join")
            elif name != presence.name:
                state.request(events.RemovePresence(name))

    def _met(self, name: str, answer: events.Answer) -> None:
        """Link to a server that was listed, or make sure that it relies on nothing."""
        state = self.state
        if name in state.peers or name not in state.meeting:
            return
        if answer is None:
            del state.meeting[name]  # it has left, or was shut out for long enough
        elif not isinstance(answer, events.FoundPresence) or answer.presence.name != name:
            state.meeting[name] = state.now + times.FENCE_SECONDS  # somebody shuts it out
        elif answer.over:
            del state.meeting[name]
            state.request(events.RemovePresence(name))
        elif answer.presence.asks and not state.relies:
            del state.meeting[name]  # neither relies on a lease, so neither needs to be told
            state.skipped.add(answer.presence.server)
        else:
            peer = state.peers[name] = Peer(answer.presence)
            self._recover(peer, dial=True)

    def _check_met(self) -> None:
        """Go on once all that were listed are linked, or rely on nothing."""
        state = self.state
        if state.phase != "joining" or state.stage in ("presence", "look"):
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
                    state.request(events.RemovePresence(name))
            state.meeting.clear()
            self._list_notes()
        elif None in state.read.values():
            self._list_notes()  # its server may have left another one in its place
        else:
            for note, names in state.read.items():
                self._hold(note, cast(Names, names))
            state.read.clear()
            state.stage = "look"
            state.request(events.ReadPresence(cast(Presence, state.presence).name), "join")

    def _list_notes(self) -> None:
        state = self.state
        state.stage = "notes"
        state.read.clear()
        state.request(events.ListAll(), "join")

    def _read_notes(self, listing: events.PeerListing) -> None:
        """Read what those have noted of whom nobody can tell what they may still change."""
        state = self.state
        known = {peer.presence.server for peer in state.peers.values() if peer.synced} | {
            state.server
        }
        skipped = {server_of(name) for name in listing.presences} & state.skipped
        claimed = set(state.claims).union(*(peer.knows for peer in state.peers.values()))
        for note in sorted(listing.notes):
            name = note.rpartition("-")[0]
            server = server_of(name)
            if name not in claimed and server not in known | skipped:
                state.request(events.ReadNote(note), "join")

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
        state.out.append(events.ForgetAll())
        for change in state.changes.values():
            change.alone = False
        state.hold_lease(looked_at + times.LEASE_SECONDS)
        state.look_at = state.now + times.RENEW_SECONDS
        state.yields_until = state.now + times.YIELD_SECONDS
        state.out.append(events.Notice("joined"))
        self.notes.want(Names.of(state.lost.get(state.server, {})))
        for number, change in list(state.changes.items()):
            if change.step in ("waiting", "sent", "made"):
                self.changes.tell(number)
        if self.notes.may_take_back():
            self.notes.take_back()

    def _not_joined(self, problem: events.Failed) -> None:
        state = self.state
        self._quit()
        if problem.never:
            state.phase = "alone"
            for number, change in list(state.changes.items()):
                if change.step == "waiting":
                    change.step = "ready"
                    state.out.append(events.Carry(number))
                elif change.step == "made":
                    self.changes.conclude(number, change.outcome or events.Unknown())
            state.out.append(events.Notice("alone", problem.why))
            return
        state.retry_at = state.now + times.PAUSES[min(state.failures, len(times.PAUSES) - 1)]
        state.failures += 1
        state.out.append(events.Notice("not_joined", problem.why))
        if not problem.passing:
            self.changes.refuse_unsent(problem.why)

    def _quit(self) -> None:
        """Rely on nothing until the next joining."""
        state = self.state
        state.hold_lease(0.0)
        state.phase = "out"
        for peer in list(state.peers.values()):
            self._forget(peer, say=True)
        for link in state.links:
            state.out.append(events.HangUp(link))
        state.links.clear()
        state.claims.clear()  # others may have told more of those to whom they were still linked
        state.trials.clear()
        state.unready.clear()
        if state.presence is not None:
            state.requests.clear()
            state.request(events.RemovePresence(state.presence.name))
        self.notes.drop()
        for change in state.changes.values():
            if change.step in ("told", "ready"):
                change.step = "waiting"
                change.since = state.now
        state.presence = None

    def _is_there(self, answer: events.Answer) -> bool:
        """Tell whether a look at the own presence has found it."""
        return isinstance(answer, events.FoundPresence) and answer.presence == self.state.presence

    def renewed(self, began: float, answer: events.Answer) -> None:
        """Take the answer to a look at the own presence."""
        state = self.state
        if state.phase != "member":
            return
        if isinstance(answer, events.Failed):
            # The lease ends by itself.
            state.look_after = state.now + times.AGAIN_SECONDS
            state.look_at = min(state.look_at, state.look_after)
            return
        if self._is_there(answer):
            state.hold_lease(max(state.lease_until, began + times.LEASE_SECONDS))
            for peer in state.peers.values():
                if peer.recovery == "check" and peer.until <= began:
                    state.out.append(events.Notice("fencing", peer.why, peer.presence))
                    self._fence(peer)
                elif peer.recovery == "check":
                    state.look()
        else:
            state.out.append(events.Notice("fenced"))
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
            state.out.append(events.HangUp(link))
            self._end_trial()
            return
        dialled = [name for name, peer in state.peers.items() if peer.dial == dial]
        if not dialled or state.presence is None:
            state.out.append(events.HangUp(link))
            return
        state.links[link] = LinkState(state.now, dial, dialled[0])
        state.out.append(events.Tell(link, Hello(state.presence)))

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
                self._greeted(link, found, message.presence)
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
                state.out.append(events.Tell(link, Noted(number)))
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
                    self.ledger.find(peer.presence.server)
                    self.ledger.trust(before)
                    self._check_met()
            case Bye():
                self._forget(peer)
            case Here():
                pass
            case _:
                self._hang_up(link)
                self._drop(peer, stands_still=False)

    def _greeted(self, link: int, found: LinkState, presence: Presence) -> None:
        state = self.state
        mine = state.presence
        if (
            mine is None
            or presence.server == state.server
            or state.phase not in ("joining", "member")
        ):
            self._hang_up(link)
            return
        if found.dial and presence.server != server_of(found.to):
            self._hang_up(link)
            self.not_dialled(found.dial, "another server is there")
            return
        for former in list(state.peers.values()):
            if former.presence.server == presence.server and former.presence.epoch < presence.epoch:
                self._forget(former)  # it does not rely on that any more
        peer = state.peers.get(presence.name)
        dialler = mine.name if found.dial else presence.name
        if peer is not None and (
            peer.recovery in ("look", "check", "fence", "again", "wait")
            or (peer.link and dialler > peer.dialler)
        ):
            self._hang_up(link)
            return
        if peer is None:
            if any(
                one.presence.server == presence.server and one.presence.epoch > presence.epoch
                for one in state.peers.values()
            ):
                self._hang_up(link)
                return
            peer = state.peers[presence.name] = Peer(presence)
        if not found.dial:
            state.out.append(events.Tell(link, Hello(mine)))
        self._attach(peer, link, dialler)

    def _attach(self, peer: Peer, link: int, dialler: str) -> None:
        """Use a link from now on; tell the peer first all that this server changes, or may."""
        state = self.state
        if peer.link:
            self._hang_up(peer.link)
        state.links[link].peer = peer.presence.name
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
            state.out.append(events.Tell(link, Begin(state.number, mine)))
            if peer.noted < state.number:
                peer.waits_since = state.now
        else:
            peer.noted = state.number
        # Without a lease, others may know more of those than this one.
        knows = frozenset(state.claims) if state.now < state.lease_until else frozenset[str]()
        state.out.append(events.Tell(link, Synced(knows)))

    def _hang_up(self, link: int) -> None:
        self.state.links.pop(link, None)
        self.state.out.append(events.HangUp(link))

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
            peer.recovery, peer.dial = "dial", state.dial(peer.presence)
            peer.until = state.now + times.DIAL_SECONDS
        else:
            self._not_reached(peer, "it does not answer")

    def _not_reached(self, peer: Peer, why: str) -> None:
        state = self.state
        peer.dial = 0
        peer.recovery = ""
        if peer.link:
            return
        name = peer.presence.name
        if name in state.meeting and peer.presence.server in state.unreached and state.relies:
            # It was shut out, and has come back: it lives. Shutting it out again would only make
            # it do the same. If neither relies on a lease, neither needs to be told anything.
            state.out.append(events.Notice("yielding", why, peer.presence))
            state.yields = True
            self._not_joined(events.Failed("it relies on no lease from now on", passing=True))
            return
        peer.recovery, peer.why = "look", why
        state.request(events.IsOver(peer.presence))

    def judged(self, presence: Presence, answer: events.Answer) -> None:
        """Take whether the process of a peer that cannot be reached has ended."""
        state = self.state
        peer = state.peers.get(presence.name)
        if peer is None or peer.recovery != "look":
            return
        if answer is True:
            self._forget(peer)
            state.request(events.RemovePresence(presence.name))
        elif state.phase == "member":
            # Whoever was shut out, and does not know it, must not shut out others for that.
            peer.recovery, peer.until = "check", state.now
            state.look_after = 0.0
            state.look()
        else:
            state.out.append(events.Notice("fencing", peer.why, presence))
            self._fence(peer)

    def _fence(self, peer: Peer) -> None:
        """Shut a peer out."""
        peer.recovery = "fence"
        self.state.request(events.Fence(peer.presence.name))

    def fenced(self, name: str, answer: events.Answer) -> None:
        """Take the answer to an attempt to shut a peer out; wait for the end of its lease."""
        state = self.state
        peer = state.peers.get(name)
        if peer is None or peer.recovery != "fence":
            return
        if isinstance(answer, events.Failed):
            peer.recovery, peer.until = "again", state.now + times.AGAIN_SECONDS
        else:
            peer.recovery, peer.until = "wait", state.now + times.FENCE_SECONDS
            state.unreached[peer.presence.server] = peer.presence
            if len(state.unreached) > _MOST_UNREACHED:
                del state.unreached[next(iter(state.unreached))]

    def _forget(self, peer: Peer, *, say: bool = False) -> None:
        """Take no more note of a peer, but of what it may still change."""
        state = self.state
        name = peer.presence.name
        if peer.link:
            if say:
                state.out.append(events.Tell(peer.link, Bye()))
            if peer.link in state.links:
                self._hang_up(peer.link)
        del state.peers[name]
        changes = {**peer.changes, **(peer.coming or {})}
        self.ledger.lose(peer.presence.server, changes)
        self.ledger.trust(peer.changes)
        self.ledger.trust(peer.coming or {})
        if state.phase == "member" or (state.phase == "joining" and peer.synced):
            state.claims[name] = state.now + times.LATE_SECONDS
            if peer.presence.server not in state.lost:
                self.ledger.drop_claims(peer.presence.server)
        self._check_met()

    def try_unreached(self, answer: events.Answer) -> None:
        """Dial those that were shut out and have come back, from a listing."""
        state = self.state
        state.yields_until = state.now + times.YIELD_SECONDS
        if not isinstance(answer, events.PeerListing) or state.phase != "member":
            return
        there = {server_of(name) for name in answer.presences}
        for server, presence in list(state.unreached.items()):
            if server not in there:
                del state.unreached[server]
                continue
            state.trials[state.dial(presence)] = server
        self._end_trial()

    def _end_trial(self) -> None:
        state = self.state
        if not state.trials and state.phase == "member":
            state.unreached.clear()
            state.yields = False
            self._rejoin()

    def _limit_of(self, peer: Peer) -> float:
        """Return until when a peer is waited for, in what it is to do or is done with it."""
        if not peer.link:
            return peer.until if peer.recovery in ("dial", "again", "wait") else inf
        noted = inf if peer.waits_since is None else peer.waits_since + times.ACK_SECONDS
        return min(peer.heard + times.SILENCE_SECONDS, noted)

    def _end_wait(self, peer: Peer) -> None:
        state = self.state
        if peer.link:
            self._drop(peer, stands_still=True)
        elif peer.recovery == "dial":
            for link, found in list(state.links.items()):
                if found.dial == peer.dial:
                    self._hang_up(link)
            self._not_reached(peer, "it does not answer")
        elif peer.recovery == "again":
            self._fence(peer)
        else:
            self._forget(peer)
            state.request(events.RemovePresence(peer.presence.name))

    def tick(self) -> None:
        """Take it that time has passed: for links and peers, for joining, for the lease."""
        state = self.state
        now = state.now
        for link, found in list(state.links.items()):
            if not found.peer and found.since + times.DIAL_SECONDS <= now:
                self._hang_up(link)
        for peer in list(state.peers.values()):
            if state.peers.get(peer.presence.name) is peer and self._limit_of(peer) <= now:
                self._end_wait(peer)
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
            state.look()
        if state.yields and state.yields_until <= now and not state.trials:
            state.yields_until = now + times.YIELD_SECONDS
            state.request(events.ListAll(), "trial")
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
        yield from map(self._limit_of, state.peers.values())
