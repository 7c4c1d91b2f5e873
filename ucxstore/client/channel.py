"""`Channel`: send the requests of stores and pipelines to one server or to several."""

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self, cast

from ucxstore.base import process
from ucxstore.base.errors import OperationCancelledError, StoreClosedError, UcxStoreError
from ucxstore.base.options import ClientOptions
from ucxstore.client.ending import Ending
from ucxstore.client.loops import Operation, Queue, current_queue
from ucxstore.client.requests import Request

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from ucxstore._core import Allocation


class Channel(ABC):
    """Send requests to the servers of a store, from any thread and event loop of a process.

    It connects when it is first used, and again after a connection was lost. `OneServer` and
    `Cluster` implement it.

    Parameters
    ----------
    options : ClientOptions
        Only the timeouts are used here.
    """

    def __init__(self, options: ClientOptions) -> None:
        self.timeout = options.timeout
        self.connect_timeout = options.connect_timeout
        self._closed = ""  # why, once it is
        self._pending: dict[object, Callable[[], None]] = {}
        process.in_child(self._leave_to_parent)

    # ---- what `OneServer` and `Cluster` implement ----

    @property
    @abstractmethod
    def opened(self) -> bool:
        """Whether requests can be sent without connecting first; never blocks.

        Raises
        ------
        ServerRestartedError
            If a server has another storage than it had.
        """

    @abstractmethod
    def open_sync(self, timeout: float | None = None) -> None:
        """Connect, blocking.

        Parameters
        ----------
        timeout : float, optional
            In place of the channel's.

        Raises
        ------
        ConnectError
            If no server could be reached or used, or they are not a whole set.
        ServerRestartedError
            If a server has another storage than it had.
        """

    @abstractmethod
    def begin(self, request: Request[Any], queue: Queue | None) -> Operation:
        """Start a request over an open channel, in any thread; never blocks.

        Parameters
        ----------
        request : Request
        queue : Queue or None
            Where the operation completes; ``None`` if a thread waits for it.
        """

    @abstractmethod
    def ask_each_sync(
        self, request: Request[None], timeout: float | None = None
    ) -> list[UcxStoreError | None]:
        """Send a request to each server, all at once, and return the failure of each.

        Parameters
        ----------
        request : Request
        timeout : float, optional
            In place of the channel's.
        """

    def see(self, key: str, out: object) -> int | None:
        """Copy a whole value that can be seen from here, in shared memory; never blocks.

        Parameters
        ----------
        key : str
        out : buffer
            Writable and C-contiguous.

        Returns
        -------
        int or None
            Its size; ``None`` where it cannot be seen, or `out` does not do for it: then a request
            tells.
        """
        return None

    def see_value(self, key: str) -> bytearray | None:
        """Return a copy of a small value that can be seen from here; never blocks.

        Parameters
        ----------
        key : str

        Returns
        -------
        bytearray or None
            ``None`` where the value cannot be seen, or is large: then a request tells.
        """
        return None

    def hold(self, key: str) -> "npt.NDArray[np.uint8] | None":
        """Return a whole value where it lies in shared memory; never blocks.

        Parameters
        ----------
        key : str

        Returns
        -------
        ndarray or None
            It cannot be written to, and stays as it is for as long as it is there. ``None`` where
            the value cannot be seen from here: then a request tells.
        """
        return None

    def map_file(self, key: str, *, waits: bool) -> "npt.NDArray[np.uint8] | None":
        """Return a whole value as a mapping of its file, in a directory of a server of this host.

        Parameters
        ----------
        key : str
        waits : bool
            Whether it may wait for the disk to open the file.

        Returns
        -------
        ndarray or None
            It cannot be written to. ``None`` where the file cannot be opened from here: then a
            request tells.
        """
        return None

    def allocate(self, key: str, nbytes: int) -> "Allocation | None":
        """Return memory for a value that the key's server can take over; it must be open.

        ``None`` where none can: then any memory does.
        """
        return None

    @property
    def keeps_copies(self) -> bool:
        """Whether each of several servers has a copy of the metadata; known once open."""
        return False

    @property
    def decodes(self) -> bool:
        """Whether the servers decode values for their readers; known once open."""
        return False

    @abstractmethod
    def accept_restarted(self) -> None:
        """Rely on servers as they are now, whatever values they have lost.

        Raises
        ------
        ConnectError
            If one of several does not keep the new record of their set.
        """

    # ---- what stores and pipelines use ----

    async def open(self) -> None:
        """Connect if that is needed; see `open_sync`."""
        if not self.opened:
            self.check_open()
            await asyncio.to_thread(self.open_sync)
        self.check_open()

    async def ask[T](self, request: Request[T]) -> T:
        """Send a request, and return the answer.

        If it is cancelled, it cancels the request, and raises once that has ended: only then may
        the caller use the memory of the request again.
        """
        if not self.opened:
            await self.open()
        flight = Flight(self)
        flight.start(request)
        await flight.settle()
        (answer,) = flight.results()
        return cast(T, answer)

    def ask_sync[T](self, request: Request[T]) -> T:
        """Do as `ask`, blocking."""
        if not self.opened:
            self.check_open()
            self.open_sync()
        self.check_open()
        try:
            return cast(T, self._wait(self.begin(request, None)))
        except BaseException:
            # An interrupt may have come between the start and the wait: wait for this one, too.
            from ucxstore.base.native import core

            core.Operation.end_unwaited()
            raise

    def _wait(self, operation: Operation) -> Any:
        if operation.done:
            return operation.wait()
        self.track(operation, operation.cancel)
        try:
            return operation.wait()
        except OperationCancelledError:
            self.check_open()
            raise
        finally:
            self.untrack(operation)

    def flight(self) -> "Flight":
        """Return a context for many requests at once."""
        return Flight(self)

    # ---- its end ----

    def close(self, why: str) -> None:
        """Refuse all that follows, and cancel what is under way; never blocks.

        Both raise `StoreClosedError` to their callers. What is under way does so once nothing of it
        is in flight any more. An attempt to connect goes on to its end first, since other stores
        may wait for it, too.

        Parameters
        ----------
        why : str
            The message of that error.
        """
        self._closed = why
        for cancel in list(self._pending.values()):
            cancel()

    def check_open(self) -> None:
        """Raise `StoreClosedError` if it was closed."""
        if self._closed:
            raise StoreClosedError(self._closed)

    def track(self, pending: object, cancel: Callable[[], None]) -> None:
        """Call `cancel` if the channel is closed before `untrack`, and at once if it is already.

        Parameters
        ----------
        pending : object
            What is under way.
        cancel : callable
            Called in the thread that closes the channel. It must not block, nor raise.
        """
        self._pending[pending] = cancel
        if self._closed:
            cancel()

    def untrack(self, pending: object) -> None:
        """Forget what has ended."""
        self._pending.pop(pending, None)

    def _leave_to_parent(self) -> None:
        """In a forked child: what is under way is the parent's."""
        self._pending = {}


