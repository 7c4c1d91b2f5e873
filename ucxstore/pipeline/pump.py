"""Groups that threads fetch and work on by themselves, while they come as fast as that goes.

The event loop needs the interpreter and a core for each of its turns, and a thread that waits for
the interpreter while its core works on something else holds up all others. So it has none to take
here, except where nothing has arrived.
"""

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ucxstore.client.ending import Ending
from ucxstore.pipeline.budget import Budget, Claim, Limited

if TYPE_CHECKING:
    from ucxstore._core import Operation

# For so long, a thread of a pool goes on before it sees to what others have given the pool.
_TURN_SECONDS = 0.02


class Pump[G: Limited]:
    """The groups of one read.

    Parameters
    ----------
    groups : sequence
        What is to be fetched.
    start : callable
        Starts to fetch a group, with the native completions; in any thread.
    work : callable
        Works on a group and what was fetched of it, with its claim, in a thread.
    budget : Budget
    most : int
        Groups that are on their way or wait for a thread.
    stopped : callable
        Tells whether threads are to begin nothing more.
    """

    def __init__(
        self,
        groups: Sequence[G],
        start: "Callable[[G, Any], Operation]",
        work: Callable[[G, Any, Claim], None],
        budget: Budget,
        most: int,
        stopped: Callable[[], bool],
    ) -> None:
        from ucxstore._native import core  # not before it is needed

        self._start_one = start
        self._work = work
        self._budget = budget
        self._most = most
        self._stopped = stopped
        self._loop = asyncio.get_running_loop()
        self._completions = core.Completions()
        self._lock = threading.Lock()
        self._left = deque(groups)
        self._coming: dict[Operation, tuple[G, Claim]] = {}
        self._arrived: deque[tuple[Operation, G, Claim]] = deque()
        self._waiting: list[Ending] = []

    # ---- in the event loop's thread ----

    async def lane(self, send: Callable[[Callable[[], bool]], Any]) -> None:
        """See to it that a thread works whenever something has arrived, until all has.

        Parameters
        ----------
        send : callable
            Sends a thread to do something, and waits for what it returns.
        """
        while not self._stopped():
            with self._lock:
                self._start_some()
                self._take_arrivals()
                arrived, coming = bool(self._arrived), bool(self._coming)
                wanted = self._left[0].limit if self._left else None
            if arrived:
                while await send(self.work_on):
                    pass
                if not self._coming:
                    self._wake()  # nothing else would
            elif coming:
                await self._arrival()
            elif wanted is not None:
                await self._start_when_there_is_room(wanted)
            else:
                return

    async def settle(self) -> None:
        """End what is on its way, and give its part of the budget back."""
        cancelled: asyncio.CancelledError | None = None
        while self._coming:
            for operation in list(self._coming):
                operation.cancel()
            end = Ending()
            self._listen(end)
            cancelled = await end.wait(lambda: None) or cancelled
            with self._lock:
                self._take_arrivals()
        for _, _, claim in self._arrived:
            claim.release()
        self._arrived.clear()
        if cancelled is not None:
            try:
                raise cancelled
            finally:
                del cancelled  # its traceback refers to this frame: no cycle

    async def _start_when_there_is_room(self, wanted: int) -> None:
        claim = await self._budget.claim(wanted)
        with self._lock:
            if self._left and self._left[0].limit <= wanted:
                self._start(claim)
                return
        claim.release()

    async def _arrival(self) -> None:
        """Wait until something is there, or nothing is on its way any more."""
        end = Ending()
        self._listen(end)
        try:
            cancelled = await end.wait(end.set)
            if cancelled is not None:
                raise cancelled
        finally:
            cancelled = None  # its traceback refers to this frame: no cycle
            self._waiting = [other for other in self._waiting if other is not end]
            if not self._waiting:
                self._loop.remove_reader(self._completions.fileno())

    def _listen(self, end: Ending) -> None:
        self._waiting.append(end)
        self._loop.add_reader(self._completions.fileno(), self._wake)

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._loop.remove_reader(self._completions.fileno())
        for end in waiting:
            end.set()

    # ---- in any thread ----

    def work_on(self) -> bool:
        """Work on what arrives; return whether to be sent here again, behind others that wait."""
        end = time.monotonic() + _TURN_SECONDS
        while not self._stopped():
            with self._lock:
                self._start_some()
                if not self._arrived:
                    self._take_arrivals()
                if not self._arrived:
                    return False
                operation, group, claim = self._arrived.popleft()
                help_wanted = bool(self._arrived and self._waiting)
            if help_wanted:
                with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                    self._loop.call_soon_threadsafe(self._wake)
            with claim:
                self._work(group, operation.result(), claim)
            del operation, group, claim
            if time.monotonic() >= end:
                return True
        return False

    # ---- under the lock ----

    def _start_some(self) -> None:
        while self._left and not self._stopped():
            if len(self._coming) + len(self._arrived) >= self._most:
                return
            claim = self._budget.try_claim(self._left[0].limit)
            if claim is None:
                return
            self._start(claim)

    def _start(self, claim: Claim) -> None:
        group = self._left.popleft()
        try:
            self._coming[self._start_one(group, self._completions)] = group, claim
        except BaseException:
            claim.release()
            raise

    def _take_arrivals(self) -> None:
        for operation in self._completions.drain():
            group, claim = self._coming.pop(operation)
            self._arrived.append((operation, group, claim))
