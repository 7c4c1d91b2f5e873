"""`Membership`: a server among those that write to the same source.

Each answers from its cache without asking only while no other one changes the key, and only while
its lease holds. docs/consistency.md says how that is agreed on, and why it suffices.
"""

import asyncio
import secrets
import socket
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from ucxstore import logs
from ucxstore._native import core
from ucxstore.errors import UcxStoreError
from ucxstore.server.sources.links import Link, Message
from ucxstore.server.sources.names import Names
from ucxstore.server.sources.peers import Peer
from ucxstore.server.sources.presence import (
    Card,
    Presences,
    boot_seconds,
    has_ended,
    this_process,
)
from ucxstore.server.sources.source import Source
from ucxstore.server.sources.tiered import TieredSource

# For so long a server relies on what it has, from the start of its last look at its presence.
LEASE_SECONDS = 6.0
_RENEW_SECONDS = LEASE_SECONDS / 3

# Who shuts another one out waits for so long: its clock may be slower than this one.
FENCE_SECONDS = LEASE_SECONDS * 1.05 + 0.5

# To reach a peer, and to be heard by one that is there.
_DIAL_SECONDS = 3.0
_SILENCE_SECONDS = 2.5 * _RENEW_SECONDS

# Between two attempts to join; a write that waits brings the next one forward.
_PAUSES = (0.1, 0.5, 2.0, 5.0, 15.0, 60.0)

# A write waits for others for so long, and then fails before it has begun.
_PATIENCE_SECONDS = 3 * FENCE_SECONDS

# How many keys whose change has no known end are told apart. Beyond that all are asked for.
_MOST_LOST = 10_000

# For the end of a server: to say that it goes.
_LEAVE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Contact:
    """How the other servers reach this one.

    Parameters
    ----------
    addresses : tuple of str
        Hosts, best first.
    port : int
    secret : bytes
        The secret that all of them share; empty for none.
    """

    addresses: tuple[str, ...]
    port: int
    secret: bytes = field(repr=False)


# What a server that cannot be reached raises.
_UNREACHED = (OSError, EOFError, ValueError, UcxStoreError)

# For so long a server that cannot reach another one relies on no lease. Then it tries again.
_YIELD_SECONDS = 60.0


class _FencedError(Exception):
    """The presence is gone: this server was shut out."""


class _YieldingError(Exception):
    """Another server cannot be reached, so this one must join as one that relies on no lease."""


