"""`Ledger`: who changes which names, or may: for the cache, and for the peers."""

from collections.abc import Iterable, Iterator

from ucxstore.server.peers import times
from ucxstore.server.peers.events import AskFor, RemoveNotes, Tell, Trust
from ucxstore.server.peers.messages import Begin, End
from ucxstore.server.peers.names import ALL, Name, Names
from ucxstore.server.peers.state import Change, State, server_of

# Names that one server may still change, and which are told apart. Beyond that all are asked for.
MOST_LOST = 10_000


class Ledger:
    """Who changes which names, or may: from that follows what the cache may answer.

    Each name is counted: in `State.asked` for the cache, which asks the source while anybody may
    change it, and in `State.mine` for peers, who are told of it when they link.
    """

    def __init__(self, state: State) -> None:
        self.state = state

    def ask(self, names: Iterable[Name], own: Change | None = None) -> None:
        """Ask for names for one more reason."""
        state = self.state
        new = []
        for name in names:
            is_prefix, text = name
            count = state.asked.get(name, 0)
            if own is not None and (count or any(map(text.startswith, state.prefixes))):
                own.alone = False
            state.asked[name] = count + 1
            if not count:
                new.append(name)
                if is_prefix:
                    state.prefixes[text] = 1
            self._disturb(name, own)
        if new:
            state.out.append(AskFor(Names.of(new)))

    def _disturb(self, name: Name, own: Change | None) -> None:
        """Note for changes under way that another one has the same name."""
        state = self.state
        is_prefix, text = name
        if not is_prefix:
            changes = [state.changes[state.begun[text]]] if text in state.begun else []
        else:
            changes = [one for one in state.changes.values() if one.names.meets(name)]
        for change in changes:
            if change is not own:
                change.alone = False

    def trust(self, names: Iterable[Name]) -> None:
        """Ask for names for one reason less."""
        state = self.state
        over = Names.of(_count_down(state.asked, names))
        for prefix in over.prefixes:
            del state.prefixes[prefix]
        if over:
            state.out.append(Trust(over))

    def claim(self, names: Iterable[Name]) -> None:
        """Tell peers that link later of these, for one more reason."""
        for name in names:
            self.state.mine[name] = self.state.mine.get(name, 0) + 1

    def release(self, names: Iterable[Name], *, done: bool = False) -> None:
        """Tell peers of names for one reason less, and of their end after the last."""
        state = self.state
        over = Names.of(_count_down(state.mine, names))
        if over and state.peers:
            state.tell_all(End(over, done))

    def announce(self, names: Names) -> int:
        """Tell all peers that names change; return the number under which they note it."""
        state = self.state
        state.number += 1
        message = Begin(state.number, names)
        for peer in state.peers.values():
            if peer.link:
                state.out.append(Tell(peer.link, message))
                peer.told = state.number
                if peer.waits_since is None:
                    peer.waits_since = state.now
        return state.number

    def lose(self, server: str, names: Iterable[Name]) -> None:
        """Go on to ask for what a server may still change."""
        state = self.state
        lost = state.lost.setdefault(server, {})
        state.seq += 1
        entry = state.seq, state.now + times.LATE_SECONDS
        new = [name for name in names if name not in lost]
        lost.update(dict.fromkeys(names, entry))
        if not lost:
            del state.lost[server]
        self.ask(new)
        self.claim(new)
        if len(lost) > MOST_LOST:
            state.lost[server] = dict.fromkeys(ALL, entry)
            self.ask(ALL)
            self.claim(ALL)
            self.announce(ALL)  # before the end of the others, on each link
            self.trust(lost)
            self.release(lost)

    def settle(self, names: Names, seq: int) -> None:
        """Note that names have changed, with a known end, by what was sent after this."""
        for server, lost in list(self.state.lost.items()):
            if names.prefixes or len(lost) < len(names):
                over = [name for name in lost if names.covers(name)]
            else:
                over = [name for name in names if name in lost]
            self._found(server, [name for name in over if lost[name][0] < seq])

    def _found(self, server: str, names: list[Name]) -> None:
        """Do not ask any more for what a server may not change any more."""
        lost = self.state.lost[server]
        for name in names:
            del lost[name]
        if not lost:
            del self.state.lost[server]
            self.drop_claims(server)
        self.trust(names)
        self.release(names)

    def find(self, server: str) -> None:
        """Forget what a server may still change: it has told anew what it does."""
        state = self.state
        for name in [one for one in state.claims if server_of(one) == server]:
            del state.claims[name]
        lost = state.lost.pop(server, {})
        self.trust(lost)
        self.release(lost)

    def drop_claims(self, server: str) -> None:
        """Remove the notes of a server that may change nothing any more.

        Without a lease, others may know more of it than this one.
        """
        state = self.state
        if state.now >= state.lease_until:
            return
        for name in [one for one in state.claims if server_of(one) == server]:
            del state.claims[name]
            state.request(RemoveNotes(f"{name}-"))

    def tick(self) -> None:
        """Stop to ask for what nobody can change any more."""
        state = self.state
        for server, lost in list(state.lost.items()):
            over = [name for name, (_, until) in lost.items() if until <= state.now]
            if over:
                self._found(server, over)
        for name, until in list(state.claims.items()):
            if until <= state.now:
                del state.claims[name]
                state.request(RemoveNotes(f"{name}-"))

    def deadlines(self) -> Iterator[float]:
        """Yield when `tick` is due."""
        for lost in self.state.lost.values():
            for _, until in lost.values():
                yield until
        yield from self.state.claims.values()


def _count_down(counts: dict[Name, int], names: Iterable[Name]) -> list[Name]:
    """Count each name once less, and return those that are not counted any more."""
    over = []
    for name in names:
        counts[name] -= 1
        if not counts[name]:
            del counts[name]
            over.append(name)
    return over
