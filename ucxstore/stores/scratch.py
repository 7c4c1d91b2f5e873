"""`Scratch`: a scratch space, renewed by the process that made it."""

import asyncio
import contextlib
import os
import secrets
import threading
import weakref
from collections.abc import Mapping
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Self

from ucxstore.base import process
from ucxstore.base.address import HostPort
from ucxstore.base.errors import ScratchEndedError, ServerRestartedError, UcxStoreError
from ucxstore.base.grants import Expiry
from ucxstore.base.keys import SCRATCH_FOLDER, shorten_space
from ucxstore.base.secret import Secret
from ucxstore.base.showing import html_block, html_table, size_text
from ucxstore.client import requests
from ucxstore.client.channel import Channel

if TYPE_CHECKING:
    from ucxstore.stores.store import UcxStore

# Seconds after which servers end a space that is not renewed. Few things hold up an interpreter for
# that long, and memory is not wasted for long.
DEFAULT_TIMEOUT = 60.0

# Renewals in that time. All but one may get lost.
_RENEWALS = 4
# Seconds. A server keeps a space for 300 of them after it has lost its owner's session.
_MOST_INTERVAL = 60.0

# For each space that is still there at exit. Servers end the others after their time-out.
_EXIT_SECONDS = 2.0

_NAME_BYTES = 16
# Ends the name of a space that frees what has been read once. So every client and server that has a
# key of it knows, whatever it was told. The native core has the same.
_READ_ONCE = "once"


def new_name(*, read_once: bool = False) -> str:
    """Return a name for a space, which nobody can guess."""
    return secrets.token_hex(_NAME_BYTES) + (_READ_ONCE if read_once else "")


class Scratch[S: "UcxStore"]:
    """A scratch space: memory at a store's servers for temporary values. A context manager.

    `ucxstore.UcxStore.scratch` makes it. The space lasts until this object is closed or collected,
    or its process has ended. Other processes use its stores, which can be pickled.

    Attributes
    ----------
    name : str
        The space's name at the servers. Whoever knows it, and the servers' secret, can use it.
    quota : int
        Bytes of values.
    timeout : float
        Seconds that servers keep it for without a renewal.
    read_once : bool
        Whether servers free what has been read once.
    """

    def __init__(self, store: S, quota: int, lease: "Lease", met: Mapping[HostPort, bytes]) -> None:
        self.name = lease.name
        self.quota = quota
        self.timeout = lease.timeout
        self.read_once = lease.name.endswith(_READ_ONCE)
        self._store = store
        self._closed = False
        self._lease = lease
        self._met = met
        self._finalizer = weakref.finalize(self, self._lease.let_go)
        self._finalizer.atexit = False  # see `_end_all`

    def store(self, prefix: str = "") -> S:
        """Return a store in the space, which can be used and pickled as any other.

        Parameters
        ----------
        prefix : str
            The prefix of every key, within the space.

        Raises
        ------
        AddressError
            If no key can have the prefix.
        ScratchEndedError
            If the space was closed here.
        """
        self._check_open()
        within = f"{SCRATCH_FOLDER}{self.name}/{prefix.strip('/')}".rstrip("/")
        return self._store.at(within, self._met)

    def grant(self, *, read_only: bool = False, expires: Expiry | None = None) -> Secret:
        """Derive a secret that opens this space, and nothing else of the servers.

        Parameters
        ----------
        read_only, expires
            As for `Secret.grant`.

        Returns
        -------
        Secret
            For stores of the address of `store()`.

        Raises
        ------
        ValueError
            If the servers have no secret.
        ScratchEndedError
            If the space was closed here.
        """
        self._check_open()
        secret = self._store.secret
        if secret is None:
            raise ValueError("grant: the store has no secret to derive a grant from")
        return secret.grant(f"{SCRATCH_FOLDER}{self.name}/", read_only=read_only, expires=expires)

    def close(self) -> None:
        """End the space, and free its values at all servers. A second call does nothing.

        A space that has ended does not come back: its stores raise `ScratchEndedError` from then
        on, also those that were closed and are used again. A server that cannot be reached now
        frees them when the time-out is over. In a forked child this does nothing, since the space
        is the parent's.
        """
        self._closed = True
        self._finalizer.detach()
        self._lease.end()

    @property
    def closed(self) -> bool:
        """Whether `close` was called here. Its stores then raise `ScratchEndedError`."""
        return self._closed

    def _check_open(self) -> None:
        if self._closed:
            raise ScratchEndedError(f"scratch space {self.name[:8]}…: it was closed")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("a scratch space belongs to one process: pickle a store of it, store()")

    # Without its name: whoever knows that can use the space.

    def _state(self) -> str:
        if self._closed:
            return "closed"
        if not self._lease.is_mine:
            return "of the parent process"
        return "open" if self._lease.is_running else "ended"

    def __repr__(self) -> str:
        return (
            f"<Scratch at {shorten_space(self._store.address)!r}, quota={self.quota}, "
            f"timeout={self.timeout:g}, {self._state()}>"
        )

    def _repr_html_(self) -> str:
        rows = [
            ("servers", ", ".join(map(str, self._store.servers))),
            ("quota", size_text(self.quota)),
            ("timeout", f"{self.timeout:g} s"),
            ("state", self._state()),
        ]
        return html_block("Scratch", shorten_space(self._store.address), html_table(rows))


