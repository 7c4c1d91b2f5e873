"""Many jobs within a budget, a few of them at a time; and work in threads that is waited for."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

from ucxstore.budget import Budget, Claim

type Job = tuple[int, Callable[[Claim], Coroutine[Any, Any, None]]]
"""Bytes that it needs of the budget, and what it does with them."""


async def run_jobs(jobs: Iterable[Job], budget: Budget, most: int) -> None:
    """Run jobs, in their order, `most` of them at a time.

    When this returns or raises, cancelled too, all that have begun have ended. A job that was
    cancelled by itself counts as ended.

    Raises
    ------
    BaseException
        What the first job that failed raised; the others are cancelled then.
    """
    failure: BaseException | None = None
    ahead = asyncio.Semaphore(most)

    def end(claim: Claim, _: object) -> None:
        claim.release()
        ahead.release()

    try:
        async with asyncio.TaskGroup() as tasks:
            for nbytes, run in jobs:
                await ahead.acquire()
                claim = await budget.claim(nbytes)
                # Ended not by the task itself: it may never begin, if another one fails.
                tasks.create_task(run(claim)).add_done_callback(partial(end, claim))
    except BaseExceptionGroup as failures:
        failure = failures.exceptions[0]
        failures.__traceback__ = None  # some versions refer to it from a frame of theirs
    if failure is not None:
        try:
            raise failure
        finally:
            # Its traceback refers to this frame, and so to the caller's memory: no cycle.
            del failure, tasks


async def in_thread[**P, T](
    pool: ThreadPoolExecutor,
    stop: Callable[[], None],
    function: Callable[P, T],
    *args: P.args,
    **options: P.kwargs,
) -> T:
    """Call a function in a thread of a pool. Cancelled, call `stop` and see it end all the same."""
    job: Future[T] = pool.submit(function, *args, **options)
    done = asyncio.wrap_future(job)
    cancelled = False
    while not done.done():
        try:
            await asyncio.wait([done])
        except asyncio.CancelledError:
            cancelled = True
            stop()
            job.cancel()  # which leaves it alone once it runs
    try:
        if cancelled:
            if not done.cancelled():
                done.exception()  # seen
            raise asyncio.CancelledError
        return done.result()
    finally:
        del job, done  # no cycle by way of an exception's traceback
