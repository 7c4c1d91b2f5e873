"""Operations of several servers, gathered to one that looks like a native operation."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ucxstore.client.loops import Operation, Queue
from ucxstore.client.requests import Request
from ucxstore.errors import (
    ConnectError,
    OperationCancelledError,
    ServerLostError,
    UcxStoreError,
    without_frames,
)

if TYPE_CHECKING:
    from ucxstore._core import Connection


class Asked(Protocol):
    """A server, as far as a request is concerned."""

    def connection(self) -> "Connection":
        """Return the connection to it, or raise."""
        ...

    def count_request(self) -> None:
        """Count a request to it."""
        ...


@dataclass(frozen=True, slots=True)
class Share:
    """What one server is asked.

    Parameters
    ----------
    server : Asked
    request : Request
    answered : callable
        Takes the answer, and returns what must be asked of others now.
    lost : callable
        Takes the error where the server is gone, and returns what to ask of others instead, or
        raises.
    """

    server: Asked
    request: Request[Any]
    answered: "Callable[[Any], Iterable[Share]]"
    lost: "Callable[[UcxStoreError], Iterable[Share]]"


class _Part:
    """A share in flight."""

    __slots__ = ("_gathered", "operation", "share")

    def __init__(self, gathered: "Gathered", share: Share, operation: Operation) -> None:
        self._gathered = gathered
        self.share = share
        self.operation = operation

    def tell(self) -> None:
        """Go on with it: its queue has seen it complete."""
        if self in self._gathered._parts:  # else a signal ended all of it at its start
            self._gathered._end(self, self.operation.result)


class Gathered:
    """An operation of several servers, for a queue or a thread that waits.

    It is done when every part of it is, whatever became of them: only then is the memory of its
    request the caller's again. The first failure cancels what is still in flight.

    Parameters
    ----------
    shares : iterable of Share
        What is asked at first.
    finish : callable
        Returns the result, once all servers have answered.
    timeout : float
        Seconds that a part may go without progress.
    queue : Queue or None
        Where its parts complete; ``None`` if a thread waits.
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
        self._parts: list[_Part] = []
        self._failure: Exception | None = None
        try:
            self._start(shares)
        except BaseException:
            self._settle()
            raise

    @property
    def done(self) -> bool:
        """Whether nothing of it is in flight any more."""
        return not self._parts

    def wait(self) -> Any:
        """Block until it is done, and return its result."""
        try:
            while self._parts:
                part = self._parts[0]
                self._end(part, part.operation.wait)
        except BaseException:  # such as a signal's, raised anywhere
            self._settle()
            raise
        return self.result()

    def result(self) -> Any:
        """Return what came of it, or raise the failure; once it is done."""
        if self._failure is not None:
            # A copy, whose traceback may refer to the caller's memory for as long as it likes.
            raise without_frames(self._failure)
        return self._finish()

    def cancel(self) -> None:
        """Cancel what is in flight. It is done once that has ended."""
        if self._parts:
            self._fail(OperationCancelledError("the request was cancelled"))

    def _start(self, shares: Iterable[Share]) -> None:
        """Start shares, or what is asked instead of them where a server is not there."""
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
                part = _Part(self, share, operation)
                self._parts.append(part)
                if self._queue is not None:
                    self._queue.listen(operation, part.tell)
                share.server.count_request()
        except Exception as error:
            self._fail(error)

    def _end(self, part: _Part, ask: Callable[[], Any]) -> None:
        """Take what a part has come to, and go on."""
        lost: UcxStoreError | None = None
        result: Any = None
        try:
            result = ask()
        except ServerLostError as error:
            lost = without_frames(error)
        except Exception as error:
            self._fail(error)
        self._parts.remove(part)
        if self._failure is None:
            share = part.share
            try:
                more = share.answered(result) if lost is None else share.lost(lost)
            except Exception as error:
                self._fail(error)
            else:
                self._start(more)
        if not self._parts and self._queue is not None:
            self._queue.tell(self)

    def _fail(self, error: Exception) -> None:
        if self._failure is None:
            self._failure = without_frames(error)
        for part in self._parts:
            part.operation.cancel()

    def _settle(self) -> None:
        """See all parts complete, however often a signal's handler raises."""
        while self._parts:
            with suppress(BaseException):
                part = self._parts[0]
                part.operation.cancel()
                with suppress(Exception):
                    part.operation.wait()
                self._parts.remove(part)
