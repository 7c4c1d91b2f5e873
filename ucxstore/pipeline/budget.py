"""Budget of buffers: bound the bytes that all reads and writes of a store hold in memory."""

import asyncio
from collections import deque
from typing import Protocol, Self

from ucxstore.base import process


class Claimant(Protocol):
    """A group of work that claims a part of a budget."""

    @property
    def limit(self) -> int:
        """Bytes of the budget that it needs at the most."""
        ...


class Claim:
    """A part of a budget, from when it is granted until it is released.

    A context manager that releases it at the end. Methods may be called by any thread, and
    `release` more than once.
    """

    __slots__ = ("_budget", "nbytes")

    def __init__(self, budget: "Budget", nbytes: int) -> None:
        self._budget = budget
        self.nbytes = nbytes

    def resize(self, nbytes: int) -> None:
        """Set its size to the bytes that are in memory, once these are known.

        If there are more than were claimed, they are taken without waiting, since they are in
        memory already. Others wait until they are given back.
        """
        self._budget._give(self, self.nbytes - min(nbytes, self._budget.total))

    def release(self, *_: object) -> None:
        """Give all of it back."""
        self._budget._give(self, self.nbytes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


type _Waiter = tuple[Claim, asyncio.Future[None]]


class Budget:
    """Bytes that may be in flight, shared by all event loops of a process, first come first served.

    Whoever holds a claim must not wait for another one.

    Parameters
    ----------
    total : int
        Bytes. A larger claim is granted when nothing else is in flight.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self._lock = process.lock()
        self._start()
        process.in_child(self._start)

    def _start(self) -> None:
        """Start with nothing in flight; called in a forked child, too."""
        self._free = self.total
        self._waiting: deque[_Waiter] = deque()

    @property
    def in_use(self) -> int:
        """Bytes that are granted now."""
        with self._lock:
            return self.total - self._free

    async def claim(self, nbytes: int) -> Claim:
        """Wait until so many bytes are free, and take them."""
        claim = Claim(self, min(nbytes, self.total))
        waiter = claim, asyncio.get_running_loop().create_future()
        with self._lock:
            if self._take(claim):
                return claim
            self._waiting.append(waiter)
        try:
            await waiter[1]
        except BaseException:
            with self._lock:
                granted = waiter not in self._waiting
                if not granted:
                    self._waiting.remove(waiter)
                    claim.nbytes = 0
            claim.release()  # others may have waited behind it
            raise
        return claim

    def try_claim(self, nbytes: int) -> Claim | None:
        """Take so many bytes if they are free and nobody waits for any; called in any thread."""
        claim = Claim(self, min(nbytes, self.total))
        with self._lock:
            return claim if self._take(claim) else None

    def _take(self, claim: Claim) -> bool:
        """Take the bytes of a claim, under the lock, if they are free and nobody waits for any."""
        if self._waiting or claim.nbytes > self._free:
            return False
        self._free -= claim.nbytes
        return True

    def _give(self, claim: Claim, nbytes: int) -> None:
        with self._lock:
            nbytes = min(nbytes, claim.nbytes)
            claim.nbytes -= nbytes
            self._free += nbytes
            granted = []
            while self._waiting and self._waiting[0][0].nbytes <= self._free:
                granted.append(self._waiting.popleft())
                self._free -= granted[-1][0].nbytes
        for other, future in granted:
            try:
                future.get_loop().call_soon_threadsafe(_wake, future)
            except RuntimeError:  # its event loop is closed: nobody waits any more
                other.release()


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
