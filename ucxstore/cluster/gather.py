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
from ucxstore.cluster.connecting import Connecting

if TYPE_CHECKING:
    from ucxstore._core import Connection


class AskedServer(Protocol):
    """What `Gathered` needs of a server."""

    def take(self) -> "Connection | None":
        """Return the connection, and keep it open until `put_back`; ``None`` if none is made yet.

        Raises if the server is gone.
        """

    def put_back(self) -> None:
        """End one use of the connection."""

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
    rouse : callable
        Connects to a server that rests, blocking. What goes wrong, the server's `take` raises.
    """

    def __init__(
        self,
        shares: Iterable[Share],
        finish: Callable[[], Any],
        timeout: float,
        queue: Queue | None,
        rouse: Callable[[Any], None],
    ) -> None:
        self._finish = finish
        self._timeout = timeout
        self._queue = queue
        self._rouse = rouse
        self._in_flight: dict[Operation, Share] = {}
        self._connecting: dict[Operation, None] = {}  # those that only precede a request
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
                operation = next(iter(self._connecting or self._in_flight))
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
                    connection = share.server.take()
                except (ServerLostError, ConnectError) as error:
                    left += share.lost(without_frames(error))
                    continue
                if connection is None:
                    self._connect(share)
                    continue
                try:
                    operation = share.request.start(connection, self._timeout, completions)
                except BaseException:
                    share.server.put_back()
                    raise
                self._await(operation, share)
                share.server.count_request()
        except Exception as error:
            self._fail(error)

    def _connect(self, share: Share) -> None:
        """Connect to the server of a share, and start the share after that."""
        operation = Connecting(partial(self._rouse, share.server), self._queue)
        self._connecting[operation] = None
        self._await(operation, share)

    def _await(self, operation: Operation, share: Share) -> None:
        self._in_flight[operation] = share
        if self._queue is not None:
            self._queue.listen(operation, partial(self._take, operation))

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
        is_request = operation not in self._connecting
        share = self._forget(operation)
        if self._failure is None:
            try:
                if not is_request:
                    more: Iterable[Share] = [share]
                else:
                    more = share.answered(result) if lost is None else share.lost(lost)
            except Exception as error:
                self._fail(error)
            else:
                self._start(more)
        if not self._in_flight and self._queue is not None:
            self._queue.tell(self)

    def _forget(self, operation: Operation) -> Share:
        """Return the share of an operation that has ended, and end its use of the server."""
        share = self._in_flight.pop(operation)
        if operation in self._connecting:
            del self._connecting[operation]
        else:
            share.server.put_back()
        return share

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
                self._forget(operation)
