"""What tasks bring and threads take, without the event loop's help from one to the next."""

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable

# For so long, a thread of a pool goes on before it sees to what others have given the pool.
_TURN_SECONDS = 0.02


class Feed[T]:
    """Work for some threads.

    A thread that has done something goes on with what was brought meanwhile. The event loop, which
    needs the interpreter and a core for each of its turns, hears from it when there is little left,
    and when there is nothing.

    Parameters
    ----------
    do : callable
        Does the work, in a thread.
    threads : int
        How many there may be.
    most : int
        With so many to be done, `room` waits until half of them are.
    """

    def __init__(self, do: Callable[[T], None], *, threads: int, most: int) -> None:
        self._do = do
        self._threads = threads
        self._most = most
        self._loop = asyncio.get_running_loop()
        self._room = asyncio.Event()
        self._lock = threading.Lock()
        self._brought: deque[T] = deque()
        self._working = 0
        self._full = False

    # ---- in the event loop's thread ----

    def bring(self, work: T) -> bool:
        """Add some; return whether a thread must be sent to `work_on`, since there may be more."""
        with self._lock:
            self._brought.append(work)
            if len(self._brought) >= self._most:
                self._full = True
                self._room.clear()
            if self._working == self._threads:
                return False
            self._working += 1
            return True

    async def room(self) -> None:
        """Wait until more should be brought."""
        if self._full:
            await self._room.wait()

    # ---- in any thread ----

    def work_on(self) -> bool:
        """Do what there is; return whether to be sent here again, behind others that wait."""
        end = time.monotonic() + _TURN_SECONDS
        while (work := self._take()) is not None:
            self._do(work)
            del work  # its memory is free again
            if time.monotonic() >= end:
                return True
        return False

    def _take(self) -> T | None:
        with self._lock:
            if not self._brought:
                self._working -= 1
                return None
            work = self._brought.popleft()
            wake = self._full and len(self._brought) <= self._most // 2
            self._full = self._full and not wake
        if wake:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody brings more
                self._loop.call_soon_threadsafe(self._room.set)
        return work

    def rest(self) -> list[T]:
        """Return what no thread has taken; once none is sent any more."""
        return list(self._brought)
