"""`Tasks`: the tasks of an event loop that nobody waits for."""

import asyncio
from collections.abc import Coroutine


class Tasks:
    """Tasks of the running event loop, kept until they end: the loop itself may lose them."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, coroutine: Coroutine[object, object, None]) -> asyncio.Task[None]:
        """Run a coroutine in a task."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def cancel(self) -> None:
        """Cancel all that have not ended."""
        for task in list(self._tasks):
            task.cancel()
