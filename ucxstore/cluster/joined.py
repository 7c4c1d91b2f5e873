"""Requests to several servers, joined to one that looks like a native operation."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

from ucxstore.client.loops import LoopQueue
from ucxstore.errors import (
    ConnectError,
    OperationCancelledError,
    ServerLostError,
    UcxStoreError,
    without_frames,
)

if TYPE_CHECKING:
    from ucxstore._core import Connection, Operation


class Asked(Protocol):
    """A server, as far as a request is concerned."""

    def connection(self) -> "Connection":
        """Return the connection to it, or raise."""
        ...

    def count_request(self) -> None:
        """Take note that it is asked for something."""
        ...


@dataclass(frozen=True, slots=True)
class Share:
    """What one server is asked for.

    Parameters
    ----------
    server : Asked
    start : callable
        Starts the native operation.
    take : callable
        Takes its result, and returns what has to be asked of others now.
    lost : callable
        Told that the server is gone, returns what to ask of others instead, or raises.
    """

    server: Asked
    start: "Callable[[Connection], Operation]"
    take: "Callable[[Any], Iterable[Share]]"
    lost: "Callable[[UcxStoreError], Iterable[Share]]"


class _Part:
    """A share in flight."""

    __slots__ = ("_joined", "operation", "share")

    def __init__(self, joined: "Joined", share: Share, operation: "Operation") -> None:
        self._joined = joined
        self.share = share
        self.operation = operation

    def tell(self) -> None:
        """Go on with it: an event loop has seen it complete."""
        if self in self._joined._parts:  # else a signal ended all of it at its start
            self._joined._end(self, self.operation.result)


class Joined:
    """An operation of several servers, for an event loop or a thread that waits.

    It is done when every part of it is, whatever became of them: only then is the memory of its
    request the caller's again. The first failure cancels what is still in flight.

    Parameters
    ----------
    shares : iterable of Share
        What is asked for at first.
    finish : callable
        Returns the result, once all has been taken.
    queue : LoopQueue or None
        Where its parts complete; ``None`` if a thread waits.
    """

    def __init__(
        self, shares: Iterable[Share], finish: Callable[[], Any], queue: LoopQueue | None
    ) -> None:
        self._finish = finish
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
        try:
            while left and self._failure is None:
                share = left.pop()
                try:
                    connection = share.server.connection()
                except (ServerLostError, ConnectError) as error:
                    left += share.lost(without_frames(error))
                    continue
                part = _Part(self, share, share.start(connection))
                self._parts.append(part)
                if self._queue is not None:
                    self._queue.listen(part.operation, part)
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
            try:
                more = part.share.take(result) if lost is None else part.share.lost(lost)
            except Exception as error:
                self._fail(error)
            else:
                self._start(more)
        if not self._parts and self._queue is not None:
            self._queue.tell(cast("Operation", self))

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
