"""`Turns`: let so many calls go to a source at once, while the others wait."""

import asyncio
import itertools

from ucxstore.base.native import core

# A session of a client and its origin, as the core names them.
type Whose = tuple[str, int]


class Turns:
    """Turns of calls to a source, among origins and among the sessions of each, as in the core.

    Only for its event loop. A call waits for as long as the source answers others. It fails once it
    has waited for `patience` seconds in which the source has answered nothing: then it would not
    answer this call either.

    Parameters
    ----------
    count : int
        Calls that have their turn at once. Origins of which none has, and sessions, have an eighth
        more each: so nobody waits until others have ended what takes long.
    patience : float
        Seconds.
    """

    def __init__(self, count: int, patience: float) -> None:
        self._steps = (count, count + -(-count // 8), count + 2 * -(-count // 8))
        self._patience = patience
        self._queue = core.FairQueue()
        self._numbers = itertools.count()
        self._waiting: dict[int, tuple[float, asyncio.Future[None]]] = {}  # since when
        self._running = 0
        self._answered = 0.0
        self._timer: asyncio.TimerHandle | None = None

    async def take(self, whose: Whose) -> None:
        """Wait for a turn.

        Parameters
        ----------
        whose : tuple of str and int
            The session that the call is for, and its origin.

        Raises
        ------
        TimeoutError
            If the source answers nothing meanwhile.
        """
        loop = asyncio.get_running_loop()
        number = next(self._numbers)
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting[number] = loop.time(), turn
        self._queue.push(whose, number)
        self._grant()
        if not turn.done() and self._timer is None:
            self._look(loop)
        try:
            await turn
        except asyncio.CancelledError:
            self._waiting.pop(number, None)
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self.give(whose, 0.0, answered=False)
            raise

    def give(self, whose: Whose, seconds: float, *, answered: bool) -> None:
        """Give a turn back.

        Parameters
        ----------
        whose : tuple of str and int
            As for `take`.
        seconds : float
            How long it was.
        answered : bool
            Whether the source has answered the call, be it with a failure.
        """
        if answered:
            self._answered = asyncio.get_running_loop().time()
        self._queue.end(whose, seconds)
        self._running -= 1
        self._grant()

    def _grant(self) -> None:
        while True:
            step = sum(self._running >= count for count in self._steps)
            taken = None if step == len(self._steps) else self._queue.take(step)
            if taken is None:
                return
            whose, number = taken
            _, turn = self._waiting.pop(number, (0.0, None))
            if turn is None or turn.done():  # it has failed, or is cancelled
                self._queue.end(whose, 0.0)
            else:
                self._running += 1
                turn.set_result(None)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Fail those that have waited for too long, and look again when the next one may have."""
        self._timer = None
        for number, (since, turn) in list(self._waiting.items()):
            end = max(since, self._answered) + self._patience
            if not turn.done() and loop.time() < end:
                self._timer = loop.call_at(end, self._look, loop)
                return
            del self._waiting[number]
            if not turn.done():
                turn.set_exception(
                    TimeoutError(
                        f"the source has answered nothing for {self._patience:g} s, and this "
                        "request waited behind others"
                    )
                )
