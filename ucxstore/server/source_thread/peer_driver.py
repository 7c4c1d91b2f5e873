"""`PeerDriver`: carry out what the machine of a member says.

It has the links, the requests about presences and the clock. It decides nothing.
"""

import asyncio
import itertools
import secrets
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import cast

from ucxstore.base import logs
from ucxstore.base.errors import UcxStoreError
from ucxstore.base.native import core
from ucxstore.protocol.session_keys import SessionKeys
from ucxstore.server.peers import events, times
from ucxstore.server.peers.machine import PeerMachine
from ucxstore.server.peers.messages import Message, merged
from ucxstore.server.peers.names import Names
from ucxstore.server.peers.presence import Presence
from ucxstore.server.peers.state import State
from ucxstore.server.source_thread.links import Link
from ucxstore.server.source_thread.presence import Presences, boot_seconds, this_process
from ucxstore.server.source_thread.tasks import Tasks
from ucxstore.server.sources.doubts import may_hold
from ucxstore.server.sources.source import Source
from ucxstore.server.sources.tiered import DiskTier

# What a server that cannot be reached raises.
_UNREACHED = (OSError, EOFError, ValueError, UcxStoreError)

# By the events of a `Notice`.
_NOTICES = {
    "fenced": "another server of the source has shut this one out: asking the source about each "
    "value",
    "fencing": "shutting out the server at %(where)s, and waiting for up to "
    f"{times.FENCE_SECONDS:.3g} s: %(why)s",
    "yielding": "cannot reach the server at %(where)s, which writes to the same source, so this "
    "one asks the source about each value: %(why)s",
}

# For the end of a server: to say that it goes.
_LEAVE_SECONDS = 1.0

# How late the machine may hear of the time, at most.
_TICK_SECONDS = 0.25


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


class ClientChange:
    """A change that a client has asked for.

    Parameters
    ----------
    members : PeerDriver
    number : int
    reply : callable
        Takes how it has ended, and whether the cache may keep what was written.
    """

    def __init__(
        self, members: "PeerDriver", number: int, reply: Callable[[events.Outcome, bool], None]
    ) -> None:
        self.reply = reply
        self._members = members
        self._number = number
        self._turn: asyncio.Future[bool] | None = None
        self._is_due = self._goes = self._is_over = False

    async def is_due(self) -> bool:
        """Wait until it may be sent soon; tell whether it may, and has not ended."""
        if not (self._is_due or self._is_over):
            self._turn = asyncio.get_running_loop().create_future()
            await self._turn
            self._turn = None
        self._is_due = False
        return not self._is_over

    def goes(self) -> bool:
        """Tell whether it is to be sent now; if not, it may be due once more."""
        self._goes = False
        self._members.feed(events.TurnCame(self._number))
        return self._goes

    def may_go_on(self) -> bool:
        """Tell whether it may be sent again."""
        return not self._is_over and self._members.machine.may_send(self._number, boot_seconds())

    def end(self, outcome: events.Outcome) -> None:
        """Say what the source has answered."""
        self._members.feed(events.Ended(self._number, outcome))

    def give_up(self, why: str = "nobody waits for it any more", *, late: bool = False) -> None:
        """Say that it is not to be sent, or that nobody waits for it."""
        self._members.feed(events.GivenUp(self._number, why, late))

    # ---- for the membership ----

    def come(self) -> None:
        """Wake whoever waits until it is due."""
        self._is_due = True
        self._wake()

    def go(self) -> None:
        """Let it be sent. That it became due twice meanwhile means nothing any more."""
        self._goes = True
        self._is_due = False

    def over(self, outcome: events.Outcome, *, keep: bool) -> None:
        """Tell the client."""
        self._is_over = True
        self.reply(outcome, keep)
        self._wake()

    def _wake(self) -> None:
        if self._turn is not None and not self._turn.done():
            self._turn.set_result(True)


