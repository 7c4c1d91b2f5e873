"""Groups of chunks that a read or a write works on at the same time, within its store's budget."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Protocol

from ucxstore.budget import Budget, Claim
from ucxstore.workers import codec_threads

# Groups for each thread that are on the way, wait for it or are with it: enough for a thread not to
# wait for the network, and no more, since what is there sooner only lies about in memory.
_AHEAD = 4


class Limited(Protocol):
    """What is worked on together."""

    @property
    def limit(self) -> int:
        """Bytes of the budget that it needs at the most."""
        ...


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
        """Work on all groups, each in a task, with a claim that is released when it ends.

        When this returns or raises, cancelled too, no task and no thread works on any of them.
        """
        failure: BaseException | None = None
        ahead = asyncio.Semaphore(_AHEAD * self.threads)
        ended = 0

        async def work_to_the_end(group: G, claim: Claim) -> None:
            nonlocal ended
            await work(group, claim)
            ended += 1

        def end(claim: Claim, _: object) -> None:
            claim.release()
            ahead.release()

        try:
            async with asyncio.TaskGroup() as tasks:
                for group in groups:
                    await ahead.acquire()
                    claim = await self._budget.claim(group.limit)
                    # Ended not by the task itself: it may never begin, if another one fails.
                    tasks.create_task(work_to_the_end(group, claim)).add_done_callback(
                        partial(end, claim)
                    )
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
        job: Future[T] = self._pool.submit(function, *args, **kwargs)
        done = asyncio.wrap_future(job)
        cancelled = False
        while not done.done():
            try:
                await asyncio.wait([done])
            except asyncio.CancelledError:
                self.stopping = cancelled = True
                job.cancel()  # which leaves it alone once it runs
        try:
            if cancelled:
                if not done.cancelled():
                    done.exception()  # seen
                raise asyncio.CancelledError
            return done.result()
        finally:
            del job, done  # no cycle by way of an exception's traceback

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
