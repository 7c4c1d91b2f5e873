"""`SourceLoop`: the event loop of the thread that asks a source."""

import asyncio
import gc
import time
import weakref
from typing import Any

# Seconds in which a thread that has answered returns from it. Then what refers to a future is no
# thread: exceptions do, in circles that only the garbage collector sees.
_RETURNING = 0.02

# Seconds after which a future that somebody still has is no longer waited for.
_PATIENCE = 1.0


class SourceLoop(asyncio.SelectorEventLoop):
    """An event loop that is closed only when no other thread holds one of its futures.

    obstore answers from threads of its own. An answer may have been read, and all of the server be
    closed, while such a thread has not yet returned from giving it, or, where it was cancelled, has
    not yet heard of that. Up to Python 3.13 an interpreter that shuts down meanwhile aborts the
    process (python/cpython 87135).
    """

    def __init__(self) -> None:
        super().__init__()
        self._futures: weakref.WeakSet[asyncio.Future[Any]] = weakref.WeakSet()

    def create_future(self) -> "asyncio.Future[Any]":
        future = super().create_future()
        self._futures.add(future)
        return future

    def close(self) -> None:
        super().close()
        if not self._wait_for_others(_RETURNING):
            gc.collect()
            self._wait_for_others(_PATIENCE)

    def _wait_for_others(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while len(self._futures):
            if time.monotonic() >= deadline:
                return False
            time.sleep(1e-3)
        return True
