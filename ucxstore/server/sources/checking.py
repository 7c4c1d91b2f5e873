"""`check_source`: ask an object store at the start of a server whether it answers."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from ucxstore.errors import StorageError
from ucxstore.server.sources.source import Source


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
        If it cannot; the message names it, and what to do to start all the same.
    """
    # The caller may have an event loop that runs in his thread.
    with ThreadPoolExecutor(1, "ucxstore-check") as thread:
        problem = thread.submit(asyncio.run, _ask(source, timeout)).result()
    if problem:
        raise StorageError(f"storage: {problem}; to start without asking: --no-check (check=False)")


async def _ask(source: Source, timeout: float) -> str:
    """Return what is wrong; empty if nothing is."""
    try:
        async with asyncio.timeout(timeout):
            await source.check()
    except TimeoutError:
        return source.explain(TimeoutError(f"no answer within {timeout:g} s"))
    except Exception as error:  # of any kind: a library's
        return source.explain(error)
    return ""