class Flight:
    """Requests in flight. As an asynchronous context, it waits for all of them at its end.

    Entering it opens the channel. An exception inside, cancellation too, cancels the requests.
    """

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._loop = asyncio.get_running_loop()
        self._queue = current_queue()
        self._operations: list[Operation] = []
        self._endings: list[Ending] = []  # of those that had not ended at once

    def start(self, request: Request[Any]) -> None:
        """Send a request over the open channel."""
        self._channel.check_open()
        operation = self._channel.begin(request, self._queue)
        self._operations.append(operation)
        if not operation.done:  # else no queue reports it: what was seen in shared memory, say
            ending = Ending()
            self._endings.append(ending)
            self._queue.listen(operation, ending.set)
            self._channel.track(self, self._cancel_from_anywhere)

    def results(self) -> list[Any]:
        """Return the answers to all, in the order of their start, or raise the first failure.

        Call it after the context.
        """
        try:
            return [operation.result() for operation in self._operations]
        except Exception as error:
            self._discard()
            if isinstance(error, OperationCancelledError):
                self._channel.check_open()
            raise

    async def settle(self) -> None:
        """Wait until all have ended, also those that fail.

        If it is cancelled, it cancels them, and raises once they have ended.
        """
        cancelled: asyncio.CancelledError | None = None
        try:
            for ending in self._endings:
                cancelled = await ending.wait(self._cancel) or cancelled
        finally:
            self._channel.untrack(self)
        if cancelled is not None:
            self._discard()
            try:
                raise cancelled
            finally:
                # Avoid a cycle: its traceback refers to this frame, and to the caller's memory.
                del cancelled

    def _cancel(self) -> None:
        for operation in self._operations:
            operation.cancel()

    def _cancel_from_anywhere(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._cancel)

    def _discard(self) -> None:
        """Take unwanted results: until then, the core keeps the operations' memory."""
        for operation in self._operations:
            with contextlib.suppress(Exception):
                operation.result()

    async def __aenter__(self) -> Self:
        await self._channel.open()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._cancel()
        await self.settle()
        if kind is not None:
            self._discard()
