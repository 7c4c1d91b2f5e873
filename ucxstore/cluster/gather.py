"""`Gathered`: operations of several servers as one, used like a native operation."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from ucxstore.base.errors import (
    ConnectError,
    OperationCancelledError,
    ServerLostError,
    UcxStoreError,
    without_frames,
)
from ucxstore.client.loops import Operation, Queue
from ucxstore.client.requests import Request

if TYPE_CHECKING:
    from ucxstore._core import Connection


class AskedServer(Protocol):
    """What `Gathered` needs of a server."""

    def connection(self) -> "Connection":
        """Return the connection to it, or raise."""

    def count_request(self) -> None:
        """Count a request to it."""


@dataclass(frozen=True, slots=True)
class Share:
    """What one server is asked.

    Parameters
    ----------
    server : AskedServer
    request : Request
    answered : callable
        Takes the answer, and returns the shares to start next.
    lost : callable
        Takes the error where the server is gone, and returns the shares to start instead, or
        raises.
    """

    server: AskedServer
    request: Request[Any]
    answered: "Callable[[Any], Iterable[Share]]"
    lost: "Callable[[UcxStoreError], Iterable[Share]]"


class Gathered:
    """An operation of several servers, for a queue or a thread that waits.

    It is done when the operations of all its shares are done, also after a failure: only then may
    the caller use the memory of its request again. The first failure cancels what is in flight.

    Parameters
    ----------
    shares : iterable of Share
        The first shares to start.
    finish : callable
        Returns the result, once all servers have answered.
    timeout : float
        Seconds that an operation may go without progress.
    queue : Queue or None
        Where the operations complete; ``None`` if a thread waits.
    """

    def __init__(
        self,
        shares: Iterable[Share],
        finish: Callable[[], Any],
        timeout: float,
        queue: Queue | None,
    ) -> None:
        self._finish = finish
        self._timeout = timeout
        self._queue = queue
        self._in_flight: dict[Operation, Share] = {}
        self._failure: Exception | None = None
        try:
            self._start(shares)
        except BaseException:
            self._settle()
            raise

    @property
    def done(self) -> bool:
        """Whether nothing of it is in flight any more."""
        return not self._in_flight

    def wait(self) -> Any:
        """Block until it is done, and return its result."""
        try:
            while self._in_flight:
                operation = next(iter(self._in_flight))
                self._end(operation, operation.wait)
        except BaseException:  # such as a signal's, raised anywhere
            self._settle()
            raise
        return self.result()

    def result(self) -> Any:
        """Return the result, or raise the failure; once it is done."""
        if self._failure is not None:
            # A copy: raising gives it a traceback, which keeps the caller's memory alive.
            raise without_frames(self._failure)
        return self._finish()

    def cancel(self) -> None:
        """Cancel what is in flight. It is done once that has ended."""
        if self._in_flight:
            self._fail(OperationCancelledError("the request was cancelled"))

    def _start(self, shares: Iterable[Share]) -> None:
        """Start shares; where a server is lost, start what replaces its share."""
        left = list(shares)[::-1]
        completions = None if self._queue is None else self._queue.native
        try:
            while left and self._failure is None:
                share = left.pop()
                try:
                    connection = share.server.connection()
                except (ServerLostError, ConnectError) as error:
                    left += share.lost(without_frames(error))
                    continue
                operation = share.request.start(connection, self._timeout, completions)
                self._in_flight[operation] = share
                if self._queue is not None:
                    self._queue.listen(operation, partial(self._take, operation))
                share.server.count_request()
        except Exception as error:
            self._fail(error)

    def _take(self, operation: Operation) -> None:
        """Take the result; the queue calls this when the operation is done."""
        if operation in self._in_flight:  # else a signal has ended all at the start
            self._end(operation, operation.result)

    def _end(self, operation: Operation, ask: Callable[[], Any]) -> None:
        """Take the result of one operation, and start what follows from it."""
        lost: UcxStoreError | None = None
        result: Any = None
        try:
            result = ask()
        except ServerLostError as error:
            lost = without_frames(error)
        except Exception as error:
            self._fail(error)
        share = self._in_flight.pop(operation)
        if self._failure is None:
            try:
                more = share.answered(result) if lost is None else share.lost(lost)
            except Exception as error:
                self._fail(error)
            else:
                self._start(more)
        if not self._in_flight and self._queue is not None:
            self._queue.tell(self)

    def _fail(self, error: Exception) -> None:
        if self._failure is None:
            self._failure = without_frames(error)
        # A thread may wait for them, and another one cancel.
        for operation in list(self._in_flight):
            operation.cancel()

    def _settle(self) -> None:
        """Cancel all and wait for their end, however often a signal handler raises."""
        while self._in_flight:
            with suppress(BaseException):
                operation = next(iter(self._in_flight))
                operation.cancel()
                with suppress(Exception):
                    operation.wait()
                del self._in_flight[operation]
