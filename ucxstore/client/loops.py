"""Tell event loops of the ends of operations, many at a time."""

import asyncio
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary

from ucxstore import process

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
    """The ends of operations, and who is told of each.

    An operation that is started with `native` as its completions must be given to `listen` before
    the next `drain`. Calls must not overlap; they may come from different threads.
    """

    def __init__(self) -> None:
        from ucxstore._native import core  # not before it is needed

        self.native: Completions = core.Completions()
        self._listeners: dict[Operation, Callable[[], None]] = {}

    def listen(self, operation: Operation, listener: Callable[[], None]) -> None:
        """Call `listener` once an operation, which was just started, has ended."""
        self._listeners[operation] = listener

    def tell(self, operation: Operation) -> None:
        """Tell whoever listens that an operation has ended."""
        listener = self._listeners.pop(operation, None)
        if listener is not None:
            listener()

    def drain(self) -> None:
        """Tell of all operations that have ended."""
        for operation in self.native.drain():
            self.tell(operation)


class LoopQueue(Queue):
    """The ends of the operations of one event loop, which get there a batch at a time.

    All of it is used in the loop's thread.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        loop.add_reader(self.native.fileno(), self.drain)


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
