"""`Queue`: report completed operations to their listeners, in an event loop or a thread."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary

from ucxstore.base import process

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


class Queue:
    """The operations that listeners wait for.

    An operation that is started with `native` as its completions must be given to `listen` before
    the next `drain`. Calls must not overlap; they may come from different threads.
    """

    def __init__(self) -> None:
        from ucxstore.base.native import core  # not before it is needed

        self.native: Completions = core.Completions()
        self._listeners: dict[Operation, Callable[[], None]] = {}

    def listen(self, operation: Operation, listener: Callable[[], None]) -> None:
        """Call `listener` once an operation, which was just started, has ended."""
        self._listeners[operation] = listener

    def tell(self, operation: Operation) -> None:
        """Call the listener of an operation that has ended, if there is one."""
        listener = self._listeners.pop(operation, None)
        if listener is not None:
            listener()

    def drain(self) -> None:
        """Call the listeners of all operations that have ended."""
        for operation in self.native.drain():
            self.tell(operation)


class LoopQueue(Queue):
    """The queue of one event loop, which drains it. Use it in the loop's thread only."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        loop.add_reader(self.native.fileno(), self.drain)


_queues: WeakKeyDictionary[asyncio.AbstractEventLoop, LoopQueue] = WeakKeyDictionary()
_lock = process.lock()


def current_queue() -> LoopQueue:
    """Return the queue of the running event loop."""
    loop = asyncio.get_running_loop()
    queue = _queues.get(loop)
    if queue is None:
        with _lock:
            # A closed loop, and its queue's descriptor, may live on in a reference cycle.
            for other in list(_queues):
                if other.is_closed():
                    del _queues[other]
            queue = _queues[loop] = LoopQueue(loop)
    return queue


def _forget_in_child() -> None:
    """Drop the parent's queues. Its loops are left alone: they share the parent's epoll."""
    global _queues
    _queues = WeakKeyDictionary()


process.in_child(_forget_in_child)