class Lease:
    """Renew a space at all servers, in a thread, until the space is to end.

    The thread refers to this object alone, so that an unused `Scratch` is collected.

    Parameters
    ----------
    name : str
        The space's.
    channel : Channel
        The channel to its servers.
    timeout : float
        Seconds that servers keep the space for without a renewal.
    """

    def __init__(self, name: str, channel: Channel, timeout: float) -> None:
        self.name = name
        self.timeout = timeout
        self._channel = channel
        self._interval = min(timeout / _RENEWALS, _MOST_INTERVAL)
        self._pid = os.getpid()
        self._over: SimpleQueue[None] = SimpleQueue()  # a finalizer may use it on any thread
        self._thread = threading.Thread(target=self._run, name="ucxstore-scratch", daemon=True)

    def begin(self, quota: int, servers: int) -> None:
        """Make the space at all servers, or raise."""
        self._channel.open_sync()
        milliseconds = max(round(self.timeout * 1000), 1)
        # Keys are placed by their hash: one server may get far more than its share of them.
        most = min(quota, -(-2 * quota // servers))
        begin = requests.begin_space(self.name, most, milliseconds)
        failures = list(filter(None, self._channel.ask_each_sync(begin)))
        if failures:
            self._end()
            raise failures[0]
        self._thread.start()
        _leases.add(self)

    @property
    def is_mine(self) -> bool:
        """Whether this process has made it, and is not a forked child."""
        return os.getpid() == self._pid

    @property
    def is_running(self) -> bool:
        """Whether it is being renewed by this process."""
        return self._thread.is_alive()

    def let_go(self) -> None:
        """Let the thread end the space; never blocks."""
        self._over.put(None)

    def end(self, timeout: float | None = None) -> None:
        """End the space and wait for that, as long as requests may take."""
        if self.is_mine:
            self.let_go()
            self._thread.join(timeout)

    def _run(self) -> None:
        while True:
            try:
                self._over.get(timeout=self._interval)
                break
            except Empty:
                if not self._renewed():
                    break
        self._end()
        _leases.discard(self)

    def _renewed(self) -> bool:
        """Renew the space; return whether any server may still have it."""
        # A server that does not answer must not delay the renewals at the others.
        patience = min(self._interval, self._channel.timeout)
        outcomes = self._channel.ask_each_sync(requests.renew_space(self.name), patience)
        gone = ScratchEndedError, ServerRestartedError  # its users there get the same error
        if all(isinstance(outcome, gone) for outcome in outcomes):
            return False
        with contextlib.suppress(UcxStoreError):  # the next renewal is another attempt
            if not self._channel.opened:
                self._channel.open_sync(min(patience, self._channel.connect_timeout))
        return True

    def _end(self) -> None:
        self._channel.ask_each_sync(requests.end_space(self.name))


# Those of this process that have not ended.
_leases: weakref.WeakSet[Lease] = weakref.WeakSet()


def _end_all() -> None:
    for lease in list(_leases):
        lease.let_go()
    for lease in list(_leases):
        lease.end(_EXIT_SECONDS)


process.at_exit(process.Exit.SCRATCH, _end_all)
