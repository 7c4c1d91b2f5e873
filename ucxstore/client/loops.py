"""`Queue`: report completed operations to their listeners, in an event loop or a thread."""

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary, ref

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


class Queue(ABC):
    """The operations that listeners wait for.

    An operation that is started with `native` as its completions must be given to `listen` before
    the next `drain`. Calls must not overlap, but for `post`; they may come from different threads.
    """

    def __init__(self) -> None:
        from ucxstore.base.native import core  # not before it is needed

        self.native: Completions = core.Completions()
        self._listeners: dict[Operation, Callable[[], None]] = {}
        self._posted: deque[Operation] = deque()

    @abstractmethod
    def wake(self) -> None:
        """Have `drain` called soon, from any thread, as when a native operation has ended."""

    def listen(self, operation: Operation, listener: Callable[[], None]) -> None:
        """Call `listener` once an operation, which was just started, has ended."""
        self._listeners[operation] = listener

    def tell(self, operation: Operation) -> None:
        """Call the listener of an operation that has ended, if there is one."""
        listener = self._listeners.pop(operation, None)
        if listener is not None:
            listener()

    def post(self, operation: Operation) -> None:
        """Report an operation that has ended and is not the core's, from any thread."""
        self._posted.append(operation)
        self.wake()

    def drain(self) -> None:
        """Call the listeners of all operations that have ended."""
        for operation in self.native.drain():
            self.tell(operation)
        while self._posted:
            self.tell(self._posted.popleft())


class LoopQueue(Queue):
    """The queue of one event loop, which drains it. Use it in the loop's thread only."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._loop = ref(loop)  # which takes its queue along when it goes
        loop.add_reader(self.native.fileno(), self.drain)

    def wake(self) -> None:
        loop = self._loop()
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # it is closed: nobody waits any more
                loop.call_soon_threadsafe(self.drain)


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
