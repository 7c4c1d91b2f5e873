"""`Scratch`: a scratch space, held by the process that made it."""

import os
import secrets
import threading
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Self

from ucxstore import process
from ucxstore.address import HostPort
from ucxstore.base import StoreBase
from ucxstore.client.runtime import Link
from ucxstore.cluster.incarnations import Incarnations, Known
from ucxstore.cluster.member import Member
from ucxstore.errors import (
    ScratchEndedError,
    ServerLostError,
    ServerRestartedError,
    UcxStoreError,
)
from ucxstore.keys import SCRATCH_FOLDER
from ucxstore.stats import Counters

if TYPE_CHECKING:
    from ucxstore._core import Connection, Operation

# Seconds without a sign of the owner's, after which servers end a space: more than most things hold
# an interpreter up for, and not long for memory to lie about.
DEFAULT_TIMEOUT = 60.0

# Signs in that time, of which all but the last may get lost.
_RENEWALS = 4

# For spaces that are still there when the interpreter exits; the time-out sees to the rest.
_EXIT_SECONDS = 2.0

# That connect at the same time.
_THREADS = 32

_NAME_BYTES = 16


class Scratch[S: StoreBase]:
    """Space at a store's servers for values that nobody needs for long. A context manager.

    `ucxstore.UcxStore.scratch` makes it. It is the owner's handle: the space lasts until it is
    closed, is forgotten, or its process has ended. Others use the stores of it, which pickle.

    Attributes
    ----------
    name : str
        The space's name at the servers. Whoever knows it, and the servers' secret, can use it.
    quota : int
        Bytes of values.
    timeout : float
        Seconds that servers keep it for without a sign of its owner.
    """

    def __init__(self, store: S, quota: int, timeout: float) -> None:
        self.name = secrets.token_hex(_NAME_BYTES)
        self.quota = quota
        self.timeout = timeout
        self._store = store
        self._lease = _Lease(self.name, timeout, store.timeout)
        # Keys are placed by their hash: one server may get far more than its share of them.
        share = min(quota, -(-2 * quota // len(store.servers)))
        self._known = self._lease.begin(store.links(), store.connect_timeout, share, timeout)
        self._finalizer = weakref.finalize(self, self._lease.let_go)
        self._finalizer.atexit = False  # see `_end_all`

    def store(self, prefix: str = "") -> S:
        """Return a store in the space, which can be used and pickled as any other.

        Parameters
        ----------
        prefix : str
            What stands before every key, within the space.

        Raises
        ------
        AddressError
            If keys cannot begin with the prefix.
        """
        within = f"{SCRATCH_FOLDER}{self.name}/{prefix.strip('/')}".rstrip("/")
        return self._store.at(within, self._known)

    def close(self) -> None:
        """End the space, and free its values at all servers. Does nothing twice.

        A server that cannot be reached now does so when the time-out is over. In a forked child it
        does nothing, since the space is the parent's.
        """
        self._finalizer.detach()
        self._lease.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("a scratch space belongs to one process: pickle a store of it, store()")

    def __repr__(self) -> str:
        return f"Scratch({self._store!r}, quota={self.quota}, timeout={self.timeout:g})"


class _Lease:
    """Tells servers that the owner is there, from a thread, until it tells them the end.

    It is apart from `Scratch`, so that a forgotten one is collected.
    """

    def __init__(self, name: str, timeout: float, patience: float) -> None:
        self._name = name
        self._interval = timeout / _RENEWALS
        self._patience = patience
        self._members: list[Member] = []
        self._pid = os.getpid()
        self._over: SimpleQueue[None] = SimpleQueue()  # which a finalizer may use anywhere
        self._thread = threading.Thread(target=self._run, name="ucxstore-scratch", daemon=True)

    def begin(
        self, links: Mapping[HostPort, Link], connect_timeout: float, share: int, lifetime: float
    ) -> dict[HostPort, bytes]:
        """Make the space at all servers, or raise; return their incarnations."""
        known = _connect(links, connect_timeout)
        incarnations, counters = Incarnations(links, Known(known), scratch=True), Counters()
        self._members = [
            Member(server, link, incarnations, counters, scratch=True)
            for server, link in links.items()
        ]
        milliseconds = max(round(lifetime * 1000), 1)
        begun = self._ask(
            lambda to: to.begin_space(self._name, share, milliseconds, self._patience)
        )
        failures = [failure for failure in begun if failure is not None]
        if failures:
            self._ask(self._end_at)
            raise failures[0]
        self._thread.start()
        _leases.add(self)
        return known

    def let_go(self) -> None:
        """Have the thread end the space; never blocks."""
        self._over.put(None)

    def end(self, timeout: float | None = None) -> None:
        """End the space and wait for that, as long as requests may take."""
        if os.getpid() == self._pid:
            self.let_go()
            self._thread.join(timeout)

    def _run(self) -> None:
        while self._members:
            try:
                self._over.get(timeout=self._interval)
                break
            except Empty:
                self._renew()
        self._ask(self._end_at)
        _leases.discard(self)

    def _renew(self) -> None:
        # A server that stands still must not keep the others from being told in time.
        patience = min(self._interval, self._patience)
        outcomes = self._ask(lambda to: to.renew_space(self._name, patience))
        pairs = list(zip(self._members, outcomes, strict=True))
        gone = ScratchEndedError, ServerRestartedError  # who uses it there is told so
        self._members = [member for member, outcome in pairs if not isinstance(outcome, gone)]
        for member in self._members:
            if not member.is_connected:
                member.retry(self._patience)

    def _end_at(self, to: "Connection") -> "Operation":
        return to.end_space(self._name, self._patience)

    def _ask(self, start: "Callable[[Connection], Operation]") -> list[UcxStoreError | None]:
        """Ask all servers that are connected, at the same time; return what failed of each."""
        asked: list[Operation | UcxStoreError] = []
        for member in self._members:
            try:
                asked.append(start(member.connection()))
            except UcxStoreError as error:
                asked.append(error)
        return [one if isinstance(one, UcxStoreError) else _failure_of(one) for one in asked]


def _connect(links: Mapping[HostPort, Link], timeout: float) -> dict[HostPort, bytes]:
    """Connect to all servers at the same time, or raise; return their incarnations."""
    with ThreadPoolExecutor(min(len(links), _THREADS)) as threads:
        list(threads.map(lambda link: link.connect_sync(timeout), links.values()))
    known = {}
    for server, link in links.items():
        session = link.session()
        if session is None:
            raise ServerLostError(f"{server}: the server is gone")
        known[server] = session.welcome.incarnation
    return known


def _failure_of(operation: "Operation") -> UcxStoreError | None:
    try:
        operation.wait()
    except UcxStoreError as error:
        return error
    return None


# Those of this process that have not ended.
_leases: weakref.WeakSet[_Lease] = weakref.WeakSet()


def _end_all() -> None:
    for lease in list(_leases):
        lease.let_go()
    for lease in list(_leases):
        lease.end(_EXIT_SECONDS)


process.at_exit(process.Exit.SCRATCH, _end_all)
