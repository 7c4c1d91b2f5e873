"""`Turns`: let so many calls go to a source at once, while the others wait in order."""

import asyncio
from collections import deque


class Turns:
    """Turns of calls to a source, first come first served. Only for its event loop.

    A call waits for as long as the source answers others. It fails once it has waited for
    `patience` seconds in which the source has answered nothing: then it would not answer this call
    either.

    Parameters
    ----------
    count : int
        Calls that have their turn at once.
    patience : float
        Seconds.
    """

    def __init__(self, count: int, patience: float) -> None:
        self._free = count
        self._patience = patience
        self._waiting: deque[tuple[float, asyncio.Future[None]]] = deque()  # since when
        self._answered = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def answered_at(self) -> float:
        """Return when the source has answered last, by the event loop's clock."""
        return self._answered

    async def take(self) -> None:
        """Wait for a turn.

        Raises
        ------
        TimeoutError
            If the source answers nothing meanwhile.
        """
        if self._free > 0:
            self._free -= 1
            return
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append((loop.time(), turn))
        if self._timer is None:
            self._look(loop)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self.give(answered=False)
            raise

    def give(self, *, answered: bool) -> None:
        """Give a turn back.

        Parameters
        ----------
        answered : bool
            Whether the source has answered the call, be it with a failure.
        """
        if answered:
            self._answered = asyncio.get_running_loop().time()
        while self._waiting:
            _, turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Fail those that have waited for too long, and look again when the next one may have."""
        self._timer = None
        while self._waiting:
            since, turn = self._waiting[0]
            end = max(since, self._answered) + self._patience
            if not turn.done() and loop.time() < end:
                self._timer = loop.call_at(end, self._look, loop)
                return
            self._waiting.popleft()
            if not turn.done():
                turn.set_exception(
                    TimeoutError(
                        f"the source has answered nothing for {self._patience:g} s, and this "
                        "request waited behind others"
                    )
                )
