"""`Membership`: a server among those that write to the same source.

Each answers from its cache without asking only while no other one changes the key, and only while
its lease holds. docs/consistency.md says how that is agreed on, and why it suffices.
"""

import asyncio
import secrets
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace

from ucxstore import logs
from ucxstore._native import core
from ucxstore.protocol.session_keys import SessionKeys
from ucxstore.server.sources.caches import Caches
from ucxstore.server.sources.changes import Changes, OwnChange
from ucxstore.server.sources.lease import FENCE_SECONDS, LEASE_SECONDS, RENEW_SECONDS, Lease
from ucxstore.server.sources.names import Names
from ucxstore.server.sources.peering import Peering, YieldingError
from ucxstore.server.sources.presence import Card, Presences, boot_seconds, this_process
from ucxstore.server.sources.source import Source
from ucxstore.server.sources.tasks import Tasks
from ucxstore.server.sources.tiered import TieredSource

# Between two attempts to join; a write that waits brings the next one forward.
_PAUSES = (0.1, 0.5, 2.0, 5.0, 15.0, 60.0)

# A write waits for others for so long, and then fails before it has begun.
_PATIENCE_SECONDS = 3 * FENCE_SECONDS

# For so long a server that cannot reach another one relies on no lease. Then it tries again.
_YIELD_SECONDS = 60.0

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
    encrypt : bool
        Whether what they say to each other must be encrypted.
    """

    addresses: tuple[str, ...]
    port: int
    secret: bytes = field(repr=False)
    encrypt: bool = False


class _FencedError(Exception):
    """The presence is gone: this server was shut out."""


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

    Attributes
    ----------
    lease : Lease
    peering : Peering
        The links to the others.
    """

    def __init__(
        self,
        source: Source,
        storage: core.CachedSource,
        *,
        asks: bool,
        refuses: Callable[[BaseException], bool] = lambda _: False,
    ) -> None:
        disk = source if isinstance(source, TieredSource) else None
        self._presences = Presences(source if disk is None else disk.source)
        self._explain = source.explain
        self._refuses = refuses
        self._alone = False  # the source has refused
        self._server = secrets.token_hex(16)
        self._epoch = 0
        self._caches = Caches(storage, disk)
        self._changes = Changes(self._server, self._caches)
        self.lease = Lease(self._caches.believe_until, asks=asks)
        self.peering = Peering(self._presences, self.lease, self._changes, self._explain)
        self._contact: Contact | None = None
        self._contacted = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tried = threading.Event()
        self._attempt: asyncio.Future[Exception | None] | None = None
        self._hurry = asyncio.Event()
        self._warned = False
        self._tasks = Tasks()

    # ---- for other threads ----

    def join(self, contact: Contact, timeout: float) -> None:
        """Begin to join the others; wait until that is done, or has failed once."""
        self._contact = contact
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):  # it has ended
                loop.call_soon_threadsafe(self._contacted.set)
        self._tried.wait(timeout)

    def change_secret(self, secret: bytes) -> None:
        """Use another secret from the next connection to another server on."""
        if self._contact is not None:
            self._contact = replace(self._contact, secret=secret)
            self.peering.secret = secret

    @property
    def trouble(self) -> str:
        """Why writes fail now; "" if they do not for want of a membership."""
        if self._alone or self.lease.is_member:
            return ""
        return "the other servers of the source cannot know of this one, so writes fail"

    def adopt(self, sock: socket.socket, keys: SessionKeys | None = None) -> None:
        """Take over the connection of another server, whose handshake is done."""
        try:
            assert self._loop is not None
            self._loop.call_soon_threadsafe(self.peering.welcome, sock, keys)
        except RuntimeError:
            sock.close()

    # ---- its life ----

    def start(self) -> None:
        """Begin, in the running event loop; `join` may come before or after."""
        self._loop = asyncio.get_running_loop()
        self._attempt = self._loop.create_future()
        if self._contact is not None:
            self._contacted.set()
        self._tasks.start(self._live())
        self._tasks.start(self._tick())

    async def leave(self) -> None:
        """Rely on nothing any more, and tell the others so."""
        card = self.lease.end()
        self._tasks.cancel()
        self.peering.close()
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
            except YieldingError:
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
            card = self._quit()
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
        self.peering.secret = contact.secret
        self.peering.encrypt = contact.encrypt
        self._epoch += 1
        card = Card(
            server=self._server,
            epoch=self._epoch,
            asks=not self.lease.is_relied_on,
            addresses=contact.addresses,
            port=contact.port,
            process=this_process(),
        )
        self.lease.join(card)
        await self._presences.put(card)
        # Whoever puts a card after this listing sees this one's in his own.
        names = await self._presences.names()
        if card.name not in names:
            raise NotImplementedError("a listing of the source does not show what is there")
        others = [name for name in names if not name.startswith(f"{self._server}-")]
        await self.peering.meet(others)
        for name in {*names} - {*others, card.name}:
            await self._presences.remove(name)
        began = boot_seconds()
        await self._look(card)
        # What was fetched before may be older than what those have written who were shut out.
        self._caches.forget_all()
        self.lease.begin(began)

    async def _stay(self) -> bool:
        """Renew the lease until this server is shut out, or may rely on its lease again.

        Returns
        -------
        bool
            Whether it was shut out.
        """
        card = self.lease.card
        assert card is not None
        yields_until = boot_seconds() + _YIELD_SECONDS
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            try:
                await self._renew(card)
                if self.lease.yields and boot_seconds() >= yields_until:
                    yields_until = boot_seconds() + _YIELD_SECONDS
                    if await self.peering.reach_all_again():
                        self.lease.yields = False
                        return False
            except _FencedError:
                return True
            except Exception as error:
                # The lease ends by itself.
                logs.server.info("the lease was not renewed: %s", self._explain(error))

    async def _tick(self) -> None:
        """Let the others see that this one lives, also while the source is slow."""
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            self.peering.tick()

    async def _renew(self, card: Card) -> None:
        began = boot_seconds()
        async with asyncio.timeout(LEASE_SECONDS):
            await self._look(card)
        self.lease.renew(card, began)

    async def _look(self, card: Card) -> None:
        if await self._presences.read(card.name) != card.encode():
            raise _FencedError

    def _quit(self) -> Card | None:
        """Rely on nothing until the next joining; return the card until now."""
        card = self.lease.end()
        self.peering.part()
        return card

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
                self._changes.begin(change.own)
                change.begun = True
                await self._announce(change)
        except TimeoutError:
            raise TimeoutError("other servers of the source do not answer") from None

    async def confirm(self, change: "Change") -> None:
        """Make sure that what the source has carried out is seen by all; else tell them anew."""
        while not self.lease.covers(change.card):
            card = self.lease.card
            if card is None and self._alone:
                return
            if change.card is card and card is not None:
                with suppress(_FencedError):
                    await self._renew(card)
                    continue
                self._hurry.set()
                await asyncio.sleep(0.05)
                continue
            await self._be_member()
            await self._announce(change)

    def end(self, change: "Change", *, known: bool) -> None:
        """Tell all others that it is over; if its end is not known, go on to ask."""
        if known:
            self.peering.end(self._changes.end(change.own))
        else:
            self.peering.ask_for_all(self._changes.give_up(change.own))

    async def _announce(self, change: "Change") -> None:
        change.card = self.lease.card
        if self.peering.peers:
            self._changes.ask_for(change.own)
            await self.peering.begin(change.own.names)

    async def _be_member(self) -> None:
        while not self.lease.is_member:
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
        self.own = OwnChange(names)
        self.begun = False
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