class PeerDriver:
    """A server among those that write to the same source. In the carrier's event loop.

    Parameters
    ----------
    source : Source
        Where the servers find one another.
    storage : core.CachedSource
        The cache, which asks the source for what it is told to. It decides for the one on disk,
        too, what is believed.
    disk : DiskTier or None
        The cache on disk.
    shared : bool
        Whether other servers may write to the source, too.
    asks : bool
        Whether a freshness that was chosen decides what is believed, and no lease.
    patience : float
        Seconds for which a change waits while the source answers nothing.
    refuses : callable
        Whether a failure to join tells that no server can find others in this source, now or
        later, as it has no listings. Then none relies on a lease, and writes concern nobody.

    Attributes
    ----------
    machine : PeerMachine
        What decides.
    """

    def __init__(
        self,
        source: Source,
        storage: core.CachedSource,
        disk: DiskTier | None = None,
        *,
        shared: bool,
        asks: bool,
        patience: float,
        refuses: Callable[[BaseException], bool] = lambda _: False,
    ) -> None:
        self._presences = Presences(source)
        self._explain = source.explain
        self._refuses = refuses
        self._cache = storage
        self._disk = disk
        if disk is not None:
            disk.believes = storage.believes
        self._patience = patience
        self.machine = PeerMachine(
            State(
                secrets.token_hex(16),
                shared=shared,
                asks=asks,
                unlisted=refuses(NotImplementedError()),
                patience=patience,
                lasting=source.doubts.lasting,
                holds=cast(Callable[[str, object], bool], may_hold),
            )
        )
        source.doubts.tell = self.feed
        self._contact: Contact | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tried = threading.Event()
        self._warned = False
        self._failed = ""  # why no machine decides any more
        self._tasks = Tasks()
        self._numbers = itertools.count(1)
        self._changes: dict[int, ClientChange] = {}
        self._links: dict[int, Link] = {}
        self._outbox: dict[int, list[Message]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._ticks_at = 0.0
        self._left = asyncio.Event()
        for action in self.machine.start():
            self._do(action)

    # ---- for other threads ----

    def join(self, contact: Contact, timeout: float) -> None:
        """Begin to join the others; wait until that is done, or has failed once."""
        self._contact = contact
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):  # it has ended
                loop.call_soon_threadsafe(self._contacted)
        self._tried.wait(timeout)

    def change_secret(self, secret: bytes) -> None:
        """Use another secret from the next connection to another server on."""
        if self._contact is not None:
            self._contact = replace(self._contact, secret=secret)

    @property
    def is_shared(self) -> bool:
        """Whether other servers may write to the source, too."""
        return self.machine.state.shared

    @property
    def trouble(self) -> str:
        """Why writes fail now; "" if they do not for want of a membership."""
        if self._failed:
            return self._failed
        if self.machine.state.phase in ("alone", "member"):
            return ""
        return "the other servers of the source cannot find this one, so writes fail"

    def adopt(self, sock: socket.socket, keys: SessionKeys | None = None) -> None:
        """Take over the connection of another server, whose handshake is done."""
        try:
            assert self._loop is not None
            self._loop.call_soon_threadsafe(self._welcome, sock, keys)
        except RuntimeError:
            sock.close()

    # ---- its life ----

    def start(self) -> None:
        """Begin, in the running event loop; `join` may come before or after."""
        self._loop = asyncio.get_running_loop()
        self.feed(events.Tick())
        if self._contact is not None:
            self._contacted()

    async def leave(self) -> None:
        """Rely on nothing any more, and tell the others so."""
        self.feed(events.Leave())
        if self._timer is not None:
            self._timer.cancel()
        with suppress(TimeoutError):
            async with asyncio.timeout(_LEAVE_SECONDS):
                await self._left.wait()
        self._tasks.cancel()
        for link in self._links.values():
            link.close()

    def change(
        self, names: Names, value: object, reply: Callable[[events.Outcome, bool], None]
    ) -> ClientChange:
        """Ask for a change. `reply` is called once, maybe at once; then all is over."""
        number = next(self._numbers)
        change = ClientChange(self, number, reply)
        if self._failed:
            change.over(events.Refused(self._failed), keep=False)
        else:
            self._changes[number] = change
            self.feed(events.Asked(number, names, value))
        return change

    def heard(self) -> None:
        """Note that the source has answered a call."""
        if self.machine.state.changes:
            self.feed(events.Heard())

    def feed(self, event: events.Event) -> None:
        """Let the machine take an event, and do what it says."""
        if self._failed:
            return
        now = boot_seconds()
        try:
            for action in self.machine.handle(event, now):
                self._do(action)
            if self.machine.state.phase == "left":
                self._left.set()
            if isinstance(event, events.Tick):
                self._tick_in(min(max(self.machine.wakes_at() - now, 0.01), times.RENEW_SECONDS))
            elif self._timer is not None and self._ticks_at > now + _TICK_SECONDS:
                self._tick_in(_TICK_SECONDS)
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """Rely on nothing, and send nothing, for good: nobody knows any more who changes what."""
        self._cache.set_lease_end(0)
        logs.server.exception("what this server knows of others of its source is lost")
        self._failed = f"the server has failed, and must be started anew: {error!r}"
        if self._timer is not None:
            self._timer.cancel()
        changes, self._changes = self._changes, {}
        for change in changes.values():
            with suppress(Exception):
                change.over(events.Unknown(self._failed), keep=False)
        self._tasks.cancel()
        for link in self._links.values():
            link.close()
        self._links.clear()
        self._tried.set()
        self._left.set()

    def _contacted(self) -> None:
        if self.machine.state.phase == "new" and self._contact is not None:
            contact = self._contact
            self.feed(events.Contacted(contact.addresses, contact.port, this_process()))

    def _tick_in(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._ticks_at = boot_seconds() + seconds
        self._timer = asyncio.get_running_loop().call_later(seconds, self.feed, events.Tick())

    # ---- what the machine says ----

    def _do(self, action: events.Action) -> None:
        match action:
            case events.AskFor(names):
                self._cache.begin_asking(list(names.keys), list(names.prefixes))
                if self._disk is not None:
                    self._disk.forget_names(names)
            case events.Trust(names):
                self._cache.end_asking(list(names.keys), list(names.prefixes))
            case events.Tell(link, message):
                self._send(link, message)
            case events.Carry(number):
                self._changes[number].come()
            case events.Go(number):
                self._changes[number].go()
            case events.Reply(number, outcome, keep):
                self._changes.pop(number).over(self._explained(outcome), keep=keep)
            case events.AskSource(number, what):
                self._tasks.start(self._perform(number, what))
            case events.Believe(until):
                self._cache.set_lease_end(int(until * 1e9))
            case events.ForgetAll():
                self._cache.forget_all()
                if self._disk is not None:
                    self._disk.forget_prefix("")
            case events.Dial(number, presence):
                self._tasks.start(self._dial(number, presence))
            case events.HangUp(link):
                self._hang_up(link)
            case events.Notice():
                self._report(action)

    def _explained(self, outcome: events.Outcome) -> events.Outcome:
        if isinstance(outcome, events.Refused) and outcome.late:
            return replace(outcome, why=self._explain(TimeoutError(outcome.why)))
        return outcome

    async def _perform(self, number: int, what: events.What) -> None:
        answer: events.Answer
        is_look = isinstance(what, events.ReadPresence)
        seconds = times.LEASE_SECONDS if is_look else max(self._patience, times.LEASE_SECONDS)
        try:
            async with asyncio.timeout(seconds):
                answer = await self._presences.perform(what)
        except Exception as error:
            logs.server.info("%s has failed: %s", type(what).__name__, self._explain(error))
            answer = events.Failed(
                self._explain(error),
                never=self._refuses(error),
                passing=isinstance(error, ConnectionError),
            )
        self.feed(events.Answered(number, answer))

    def _report(self, report: events.Notice) -> None:
        presence = report.presence
        where = None if presence is None else f"{''.join(presence.addresses[:1])}:{presence.port}"
        match report.event:
            case "joined":
                self._tried.set()
            case "not_joined" | "alone":
                self._tried.set()
                if not self._warned:
                    self._warned = True
                    logs.server.warning(
                        "other servers of the source cannot find this one, so it asks the source "
                        "about each value%s; a server with read_only need not: %s",
                        "" if report.event == "alone" else ", and writes fail",
                        report.why,
                        extra={"event": "not_joined"},
                    )
            case event:
                about = {"where": where, "why": report.why}
                logs.server.warning(_NOTICES[event], about, extra={"event": event})

    # ---- links ----

    def _send(self, number: int, message: Message) -> None:
        """Send a message at the end of this step of the loop, with others of its kind."""
        waiting = self._outbox.setdefault(number, [])
        if not waiting:
            asyncio.get_running_loop().call_soon(self._flush, number)
        waiting.append(message)

    def _hang_up(self, number: int) -> None:
        self._flush(number)
        link = self._links.pop(number, None)
        if link is not None:
            link.close()

    def _flush(self, number: int) -> None:
        link = self._links.get(number)
        messages = self._outbox.pop(number, [])
        if link is not None:
            for message in merged(messages):
                link.send(message)

    async def _dial(self, number: int, presence: Presence) -> None:
        contact = self._contact
        assert contact is not None
        try:
            async with asyncio.timeout(times.DIAL_SECONDS):
                link = await Link.dial(presence, contact.secret, encrypt=contact.encrypt)
        except _UNREACHED as error:
            self.feed(events.NotDialled(number, str(error) or type(error).__name__))
            return
        await self._serve(link, partial(events.Dialled, number))

    def _welcome(self, sock: socket.socket, keys: SessionKeys | None) -> None:
        if self._failed:
            sock.close()
        else:
            self._tasks.start(self._accept(sock, keys))

    async def _accept(self, sock: socket.socket, keys: SessionKeys | None) -> None:
        await self._serve(await Link.of(sock, keys), events.Accepted)

    async def _serve(self, link: Link, begun: Callable[[int], events.Event]) -> None:
        """Begin a link, with the event that tells its number, and read what comes."""
        number = next(self._numbers)
        self._links[number] = link
        self.feed(begun(number))
        try:
            with suppress(OSError, EOFError, ValueError):
                while number in self._links:
                    message = await link.receive()
                    if number not in self._links:
                        return
                    self.feed(events.Received(number, message))
        finally:
            link.close()
        if self._links.pop(number, None) is not None:
            self.feed(events.Broke(number))