class Membership:
    """A server among those that write to the same source. In the carrier's event loop.

    Parameters
    ----------
    source : Source
        Where the servers find one another.
    storage : core.CachedSource
        Its lease is kept here. It asks the source for everything until then.
    asks : bool
        Whether a freshness that was chosen decides what is believed, and no lease.
    refuses : callable
        Whether a failure to join tells that no server can find others in this source, now or
        later, as it has no listings. Then none relies on a lease, and writes concern nobody.
    """

    def __init__(
        self,
        source: Source,
        storage: core.CachedSource,
        *,
        asks: bool,
        refuses: Callable[[BaseException], bool] = lambda _: False,
    ) -> None:
        self._tier = source if isinstance(source, TieredSource) else None
        self._presences = Presences(source if self._tier is None else self._tier.source)
        self._explain = source.explain
        self._storage = storage
        self._asks = asks
        self._refuses = refuses
        self._alone = False  # the source has refused
        self._server = secrets.token_hex(16)
        self._epoch = 0
        self._contact: Contact | None = None
        self._contacted = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tried = threading.Event()
        self._card: Card | None = None  # while it is a member, or joins
        self._member = False
        self._until = 0.0
        self._attempt: asyncio.Future[Exception | None] | None = None
        self._hurry = asyncio.Event()
        self._warned = False
        self._peers: dict[str, Peer] = {}
        self._own_keys: Counter[str] = Counter()
        self._own_prefixes: Counter[str] = Counter()
        self._unmarked: set[Change] = set()
        # Servers that it has shut out as it could not reach them. If one of them comes back, and
        # still cannot be reached, this one relies on no lease for a while.
        self._unreached: set[str] = set()
        self._yields = False
        self._lost: dict[str, Names] = {}  # by server: changes without a known end
        self._tasks: set[asyncio.Task[None]] = set()
        self._set_end(0.0)
        if self._tier is not None:
            self._tier.believes = storage.believes

    # ---- for other threads ----

    def join(self, contact: Contact, timeout: float) -> None:
        """Begin to join the others; wait until that is done, or has failed once."""
        self._contact = contact
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):  # it has ended
                loop.call_soon_threadsafe(self._contacted.set)
        self._tried.wait(timeout)

    def adopt(self, sock: socket.socket) -> None:
        """Take over the connection of another server, whose handshake is done."""
        try:
            assert self._loop is not None
            self._loop.call_soon_threadsafe(lambda: self._start(self._welcome(sock)))
        except RuntimeError:
            sock.close()

    # ---- its life ----

    def start(self) -> None:
        """Begin, in the running event loop; `join` may come before or after."""
        self._loop = asyncio.get_running_loop()
        self._attempt = self._loop.create_future()
        if self._contact is not None:
            self._contacted.set()
        self._start(self._live())
        self._start(self._tick())

    async def leave(self) -> None:
        """Rely on nothing any more, and tell the others so."""
        self._set_end(0.0)
        self._member = False
        card, self._card = self._card, None
        for task in list(self._tasks):
            task.cancel()
        self._part()
        with suppress(Exception):
            async with asyncio.timeout(_LEAVE_SECONDS):
                if card is not None:
                    await self._presences.remove(card.name)

    async def _live(self) -> None:
        await self._contacted.wait()
        failures = 0
        while True:
            problem: Exception | None = None
            try:
                await self._join()
            except _FencedError:
                problem = ConnectionError("another server has shut this one out")
            except _YieldingError:
                problem = ConnectionError("it relies on no lease from now on")
            except Exception as error:
                problem = error
            self._conclude(problem)
            if problem is not None and self._alone:
                self._quit()
                return
            if problem is None:
                failures = 0
                if await self._stay():
                    logs.server.warning(
                        "shut out by another server of the source: asking it about each value",
                        extra={"event": "fenced"},
                    )
            card = self._card
            self._quit()
            if card is not None:
                with suppress(Exception):
                    await self._presences.remove(card.name)
            await self._pause(_PAUSES[min(failures, len(_PAUSES) - 1)])
            failures += 1

    def _conclude(self, problem: Exception | None) -> None:
        """Tell those who wait how an attempt to join has ended."""
        assert self._attempt is not None
        self._alone = problem is not None and self._refuses(problem)
        self._attempt.set_result(problem)
        if problem is None or not self._alone:
            self._attempt = asyncio.get_running_loop().create_future()
        self._tried.set()
        if problem is not None and not self._warned:
            self._warned = True
            logs.server.warning(
                "other servers of the source cannot know of this one, so the source is asked about "
                "each value%s; if nothing is written, read_only does without: %s",
                "" if self._alone else ", and writes fail",
                self._explain(problem),
                extra={"event": "not_joined"},
            )

    async def _pause(self, seconds: float) -> None:
        self._hurry.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._hurry.wait()

    async def _join(self) -> None:
        contact = self._contact
        assert contact is not None
        self._epoch += 1
        card = self._card = Card(
            server=self._server,
            epoch=self._epoch,
            asks=self._asks or self._yields,
            addresses=contact.addresses,
            port=contact.port,
            process=this_process(),
        )
        await self._presences.put(card)
        # Whoever puts a card after this listing sees this one's in his own.
        names = await self._presences.names()
        if card.name not in names:
            raise NotImplementedError("a listing of the source does not show what is there")
        others = [name for name in names if not name.startswith(f"{self._server}-")]
        await _all(map(self._meet, others))
        await _all(peer.synced() for peer in list(self._peers.values()))
        for name in {*names} - {*others, card.name}:
            await self._presences.remove(name)
        began = boot_seconds()
        await self._look(card)
        # What was fetched before may be older than what those have written who were shut out.
        self._storage.forget_all()
        if self._tier is not None:
            self._tier.forget_prefix("")
        self._member = True
        self._set_end(began + LEASE_SECONDS)

    async def _stay(self) -> bool:
        """Renew the lease until this server is shut out, or may rely on its lease again.

        Returns
        -------
        bool
            Whether it was shut out.
        """
        card = self._card
        assert card is not None
        yields_until = boot_seconds() + _YIELD_SECONDS
        while True:
            await asyncio.sleep(_RENEW_SECONDS)
            try:
                await self._renew(card)
                if self._yields and boot_seconds() >= yields_until:
                    yields_until = boot_seconds() + _YIELD_SECONDS
                    if await self._reaches_all():
                        self._yields = False
                        self._unreached.clear()
                        return False
            except _FencedError:
                return True
            except Exception as error:
                # The lease ends by itself.
                logs.server.info("the lease was not renewed: %s", self._explain(error))

    async def _reaches_all(self) -> bool:
        """Tell whether all servers can be reached that could not be before."""
        assert self._contact is not None
        for name in await self._presences.names():
            data = await self._presences.read(name)
            card = None if data is None else Card.parse(data)
            if card is not None and card.server in self._unreached:
                try:
                    async with asyncio.timeout(_DIAL_SECONDS):
                        link = await Link.dial(card, self._contact.secret)
                except _UNREACHED:
                    return False
                link.close()
        return True

    async def _tick(self) -> None:
        """Let the others see that this one lives, also while the source is slow."""
        while True:
            await asyncio.sleep(_RENEW_SECONDS)
            for peer in list(self._peers.values()):
                peer.tick(_SILENCE_SECONDS)

    async def _renew(self, card: Card) -> None:
        began = boot_seconds()
        async with asyncio.timeout(LEASE_SECONDS):
            await self._look(card)
        if self._card is card and self._member:
            self._set_end(began + LEASE_SECONDS)

    async def _look(self, card: Card) -> None:
        if await self._presences.read(card.name) != card.encode():
            raise _FencedError

    def _set_end(self, until: float) -> None:
        self._until = until
        if not self._asks:
            self._storage.set_lease_end(0 if self._yields else int(until * 1e9))

    def _quit(self) -> None:
        """Rely on nothing until the next joining."""
        self._set_end(0.0)
        self._member = False
        self._card = None
        self._part()

    def _part(self) -> None:
        for peer in list(self._peers.values()):
            self._forget(peer)

    def _start(self, coroutine: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # ---- the others ----

    async def _meet(self, name: str) -> None:
        """Link to a server that was listed, or make sure that it relies on nothing."""
        peer = self._peers.get(name)
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
            if card.asks and (self._asks or self._yields):
                return  # neither relies on a lease, so neither needs to be told
            peer = self._peers.get(name)
            if peer is None:
                peer = self._peers[name] = Peer(card, self)
                if card.server in self._unreached and not (self._asks or self._yields):
                    await self._reach_or_yield(peer)
                else:
                    self._recover(peer, dial=True)
        await peer.synced()

    async def _welcome(self, sock: socket.socket) -> None:
        """Serve the connection that another server has made."""
        link = await Link.of(sock)
        try:
            async with asyncio.timeout(_DIAL_SECONDS):
                hello = await link.receive()
            card = _card_of(hello)
            if self._card is None:
                raise ValueError("this one is no member")
            self._forget_former(card)
            peer = self._peers.get(card.name)
            if peer is None:
                peer = self._peers[card.name] = Peer(card, self)
            if not peer.takes(card.name):
                peer.tick(_SILENCE_SECONDS)
                raise ValueError("it is linked already")
            link.send({"hello": self._card.encode().decode()})
            self._attach(peer, link, card.name)
        except (OSError, EOFError, ValueError):
            link.close()

    async def _dial(self, peer: Peer) -> None:
        """Link to a peer. Raises if it cannot be reached."""
        mine, contact = self._card, self._contact
        if mine is None or contact is None:
            raise ConnectionError("this server is no member")
        async with asyncio.timeout(_DIAL_SECONDS):
            link = await Link.dial(peer.card, contact.secret)
            try:
                link.send({"hello": mine.encode().decode()})
                card = _card_of(await link.receive())
                if card.server != peer.card.server or self._card is not mine:
                    raise ConnectionError("another server is there")
                self._forget_former(card)
                found = self._peers.get(card.name)
                if found is None:
                    found = self._peers[card.name] = Peer(card, self)
                if not found.takes(mine.name):
                    raise ConnectionError("it is linked already")
            except BaseException:
                link.close()
                raise
            self._attach(found, link, mine.name)

    def _attach(self, peer: Peer, link: Link, dialer: str) -> None:
        for change in list(self._unmarked):
            self._mark(change)
        mine = Names(set(self._own_keys), set(self._own_prefixes))
        for lost in self._lost.values():
            mine.add(lost)
        peer.attach(link, dialer, mine)
        self._start(self._resolve(peer))

    async def _resolve(self, peer: Peer) -> None:
        """Forget what its server was changing when it was last seen: it has told it anew."""
        await peer.synced()
        if not peer.gone.is_set() and peer.card.server in self._lost:
            self.asked(self._lost.pop(peer.card.server))

    def _forget_former(self, card: Card) -> None:
        """Forget the earlier memberships of a server, on which it does not rely any more."""
        for peer in list(self._peers.values()):
            if peer.card.server == card.server and peer.card.epoch < card.epoch:
                self._forget(peer)

    def _forget(self, peer: Peer) -> None:
        if self._peers.get(peer.card.name) is peer:
            del self._peers[peer.card.name]
        self._lose(peer.card.server, peer.leave())

    def _recover(self, peer: Peer, *, dial: bool) -> None:
        if peer.recovering is None or peer.recovering.done():
            peer.recovering = asyncio.create_task(self._reach_or_fence(peer, dial=dial))
            self._tasks.add(peer.recovering)
            peer.recovering.add_done_callback(self._tasks.discard)

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
            self._yields = True
            logs.server.warning(
                "cannot reach the server at %s:%d, which writes to the same source: asking that "
                "about each value: %s",
                peer.card.addresses[0],
                peer.card.port,
                error,
                extra={"event": "yielding"},
            )
            raise _YieldingError from error

    async def _reach_or_fence(self, peer: Peer, *, dial: bool) -> None:
        if dial:
            try:
                await self._dial(peer)
            except _UNREACHED as error:
                why = str(error) or type(error).__name__
            else:
                return
        else:
            why = "it does not answer"
        if peer.linked or peer.gone.is_set():
            return
        name = peer.card.name
        if not has_ended(peer.card.process):
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
                    await self._presences.fence(name)
                    break
                except Exception as error:
                    logs.server.info("cannot shut it out: %s", self._explain(error))
                    await asyncio.sleep(1.0)
            with suppress(TimeoutError):
                async with asyncio.timeout(FENCE_SECONDS):
                    await peer.gone.wait()
            self._unreached.add(peer.card.server)
        self._forget(peer)
        with suppress(Exception):
            await self._presences.remove(name)

    # ---- what peers tell: the `Listener` ----

    def changing(self, names: Names) -> None:
        self._ask(names, elsewhere=True)

    def asked(self, names: Names) -> None:
        if names:
            self._storage.end_asking(list(names.keys), list(names.prefixes))

    def changed(self, names: Names) -> None:
        """End the asking for what had no known end before: this change came after it."""
        for server, lost in list(self._lost.items()):
            over = lost.remove(lost.covered_by(names))
            if not lost:
                del self._lost[server]
            if over:
                self.asked(over)
                self._tell_end(over)

    def lost(self, peer: Peer, *, stands_still: bool) -> None:
        if self._peers.get(peer.card.name) is not peer:
            return
        if peer.gone.is_set():
            self._forget(peer)
        elif self._card is not None:
            self._recover(peer, dial=not stands_still)

    def _ask(self, names: Names, *, elsewhere: bool) -> None:
        if not names:
            return
        self._storage.begin_asking(list(names.keys), list(names.prefixes), elsewhere)
        if self._tier is not None:
            for key in names.keys:
                self._tier.forget(key)
            for prefix in names.prefixes:
                self._tier.forget_prefix(prefix)

    def _lose(self, server: str, names: Names) -> None:
        """Keep on asking for what may still change."""
        if not names:
            return
        lost = self._lost.setdefault(server, Names())
        new = lost.add(names)
        self.asked(Names(names.keys - new.keys, names.prefixes - new.prefixes))
        if len(lost) > _MOST_LOST:
            everything = Names(prefixes={""})
            if "" not in lost.prefixes:
                self._ask(everything, elsewhere=True)
            others = Names(set(lost.keys), lost.prefixes - {""})
            self.asked(others)
            self._lost[server] = everything
            if self._peers:
                self._start(self._tell_of_all(others))

    async def _tell_of_all(self, names: Names) -> None:
        """Let the peers ask for everything, too, and then no more for these alone."""
        everything = Names(prefixes={""})
        await asyncio.wait([peer.begin(everything) for peer in self._peers.values()])
        self._tell_end(names)

    # ---- changes through this server ----

    def change(self, operation: str, about: object) -> "Change | None":
        """Return what a call changes; ``None`` for nothing."""
        match operation, about:
            case "put", str(key):
                return Change(self, Names({key}))
            case "remove", list(keys) if keys:
                return Change(self, Names(set(keys)))
            case "remove_prefix", str(prefix):
                return Change(self, Names(prefixes={prefix}))
        return None

    async def begin(self, change: "Change") -> None:
        """Tell all others, and wait until each has noted it or relies on nothing."""
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                await self._be_member()
                self._own_keys.update(change.names.keys)
                self._own_prefixes.update(change.names.prefixes)
                self._unmarked.add(change)
                change.begun = True
                await self._announce(change)
        except TimeoutError:
            raise TimeoutError("other servers of the source do not answer") from None

    async def confirm(self, change: "Change") -> None:
        """Make sure that what the source has carried out is seen by all; else tell them anew."""
        while change.card is not self._card or boot_seconds() >= self._until:
            if self._card is None and self._alone:
                return
            if change.card is self._card and self._card is not None:
                with suppress(_FencedError):
                    await self._renew(self._card)
                    continue
                self._hurry.set()
                await asyncio.sleep(0.05)
                continue
            await self._be_member()
            await self._announce(change)

    def end(self, change: "Change", *, known: bool) -> None:
        """Tell all others that it is over; if its end is not known, go on to ask."""
        names = change.names
        self._unmarked.discard(change)
        _take(self._own_keys, names.keys)
        _take(self._own_prefixes, names.prefixes)
        if change.marked and known:
            self.asked(names)
        elif not known:
            if not change.marked:
                self._ask(names, elsewhere=False)
            self._lose(self._server, names)
            return
        self.changed(names)
        if self._peers:
            self._tell_end(names)

    async def _announce(self, change: "Change") -> None:
        change.card = self._card
        if self._peers:
            self._mark(change)
            # Others wait for the same futures: they are not cancelled with this one.
            await asyncio.wait([peer.begin(change.names) for peer in self._peers.values()])

    def _mark(self, change: "Change") -> None:
        if not change.marked:
            change.marked = True
            self._unmarked.discard(change)
            self._ask(change.names, elsewhere=False)

    def _tell_end(self, names: Names) -> None:
        """Tell the peers, unless it is being changed again, or may be."""
        still = Names(
            {key for key in names.keys if key in self._own_keys},
            {prefix for prefix in names.prefixes if prefix in self._own_prefixes},
        )
        for lost in self._lost.values():
            still.add(Names(names.keys & lost.keys, names.prefixes & lost.prefixes))
        over = Names(names.keys - still.keys, names.prefixes - still.prefixes)
        if over:
            for peer in self._peers.values():
                peer.end(over)

    async def _be_member(self) -> None:
        while not self._member:
            self._hurry.set()
            assert self._attempt is not None
            problem = await asyncio.shield(self._attempt)
            if problem is not None and self._alone:
                self._hurry.clear()
                return
            if problem is not None and not isinstance(problem, ConnectionError):
                raise problem


class Change:
    """A change through this server. All servers know of it from `begin` to `end`.

    Parameters
    ----------
    members : Membership
    names : Names
        What it concerns.
    """

    def __init__(self, members: Membership, names: Names) -> None:
        self.names = names
        self.begun = False
        self.marked = False  # whether this server asks for them, too
        self.card: Card | None = None  # the membership under which it was told
        self._members = members
        self._known = False

    async def confirm(self) -> None:
        """Say that the source has carried it out; on return it may be acknowledged."""
        await self._members.confirm(self)
        self._known = True

    async def begin(self) -> None:
        """Tell all servers that it begins. Raises if that cannot be; then there is no `end`."""
        try:
            await self._members.begin(self)
        except BaseException:
            if self.begun:
                self._members.end(self, known=False)
            raise

    def end(self) -> None:
        """Tell all servers that it is over."""
        self._members.end(self, known=self._known)


async def _all(requests: Iterable[Coroutine[object, object, None]]) -> None:
    """Wait for all, then raise the first failure, so that none is left running."""
    for result in await asyncio.gather(*requests, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result


def _take(counter: Counter[str], names: Iterable[str]) -> None:
    for name in names:
        counter[name] -= 1
        if counter[name] == 0:
            del counter[name]


def _card_of(hello: Message) -> Card:
    card = Card.parse(str(hello.get("hello", "")).encode())
    if card is None:
        raise ValueError("no card")
    return card
