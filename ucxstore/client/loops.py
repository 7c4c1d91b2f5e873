"""Await operations in an event loop, which hears of their ends many at a time."""

import asyncio
import contextlib
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self
from weakref import WeakKeyDictionary

from ucxstore import process
from ucxstore.client.ending import Ending

if TYPE_CHECKING:
    from ucxstore._core import Completions


class Operation(Protocol):
    """One operation in flight: a native one, or those of several servers gathered."""

    @property
    def done(self) -> bool:
        """Whether it has ended."""

    def wait(self) -> Any:
        """Block until it is done, and return its result or raise its failure."""

    def result(self) -> Any:
        """Return its result, or raise its failure; once it is done."""

    def cancel(self) -> None:
        """Cancel it. It is done once nothing of it is in flight any more."""


class Listener(Protocol):
    """What is told when an operation is done."""

    def tell(self) -> None:
        """Be told, in the loop's thread."""


class LoopQueue:
    """The completions of one event loop, which get there a batch at a time.

    Operations are started with `native` as their completions, and given to `complete` or to
    `Pending.add` before the loop gets to run. All of this happens in the loop's thread.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        from ucxstore._native import core  # not before it is needed

        self.native: Completions = core.Completions()
        self._listeners: dict[Operation, Listener] = {}
        loop.add_reader(self.native.fileno(), self._drain)

    async def complete(self, operation: Operation) -> Any:
        """Wait for an operation that was just started, and return its result.

        Cancelled, it cancels the operation and sees it complete before it raises, however often
        it is cancelled: only then is the operation's memory the caller's again.
        """
        if not operation.done:
            pending = Pending(self)
            pending.add(operation)
            await pending.settle()
        return operation.result()

    def expect(self, operation: Operation) -> "_Waiter":
        """Return what will be told that the operation is complete."""
        waiter = _Waiter(operation, Ending())
        if operation.done:  # a joined one, which is never done by itself later
            waiter.tell()
        else:
            self._listeners[operation] = waiter
        return waiter

    def listen(self, operation: Operation, listener: Listener) -> None:
        """Have a listener told that an operation, which was just started, is complete."""
        self._listeners[operation] = listener

    def tell(self, operation: Operation) -> None:
        """Tell whoever listens that an operation is complete."""
        listener = self._listeners.pop(operation, None)
        if listener is not None:
            listener.tell()

    def _drain(self) -> None:
        for operation in self.native.drain():
            self.tell(operation)


@dataclass(slots=True)
class _Waiter:
    operation: Operation
    end: Ending

    def tell(self) -> None:
        self.end.set()


class Pending:
    """Operations in flight. Leaving it, as an asynchronous context, sees all of them complete.

    An exception inside, cancellation too, cancels them first.
    """

    def __init__(self, queue: LoopQueue) -> None:
        self._queue = queue
        self._waiters: list[_Waiter] = []

    def add(self, operation: Operation) -> None:
        """Take an operation that was just started with the queue's completions."""
        self._waiters.append(self._queue.expect(operation))

    def results(self) -> list[Any]:
        """Return the results of all, in their order, or raise the first failure."""
        try:
            return [waiter.operation.result() for waiter in self._waiters]
        except Exception:
            self._discard()
            raise

    async def settle(self) -> None:
        """Wait until all are complete, whatever became of them.

        Cancelled, it cancels them, and raises once they are complete.
        """
        cancelled: asyncio.CancelledError | None = None
        for waiter in self._waiters:
            cancelled = await waiter.end.wait(self._cancel) or cancelled
        if cancelled is not None:
            self._discard()
            try:
                raise cancelled
            finally:
                # Its traceback refers to this frame, and so to the caller's memory: no cycle.
                del cancelled

    def _cancel(self) -> None:
        for waiter in self._waiters:
            waiter.operation.cancel()

    def _discard(self) -> None:
        """Take results that nobody wants: until then, the core keeps the operations' memory."""
        for waiter in self._waiters:
            with contextlib.suppress(Exception):
                waiter.operation.result()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._cancel()
        await self.settle()
        if kind is not None:
            self._discard()


_queues: WeakKeyDictionary[asyncio.AbstractEventLoop, LoopQueue] = WeakKeyDictionary()
_lock = threading.Lock()


def current_queue() -> LoopQueue:
    """Return the queue of the running event loop."""
    loop = asyncio.get_running_loop()
    queue = _queues.get(loop)
    if queue is None:
        with _lock:
            # A closed loop may live on for long in some reference cycle, and its descriptor too.
            for other in list(_queues):
                if other.is_closed():
                    del _queues[other]
            queue = _queues[loop] = LoopQueue(loop)
    return queue


def _forget_in_child() -> None:
    """Drop the parent's queues, without a call to its loops: their epoll is the parent's too."""
    global _queues, _lock
    _queues = WeakKeyDictionary()
    _lock = threading.Lock()


process.in_child(_forget_in_child)
