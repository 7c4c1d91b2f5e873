"""Scheduler of a read or write: fetch groups of chunks, and decode or encode them in threads."""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import ref

from ucxstore.base import process
from ucxstore.base.errors import OperationCancelledError
from ucxstore.client.channel import Channel
from ucxstore.client.ending import Ending
from ucxstore.client.loops import Operation, Queue
from ucxstore.client.requests import Request
from ucxstore.pipeline.budget import Budget, Claim, Claimant
from ucxstore.pipeline.workers import codec_threads

# Groups for each thread that tasks fetch or work on at once: enough for a thread not to wait for
# the network. More of them would only occupy memory.
_TASKS = 4

# Groups for each thread that are on the way or wait for a thread, where threads fetch.
_AHEAD = 8

# A thread of the pool works for so long before other work of the pool has its turn.
TURN_SECONDS = 0.02


class Scheduler:
    """The scheduler of one read or write.

    When one of its methods returns or raises, even if it is cancelled, no task and no thread works
    on any of the groups, and their part of the budget is free.

    Parameters
    ----------
    budget : Budget
        Where each group claims its bytes.

    Attributes
    ----------
    stopping : bool
        Whether the work was cancelled: threads begin nothing more.
    threads : int
        How many threads the pool has.
    """

    def __init__(self, budget: Budget) -> None:
        self.stopping = False
        self._budget = budget
        self._pool, self.threads = codec_threads()

    async def run[G: Claimant](
        self, groups: Sequence[G], work: Callable[[G, Claim], Awaitable[None]]
    ) -> None:
        """Work on all groups in tasks. Each group has a claim until it is done."""

        async def step(group: G) -> None:
            with await self._budget.claim(group.limit) as claim:
                await work(group, claim)

        await self._go_through(groups, step)

    async def fetch[G: Claimant, T](
        self,
        channel: Channel,
        groups: Sequence[G],
        request: Callable[[G], Request[T]],
        work: Callable[[G, T, Claim], None],
    ) -> None:
        """Fetch all groups, and work on them in threads.

        Threads send the requests, too, if there are more groups than threads: see `_Fetcher`.

        Parameters
        ----------
        channel : Channel
        groups : sequence
        request : callable
            Returns the request that fetches a group; called in any thread.
        work : callable
            Takes a group, what was fetched of it, and its claim; called in a thread.
        """

        async def step(group: G, claim: Claim) -> None:
            await self.in_thread(work, group, await channel.ask(request(group)), claim)

        if len(groups) <= self.threads:
            await self.run(groups, step)
            return
        await channel.open()

        def begin(group: G, queue: Queue) -> Operation:
            channel.check_open()
            return channel.begin(request(group), queue)

        fetcher = _Fetcher(self, self._budget, groups, begin, work)
        channel.track(fetcher, fetcher.cancel)
        try:
            await self._go_through(range(self.threads), fetcher.keep_busy)
        except OperationCancelledError:
            channel.check_open()
            raise
        finally:
            channel.untrack(fetcher)
            await fetcher.settle()

    async def in_thread[**P, T](
        self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call a function in a thread of the pool. If cancelled, wait until it has ended."""
        end = Ending()
        calls: list[Callable[[], T]] = [partial(function, *args, **kwargs)]
        del args, kwargs
        future: Future[T] = self._pool.submit(_call_once, calls)
        future.add_done_callback(partial(_wake_loop, asyncio.get_running_loop(), end))
        cancelled = await end.wait(partial(self._stop, future))
        try:
            if cancelled is not None:
                raise cancelled
            return future.result()
        finally:
            del future, cancelled  # no cycle by way of an exception's traceback

    async def in_threads[T](self, functions: Sequence[Callable[[], T]]) -> list[T]:
        """Call functions in threads. None of them runs any more when this returns or raises."""
        results = await asyncio.gather(*map(self.in_thread, functions), return_exceptions=True)
        found: list[T] = []
        try:
            for result in results:
                if isinstance(result, BaseException):
                    raise result
                found.append(result)
        finally:
            del results  # no cycle by way of an exception's traceback
        return found

    def _stop(self, future: Future[Any]) -> None:
        self.stopping = True
        future.cancel()  # does nothing once it runs

    async def _go_through[G](
        self, groups: Sequence[G], step: Callable[[G], Awaitable[None]]
    ) -> None:
        """Await a step for each group, in some tasks."""
        failure: BaseException | None = None
        left = iter(groups)
        ended = 0

        async def go_through_some() -> None:
            nonlocal ended
            for group in left:
                await step(group)
                ended += 1

        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(min(len(groups), _TASKS * self.threads)):
                    tasks.create_task(go_through_some())
        except BaseExceptionGroup as failures:
            failure = failures.exceptions[0]
            failures.__traceback__ = None  # some Python versions keep it in a frame
        if failure is not None:
            try:
                raise failure
            finally:
                # Its traceback refers to this frame, and so to the caller's memory: no cycle.
                del failure, tasks
        if ended != len(groups):  # a TaskGroup does not raise for a task that was cancelled
            raise asyncio.CancelledError("a part of the work was cancelled")


class _Fetcher[G: Claimant]:
    """Groups that threads fetch and work on by themselves while they arrive fast enough.

    The event loop needs the interpreter and a core for each of its turns. A thread that holds the
    interpreter's lock without a core holds up all others. So the loop takes a turn here only when
    nothing has arrived.

    Parameters
    ----------
    scheduler : Scheduler
    budget : Budget
    groups : sequence
        What is to be fetched.
    begin : callable
        Starts to fetch a group, given the queue; called in any thread.
    work : callable
        Takes a group, what was fetched of it, and its claim; called in a thread.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        budget: Budget,
        groups: Iterable[G],
        begin: Callable[[G, Queue], Operation],
        work: Callable[[G, Any, Claim], None],
    ) -> None:
        self._scheduler = scheduler
        self._budget = budget
        self._begin = begin
        self._work = work
        self._most = _AHEAD * scheduler.threads
        self._loop = asyncio.get_running_loop()
        self._queue = _Arrivals(self)
        self._lock = process.lock()
        self._left = deque(groups)
        self._coming: set[_Fetched[G]] = set()
        self._arrived: deque[_Fetched[G]] = deque()
        self._waiting: list[Ending] = []

    # ---- in the event loop's thread ----

    async def keep_busy(self, _: int) -> None:
        """Send a thread to work whenever something has arrived, until no group is left."""
        while not self._scheduler.stopping:
            with self._lock:
                self._start_some()
                self._queue.drain()
                arrived, coming = bool(self._arrived), bool(self._coming)
                wanted = self._left[0].limit if self._left else None
            if arrived:
                while await self._scheduler.in_thread(self.work_on):
                    pass
                if not self._coming:
                    self._wake()  # no operation will do it
            elif coming:
                await self._arrival()
            elif wanted is not None:
                await self._start_when_there_is_room(wanted)
            else:
                return

    async def settle(self) -> None:
        """Cancel what is on its way, wait for its end, and release all claims."""
        cancelled: asyncio.CancelledError | None = None
        while self._coming:
            for fetched in list(self._coming):
                fetched.operation.cancel()
            end = Ending()
            self._listen(end)
            cancelled = await end.wait(lambda: None) or cancelled
            with self._lock:
                self._queue.drain()
        for fetched in self._arrived:
            fetched.claim.release()
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
                self._loop.remove_reader(self._queue.native.fileno())

    def _cancel(self) -> None:
        with self._lock:
            for fetched in list(self._coming):
                fetched.operation.cancel()

    def _listen(self, end: Ending) -> None:
        self._waiting.append(end)
        self._loop.add_reader(self._queue.native.fileno(), self._wake)

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._loop.remove_reader(self._queue.native.fileno())
        for end in waiting:
            end.set()

    # ---- in any thread ----

    def cancel(self) -> None:
        """Cancel what is on its way: then the first of it fails all."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._cancel)

    def work_on(self) -> bool:
        """Work on what arrives; return whether to call this again, after other work of the pool."""
        end = time.monotonic() + TURN_SECONDS
        while not self._scheduler.stopping:
            with self._lock:
                self._start_some()
                if not self._arrived:
                    self._queue.drain()
                if not self._arrived:
                    return False
                fetched = self._arrived.popleft()
                help_wanted = bool(self._arrived and self._waiting)
            if help_wanted:
                self.wake_soon()
            with fetched.claim:
                self._work(fetched.group, fetched.operation.result(), fetched.claim)
            del fetched  # its memory is free again
            if time.monotonic() >= end:
                return True
        return False

    def wake_soon(self) -> None:
        """Let the loop look at what has arrived."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._wake)

    # ---- under the lock ----

    def _start_some(self) -> None:
        while self._left and not self._scheduler.stopping:
            if len(self._coming) + len(self._arrived) >= self._most:
                return
            claim = self._budget.try_claim(self._left[0].limit)
            if claim is None:
                return
            self._start(claim)

    def _start(self, claim: Claim) -> None:
        group = self._left.popleft()
        try:
            operation = self._begin(group, self._queue)
        except BaseException:
            claim.release()
            raise
        fetched = _Fetched(group, claim, operation, self)
        self._coming.add(fetched)
        if operation.done:  # as when all its servers are lost: then nothing calls the queue later
            fetched.arrive()
        else:
            self._queue.listen(operation, fetched.arrive)


