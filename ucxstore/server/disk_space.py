"""`DiskSpace`: how full the disk of a directory is."""

import os
import threading
from concurrent.futures import Future
from contextlib import suppress
from typing import NamedTuple

from ucxstore.base import process

# Seconds. A network's file system whose server has gone answers only once that is back.
_PATIENCE = 1.0


class Space(NamedTuple):
    """The size of a file system, and what of it is free for this process, in bytes."""

    free: int
    size: int


class DiskSpace:
    """Ask the kernel how full a disk is, without waiting for long.

    Parameters
    ----------
    where : int or str
        A directory: its descriptor, which must stay open, or its path.
    """

    def __init__(self, where: int | str) -> None:
        self._where = where
        self._lock = process.lock()
        self._asked: Future[Space | None] | None = None  # by a thread that waits for the kernel

    def read(self, patience: float = _PATIENCE) -> Space | None:
        """Return the space; ``None`` if the file system does not tell within `patience` seconds."""
        with self._lock:
            asked = self._asked
            if asked is None:
                asked = self._asked = Future()
                threading.Thread(
                    target=self._ask, args=(asked,), name="ucxstore-disk-space", daemon=True
                ).start()
        try:
            return asked.result(patience)
        except TimeoutError:
            return None

    def _ask(self, asked: "Future[Space | None]") -> None:
        answer = None
        with suppress(OSError):
            found = os.statvfs(self._where)
            answer = Space(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)
        with self._lock:
            self._asked = None
        asked.set_result(answer)
