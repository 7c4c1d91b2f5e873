"""Whether the machine stood still: what is late then says nothing about who was late."""

import threading
import time
from types import TracebackType
from typing import Self

_PAUSE = 0.1


class Stall:
    """Measure the longest time in which this process did not run, though it was to.

    A context manager.
    """

    def __init__(self) -> None:
        self.longest = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        is_over = False
        while not is_over:
            before = time.monotonic()
            is_over = self._over.wait(_PAUSE)
            self.longest = max(self.longest, time.monotonic() - before - _PAUSE)
