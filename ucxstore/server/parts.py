"""What a server consists of, and how it ends."""

import os
import threading
import time

from ucxstore._native import core
from ucxstore.server.acceptor import Acceptor
from ucxstore.server.sources.carrier import Carrier

# What UCX has at the least to let go of what is in flight, once the time to finish it is over.
_RELEASE_SECONDS = 0.5


class ServerParts:
    """Apart from `Server`, so that a forgotten one is collected."""

    def __init__(self, native: core.Server, acceptor: Acceptor, carrier: Carrier | None) -> None:
        self._native = native
        self._acceptor = acceptor
        self._carrier = carrier
        self.incarnation = acceptor.incarnation
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._last_stats: dict[str, int] | None = None  # once closed

    @property
    def sessions(self) -> int:
        return 0 if self._last_stats is not None else self._native.sessions

    def stats(self) -> dict[str, int]:
        if self._last_stats is not None:
            return dict(self._last_stats)
        counted = {**self._native.stats(), "turned_away": self._acceptor.turned_away}
        return counted if self._carrier is None else {**counted, **self._carrier.stats()}

    def drain(self, timeout: float) -> bool:
        if os.getpid() != self._pid:
            return True
        end = time.monotonic() + timeout
        self._acceptor.stop(timeout)
        return self._native.drain(max(end - time.monotonic(), 0.0))

    def close(self, timeout: float) -> None:
        if os.getpid() != self._pid:
            return  # a forked child has none of the threads, and must not touch UCX
        if self._acceptor.is_current_thread or (
            self._carrier is not None and self._carrier.is_current_thread
        ):
            # The collector ran there, and the thread cannot wait for its own end.
            threading.Thread(target=self.close, args=(timeout,), daemon=True).start()
            return
        with self._lock:
            if self._last_stats is None:
                end = time.monotonic() + timeout
                self.drain(timeout)
                self._last_stats = self.stats()
                self._native.close(max(end - time.monotonic(), _RELEASE_SECONDS))
                if self._carrier is not None:
                    self._carrier.close(max(end - time.monotonic(), _RELEASE_SECONDS))