class _Arrivals(Queue):
    """The queue of a fetcher, which drains it."""

    def __init__(self, fetcher: _Fetcher[Any]) -> None:
        super().__init__()
        self._fetcher = ref(fetcher)  # no cycle: the queue has a descriptor

    def wake(self) -> None:
        fetcher = self._fetcher()
        if fetcher is not None:
            fetcher.wake_soon()


@dataclass(slots=True, eq=False)
class _Fetched[G: Claimant]:
    """A group that was asked for: on its way, or arrived."""

    group: G
    claim: Claim
    operation: Operation
    fetcher: _Fetcher[G]

    def arrive(self) -> None:
        """Move it to what has arrived, once its operation has ended."""
        self.fetcher._coming.discard(self)
        self.fetcher._arrived.append(self)


def _wake_loop(loop: asyncio.AbstractEventLoop, end: Ending, _: object) -> None:
    """Wake the event loop when the thread is done."""
    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
        loop.call_soon_threadsafe(end.set)


def _call_once[T](calls: list[Callable[[], T]]) -> T:
    """Call the function of a list, and let go of it before anybody hears that it has returned.

    A thread of the pool lets go of what it was given only then. The next read may have begun
    meanwhile: of memory of its own, since the array of the last one is still in use.
    """
    return calls.pop()()
