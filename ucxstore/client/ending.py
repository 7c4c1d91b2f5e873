"""`Ending`: wait for the end of something, even if the waiting task is cancelled."""

import asyncio
from collections.abc import Callable


class Ending:
    """Something that ends once, and the task that waits for it. Use it in the loop's thread."""

    __slots__ = ("_future", "is_set")

    def __init__(self) -> None:
        self._future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.is_set = False

    def set(self) -> None:
        """Wake the task that waits for the end."""
        self.is_set = True
        if not self._future.done():
            self._future.set_result(None)

    async def wait(self, cancel: Callable[[], object]) -> asyncio.CancelledError | None:
        """Wait for the end. If the task is cancelled, call `cancel` and go on waiting.

        Parameters
        ----------
        cancel : callable
            Called each time that the waiting task is cancelled.

        Returns
        -------
        CancelledError or None
            The cancellation of the task, for the caller to raise.
        """
        cancelled: asyncio.CancelledError | None = None
        try:
            while not self.is_set:
                try:
                    await self._future
                except asyncio.CancelledError as error:
                    cancelled = error
                    cancel()
                    if self._future.cancelled():
                        self._future = asyncio.get_running_loop().create_future()
            return cancelled
        finally:
            del cancelled  # avoid a cycle: its traceback refers to this frame
