"""`Peering`: the links of a server to all others that write to the same source.

Any two are linked, or one of them was shut out: see docs/consistency.md.
"""

import asyncio
import socket
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress

from ucxstore import logs
from ucxstore.errors import UcxStoreError
from ucxstore.protocol.session_keys import SessionKeys
from ucxstore.server.sources.changes import Changes
from ucxstore.server.sources.lease import FENCE_SECONDS, RENEW_SECONDS, Lease
from ucxstore.server.sources.links import Link, Message
from ucxstore.server.sources.names import Names
from ucxstore.server.sources.peers import Peer
from ucxstore.server.sources.presence import Card, Presences, has_ended
from ucxstore.server.sources.tasks import Tasks

# To reach a peer, and to be heard by one that is there.
_DIAL_SECONDS = 3.0
_SILENCE_SECONDS = 2.5 * RENEW_SECONDS

# What a server that cannot be reached raises.
_UNREACHED = (OSError, EOFError, ValueError, UcxStoreError)


class YieldingError(Exception):
    """Another server cannot be reached, so this one must join as one that relies on no lease."""


class Peering:
    """The peers of a server, their links, and what they and it tell each other.

    Only for its event loop. It is the `Listener` of the peers.

    Parameters
    ----------
    presences : Presences
    lease : Lease
        This server's. Without a card, it takes no links.
    changes : Changes
        What this server changes, and what peers tell that they change.
    explain : callable
        Returns the text of a failure of the source.

    Attributes
    ----------
    secret : bytes
        The secret that all servers share; empty for none.
    encrypt : bool
        Whether what they tell each other must be encrypted.
    peers : dict of str to Peer
        By the names of their presences.
    """

    def __init__(
        self,
        presences: Presences,
        lease: Lease,
        changes: Changes,
        explain: Callable[[BaseException], str],
    ) -> None:
        self.secret = b""
        self.encrypt = False
        self.peers: dict[str, Peer] = {}
        self._presences = presences
        self._lease = lease
        self._changes = changes
        self._explain = explain
        self._tasks = Tasks()
        # Servers that it has shut out as it could not reach them. If one of them comes back, and
        # still cannot be reached, this one relies on no lease for a while.
        self._unreached: set[str] = set()

    async def meet(self, names: Iterable[str]) -> None:
        """Link to the servers of these presences, or make sure that they rely on nothing.

        Raises
        ------
        YieldingError
            If this server must rely on no lease.
        """
        await _all(map(self._meet, names))
        await _all(peer.synced() for peer in list(self.peers.values()))

    def welcome(self, sock: socket.socket, keys: SessionKeys | None = None) -> None:
        """Take over the connection of another server, whose handshake is done."""
        self._tasks.start(self._welcome(sock, keys))

    async def begin(self, names: Names) -> None:
        """Tell all that these change, and wait until each has noted it or relies on nothing."""
        if self.peers:
            # Others wait for the same futures: they are not cancelled with this one.
            await asyncio.wait([peer.begin(names) for peer in self.peers.values()])

    def end(self, names: Names) -> None:
        """Tell all that these have changed, but for what is being changed again, or may be."""
        over = self._changes.over(names) if self.peers else None
        if over:
            for peer in self.peers.values():
                peer.end(over)

    def ask_for_all(self, names: Names | None) -> None:
        """Let the peers ask for everything, and then no more for these alone; ``None``: nothing."""
        if names is not None and self.peers:
            self._tasks.start(self._ask_for_all(names))

    def tick(self) -> None:
        """Let the peers see that this one lives, and end the links of those that are silent."""
        for peer in list(self.peers.values()):
            peer.tick(_SILENCE_SECONDS)

    async def reach_all_again(self) -> bool:
        """Try the servers that could not be reached; if all can be now, forget that."""
        for name in await self._presences.names():
            data = await self._presences.read(name)
            card = None if data is None else Card.parse(data)
            if card is not None and card.server in self._unreached:
                try:
                    async with asyncio.timeout(_DIAL_SECONDS):
                        link = await Link.dial(card, self.secret, encrypt=self.encrypt)
                except _UNREACHED:
                    return False
                link.close()
        self._unreached.clear()
        return True

    def part(self) -> None:
        """Forget all peers."""
        for peer in list(self.peers.values()):
            self._forget(peer)

    def close(self) -> None:
        """Forget all peers, and end what is under way with others."""
        self._tasks.cancel()
        self.part()

    # ---- what peers tell: the `Listener` ----

    def changing(self, names: Names) -> None:
        self._changes.changing(names)

    def asked(self, names: Names) -> None:
        self._changes.asked(names)

    def changed(self, names: Names) -> None:
        self.end(self._changes.changed(names))

    def lost(self, peer: Peer, *, stands_still: bool) -> None:
        if self.peers.get(peer.card.name) is not peer:
            return
        if peer.gone.is_set():
            self._forget(peer)
        elif self._lease.card is not None:
            self._recover(peer, dial=not stands_still)

    # ---- how links come to be ----

    async def _meet(self, name: str) -> None:
        """Link to a server that was listed, or make sure that it relies on nothing."""
        peer = self.peers.get(name)
        if peer is None:
            data = await self._presences.read(name)
            if data is None:
                return  # it has left, or was shut out for long enough
            card = Card.parse(data)
            if card is None or card.name != name:
                await asyncio.sleep(FENCE_SECONDS)  # somebody shuts it out
                await self._presences.remove(name)
                return
            if has_ended(card.process):
                await self._presences.remove(name)
                return
            if card.asks and not self._lease.is_relied_on:
                return  # neither relies on a lease, so neither needs to be told
            peer = self.peers.get(name)
            if peer is None:
                peer = self.peers[name] = Peer(card, self)
                if card.server in self._unreached and self._lease.is_relied_on:
                    await self._reach_or_yield(peer)
                else:
                    self._recover(peer, dial=True)
        await peer.synced()

    async def _welcome(self, sock: socket.socket, keys: SessionKeys | None) -> None:
        """Serve the connection that another server has made."""
        link = await Link.of(sock, keys)
        try:
            async with asyncio.timeout(_DIAL_SECONDS):
                hello = await link.receive()
            card = _card_of(hello)
            mine = self._lease.card
            if mine is None:
                raise ValueError("this one is no member")
            self._forget_former(card)
            peer = self.peers.get(card.name)
            if peer is None:
                peer = self.peers[card.name] = Peer(card, self)
            if not peer.takes(card.name):
                peer.tick(_SILENCE_SECONDS)
                raise ValueError("it is linked already")
            link.send({"hello": mine.encode().decode()})
            self._attach(peer, link, card.name)
        except (OSError, EOFError, ValueError):
            link.close()

    async def _dial(self, peer: Peer) -> None:
        """Link to a peer. Raises if it cannot be reached."""
        mine = self._lease.card
        if mine is None:
            raise ConnectionError("this server is no member")
        async with asyncio.timeout(_DIAL_SECONDS):
            link = await Link.dial(peer.card, self.secret, encrypt=self.encrypt)
            try:
                link.send({"hello": mine.encode().decode()})
                card = _card_of(await link.receive())
                if card.server != peer.card.server or self._lease.card is not mine:
                    raise ConnectionError("another server is there")
                self._forget_former(card)
                found = self.peers.get(card.name)
                if found is None:
                    found = self.peers[card.name] = Peer(card, self)
                if not found.takes(mine.name):
                    raise ConnectionError("it is linked already")
            except BaseException:
                link.close()
                raise
            self._attach(found, link, mine.name)

    def _attach(self, peer: Peer, link: Link, dialer: str) -> None:
        peer.attach(link, dialer, self._changes.mine())
        self._tasks.start(self._resolve(peer))

    async def _resolve(self, peer: Peer) -> None:
        """Forget what its server was changing when it was last seen: it has told it anew."""
        await peer.synced()
        if not peer.gone.is_set():
            self._changes.find(peer.card.server)

    # ---- how they end ----

    def _forget_former(self, card: Card) -> None:
        """Forget the earlier memberships of a server, on which it does not rely any more."""
        for peer in list(self.peers.values()):
            if peer.card.server == card.server and peer.card.epoch < card.epoch:
                self._forget(peer)

    def _forget(self, peer: Peer) -> None:
        if self.peers.get(peer.card.name) is peer:
            del self.peers[peer.card.name]
        self.ask_for_all(self._changes.lose(peer.card.server, peer.leave()))

    async def _ask_for_all(self, names: Names) -> None:
        await self.begin(Names(prefixes={""}))
        self.end(names)

    def _recover(self, peer: Peer, *, dial: bool) -> None:
        if peer.recovering is None or peer.recovering.done():
            peer.recovering = self._tasks.start(self._reach_or_fence(peer, dial=dial))

    async def _reach_or_yield(self, peer: Peer) -> None:
        """Link to a server that was shut out, and has come back: it lives.

        If it still cannot be reached, shutting it out again would only make it do the same. If
        neither relies on a lease, neither needs to be told anything.
        """
        try:
            await self._dial(peer)
        except _UNREACHED as error:
            if peer.linked:
                return
            self._forget(peer)
            self._lease.yields = True
            logs.server.warning(
                "cannot reach the server at %s:%d, which writes to the same source: asking that "
                "about each value: %s",
                peer.card.addresses[0],
                peer.card.port,
                error,
                extra={"event": "yielding"},
            )
            raise YieldingError from error

    async def _reach_or_fence(self, peer: Peer, *, dial: bool) -> None:
        why = "it does not answer"
        if dial:
            try:
                await self._dial(peer)
            except _UNREACHED as error:
                why = str(error) or type(error).__name__
            else:
                return
        if peer.linked or peer.gone.is_set():
            return
        if not has_ended(peer.card.process):
            await self._fence(peer, why)
        self._forget(peer)
        with suppress(Exception):
            await self._presences.remove(peer.card.name)

    async def _fence(self, peer: Peer, why: str) -> None:
        """Shut a peer out, and wait until it relies on nothing."""
        logs.server.warning(
            "shutting out the server at %s:%d, and waiting for up to %.3g s: %s",
            peer.card.addresses[0],
            peer.card.port,
            FENCE_SECONDS,
            why,
            extra={"event": "fencing"},
        )
        while True:
            try:
                await self._presences.fence(peer.card.name)
                break
            except Exception as error:
                logs.server.info("cannot shut it out: %s", self._explain(error))
                await asyncio.sleep(1.0)
        with suppress(TimeoutError):
            async with asyncio.timeout(FENCE_SECONDS):
                await peer.gone.wait()
        self._unreached.add(peer.card.server)


async def _all(requests: Iterable[Coroutine[object, object, None]]) -> None:
    """Wait for all, then raise the first failure, so that none is left running."""
    for result in await asyncio.gather(*requests, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result


def _card_of(hello: Message) -> Card:
    card = Card.parse(str(hello.get("hello", "")).encode())
    if card is None:
        raise ValueError("no card")
    return card
