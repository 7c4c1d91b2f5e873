"""Groups of chunks that a read or a write works on at the same time, within its store's budget."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any

from ucxstore.client.ending import Ending
from ucxstore.pipeline.budget import Budget, Claim, Limited
from ucxstore.pipeline.feed import Feed
from ucxstore.pipeline.pump import Pump
from ucxstore.pipeline.workers import codec_threads

if TYPE_CHECKING:
    from ucxstore._core import Completions, Operation

# Groups for each thread that are on the way, wait for it or are with it (of a feed, so many are on
# the way, and so many wait): enough for a thread not to wait for the network, and no more, since
# what is there sooner only lies about in memory.
_AHEAD = 4

# The same where threads fetch: what they start comes at once.
_PUMPED = 8


class Jobs:
    """The work of one read or write.

    Parameters
    ----------
    budget : Budget
        What each group claims its bytes of.

    Attributes
    ----------
    stopping : bool
        Whether the work was cancelled: threads begin nothing more.
    threads : int
        How many there are.
    """

    def __init__(self, budget: Budget) -> None:
        self.stopping = False
        self._budget = budget
        self._pool, self.threads = codec_threads()

    async def run[G: Limited](
        self, groups: Sequence[G], work: Callable[[G, Claim], Awaitable[None]]
    ) -> None:
        """Work on all groups, many at the same time, each with a claim until it is done.

        When this returns or raises, cancelled too, no task and no thread works on any of them.
        """

        async def step(group: G, _: asyncio.TaskGroup) -> None:
            with await self._budget.claim(group.limit) as claim:
                await work(group, claim)

        await self._go_through(groups, step)

    async def feed[G: Limited, T](
        self,
        groups: Sequence[G],
        fetch: Callable[[G, Claim], Awaitable[T]],
        work: Callable[[T], None],
    ) -> None:
        """Fetch all groups, and work in threads on what was fetched of each.

        It has its group's claim until then. When this returns or raises, cancelled too, no task and
        no thread works on any of them.
        """

        def do(fetched: tuple[Claim, T]) -> None:
            claim, value = fetched
            with claim:
                if not self.stopping:
                    work(value)

        feed = Feed(do, threads=self.threads, most=_AHEAD * self.threads)

        async def go_on() -> None:
            while await self.in_thread(feed.work_on):
                pass

        async def step(group: G, tasks: asyncio.TaskGroup) -> None:
            with contextlib.ExitStack() as stack:
                claim = stack.enter_context(await self._budget.claim(group.limit))
                value = await fetch(group, claim)
                stack.pop_all()  # the thread's from now on
            if feed.bring((claim, value)):
                tasks.create_task(go_on())
            del value
            await feed.room()

        try:
            await self._go_through(groups, step)
        finally:
            for claim, _ in feed.rest():
                claim.release()

    async def pump[G: Limited](
        self,
        groups: Sequence[G],
        start: "Callable[[G, Completions], Operation]",
        work: Callable[[G, Any, Claim], None],
    ) -> None:
        """Do as `feed`, with threads that also start to fetch.

        Parameters
        ----------
        groups : sequence
        start : callable
            Starts the native operation that fetches a group.
        work : callable
            Takes a group, what was fetched of it, and its claim.
        """
        most = _PUMPED * self.threads
        pump = Pump(groups, start, work, self._budget, most, lambda: self.stopping)

        async def lane(_: object, __: asyncio.TaskGroup) -> None:
            await pump.lane(self.in_thread)

        try:
            await self._go_through(range(self.threads), lane)
        finally:
            await pump.settle()

    async def _go_through[G](
        self, groups: Sequence[G], step: Callable[[G, asyncio.TaskGroup], Awaitable[None]]
    ) -> None:
        """Make a step with each group, in some tasks, and wait for what it starts in others."""
        failure: BaseException | None = None
        left = iter(groups)
        ended = 0

        async def go_through_some(tasks: asyncio.TaskGroup) -> None:
            nonlocal ended
            for group in left:
                await step(group, tasks)
                ended += 1

        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(min(len(groups), _AHEAD * self.threads)):
                    tasks.create_task(go_through_some(tasks))
        except BaseExceptionGroup as failures:
            failure = failures.exceptions[0]
            failures.__traceback__ = None  # some versions refer to it from a frame of theirs
        if failure is not None:
            try:
                raise failure
            finally:
                # Its traceback refers to this frame, and so to the caller's memory: no cycle.
                del failure, tasks
        if ended != len(groups):  # a cancelled task is no failure to its group
            raise asyncio.CancelledError("a part of the work was cancelled")

    async def in_thread[**P, T](
        self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Compute in a thread of the pool. Cancelled, wait for its end all the same."""
        end = Ending()
        job: Future[T] = self._pool.submit(function, *args, **kwargs)
        job.add_done_callback(partial(_tell, asyncio.get_running_loop(), end))
        cancelled = await end.wait(partial(self._stop, job))
        try:
            if cancelled is not None:
                raise cancelled
            return job.result()
        finally:
            del job, cancelled  # no cycle by way of an exception's traceback

    def _stop(self, job: Future[Any]) -> None:
        self.stopping = True
        job.cancel()  # which leaves it alone once it runs

    async def in_threads[T](self, functions: Sequence[Callable[[], T]]) -> list[T]:
        """Compute many at the same time. None of them runs any more when this returns or raises."""
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


def _tell(loop: asyncio.AbstractEventLoop, end: Ending, _: object) -> None:
    """Bring the end of a thread's work to the event loop that waits for it."""
    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
        loop.call_soon_threadsafe(end.set)
