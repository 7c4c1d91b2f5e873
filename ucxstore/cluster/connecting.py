"""`Connecting`: connect to a server in the background, for an operation that waits for it."""

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError, Future

from ucxstore.base import process
from ucxstore.base.errors import OperationCancelledError, without_frames
from ucxstore.client.loops import Queue

# A handshake is mostly waiting. But a first request may go to a thousand servers at once.
_MOST_THREADS = 32


class Connecting:
    """An operation that has ended once an attempt to connect has. It may be cancelled before.

    Parameters
    ----------
    connect : callable
        Blocks until there is a connection, or none can be had. It is called in another thread.
    queue : Queue or None
        Where it is reported; ``None`` if a thread waits for it.
    """

    def __init__(self, connect: Callable[[], None], queue: Queue | None) -> None:
        self._connect = connect
        self._queue = queue
        self._future: Future[None] = Future()
        _connectors.call(self._run)

    @property
    def done(self) -> bool:
        """Whether the attempt has ended, or was given up."""
        return self._future.done()

    def wait(self) -> None:
        """Block until it is done; raise if it was cancelled."""
        try:
            self._future.result()
        except CancelledError:
            raise OperationCancelledError("the request was cancelled") from None

    def result(self) -> None:
        """Raise if it was cancelled."""
        self.wait()

    def cancel(self) -> None:
        """Give up. The attempt goes on, since others may wait for it, too."""
        if self._future.cancel():
            self._report()

    def _run(self) -> None:
        if self.done:
            return
        failure: BaseException | None = None
        try:
            self._connect()
        except BaseException as error:
            failure = without_frames(error)
        if self._future.set_running_or_notify_cancel():
            if failure is None:
                self._future.set_result(None)
            else:
                self._future.set_exception(failure)
            self._report()

    def _report(self) -> None:
        if self._queue is not None:
            self._queue.post(self)


class _Connectors:
    """Threads that call functions, and end when there is none left.

    An executor of the standard library would be waited for when the interpreter exits, for as long
    as a server may take to answer.
    """

    def __init__(self) -> None:
        self._lock = process.lock()
        self._waiting: deque[Callable[[], None]] = deque()
        self._running = 0

    def call(self, function: Callable[[], None]) -> None:
        """Call a function in one of the threads.

        Raises
        ------
        RuntimeError
            If there is no thread, and none can be started.
        """
        with self._lock:
            self._waiting.append(function)
            if self._running == _MOST_THREADS:
                return
            self._running += 1
        thread = threading.Thread(target=self._run, name="ucxstore-rouse", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            with self._lock:
                self._running -= 1
                if self._running or function not in self._waiting:
                    return  # another one calls it
                self._waiting.remove(function)
            raise

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._running -= 1
                    return
                function = self._waiting.popleft()
            function()
            del function  # its server is not kept while this thread waits for the lock


_connectors = _Connectors()


def _start_anew_in_child() -> None:
    """Forget the parent's threads, and what they were to do."""
    global _connectors
    _connectors = _Connectors()


process.in_child(_start_anew_in_child)
