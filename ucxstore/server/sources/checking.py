"""`check_source`: ask an object store at the start of a server whether it answers."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress

from ucxstore.base.errors import StorageError
from ucxstore.server.sources.source import Source

# A signal that the system hands to another thread does not wake the one that waits.
_LOOK_SECONDS = 0.1


class SilentSourceError(StorageError, TimeoutError):
    """The source cannot be reached, or does not answer in time."""


def check_source(source: Source, timeout: float) -> None:
    """Ask a source whether it can be reached and read.

    Parameters
    ----------
    source : Source
    timeout : float
        Seconds that it may take.

    Raises
    ------
    StorageError
        If it cannot; the message names it, and what to do to start all the same. It is a
        `SilentSourceError` if nobody answers.
    """
    given_up = threading.Event()
    cancels: list[Callable[[], object]] = []

    async def ask() -> StorageError | None:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None
        cancels.append(lambda: loop.call_soon_threadsafe(task.cancel))
        return None if given_up.is_set() else await _ask(source, timeout)

    # The caller may have an event loop that runs in his thread.
    with ThreadPoolExecutor(1, "ucxstore-check") as thread:
        try:
            asked = thread.submit(asyncio.run, ask())
            while not asked.done():
                wait([asked], _LOOK_SECONDS)
        except KeyboardInterrupt:
            given_up.set()
            with suppress(RuntimeError):  # it has ended meanwhile
                for cancel in cancels:
                    cancel()
            raise
    problem = asked.result()
    if problem is not None:
        raise problem


async def _ask(source: Source, timeout: float) -> StorageError | None:
    """Return what is wrong, if anything is."""
    kind: type[StorageError] = SilentSourceError
    try:
        async with asyncio.timeout(timeout):
            await source.check()
        return None
    except TimeoutError:
        problem = source.explain(TimeoutError(f"no answer within {timeout:g} s"))
    except ConnectionError as error:
        problem = source.explain(error)
    except Exception as error:  # of any kind: a library's
        kind, problem = StorageError, source.explain(error)
    return kind(f"storage: {problem}; to start without asking: --no-check (check=False)")
