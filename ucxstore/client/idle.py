"""`IdleWatch`: a thread that closes connections that nobody has used for a while."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress

from ucxstore.base import process

# Seconds without a request. To connect again takes milliseconds, so a program that pauses for this
# long does not notice it. And each of N workers that have talked to all others would otherwise keep
# N connections, with their descriptors and buffers at both ends, until the job ends.
IDLE_SECONDS = 60.0


class IdleWatch:
    """Call a function when it says that it is due, in a thread that ends with its task.

    Parameters
    ----------
    look : callable
        Takes the time by the monotonic clock, and returns when to call it again; ``None`` if there
        is nothing left to watch.
    """

    def __init__(self, look: Callable[[float], float | None]) -> None:
        self._look = look
        self._lock = process.lock()
        self._runs = False

    def start(self) -> None:
        """Start the thread, unless it runs: something is to be watched."""
        with self._lock:
            if self._runs:
                return  # its next look is after this, and sees what was added
            thread = threading.Thread(target=self._run, name="ucxstore-idle", daemon=True)
            with suppress(RuntimeError):  # no thread is to be had: the next start tries again
                thread.start()
                self._runs = True

    def _run(self) -> None:
        while True:
            with self._lock:  # so that nobody starts it between the last look and its end
                due = self._look(time.monotonic())
                if due is None:
                    self._runs = False
                    return
            time.sleep(max(due - time.monotonic(), 0.0))
