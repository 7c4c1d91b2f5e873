"""`Order`: changes of a key one after another."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager

type _Ends = set[asyncio.Future[None]]


class Order:
    """Changes of each key one after another, first come first served. For one event loop.

    A change waits for the end of those before it, for as long as the source answers any call.

    Parameters
    ----------
    patience : float
        Seconds in which the source answers nothing, after which a change fails that waits.
    answered : callable
        Returns when the source has answered last.
    """

    def __init__(self, patience: float, answered: Callable[[], float]) -> None:
        self._patience = patience
        self._answered = answered
        self._last: dict[str, asyncio.Future[None]] = {}  # ends with the last change of a key
        self._removals: dict[asyncio.Future[None], tuple[str, Callable[[], bool]]] = {}

    @asynccontextmanager
    async def of_keys(self, keys: Sequence[str]) -> AsyncIterator[bool]:
        """Wait until earlier changes of these keys have ended; later ones wait for this one.

        It tells whether this one had to wait.

        Raises
        ------
        TimeoutError
            If the source answers nothing meanwhile.
        """
        end = asyncio.get_running_loop().create_future()
        before = {self._last[key] for key in keys if key in self._last}
        if self._removals:
            before |= self._unwanted(keys)
        for key in keys:
            self._last[key] = end
        try:
            await self._wait(before)
            yield bool(before)
        finally:
            self._end(keys, end, before)

    @asynccontextmanager
    async def of_prefix(self, prefix: str, wanted: Callable[[], bool]) -> AsyncIterator[bool]:
        """Wait until earlier changes of keys with a prefix have ended.

        Later ones go on meanwhile, since a removal may take long; but they wait for one that nobody
        wants any more.

        Parameters
        ----------
        prefix : str
        wanted : callable
            Tells whether anybody waits for the removal.
        """
        end = asyncio.get_running_loop().create_future()
        before = {last for key, last in self._last.items() if key.startswith(prefix)}
        self._removals[end] = prefix, wanted
        try:
            await self._wait(before)
            yield bool(before)
        finally:
            del self._removals[end]
            end.set_result(None)

    def _unwanted(self, keys: Iterable[str]) -> _Ends:
        """Return the ends of removals that nobody wants any more, and which remove these keys."""
        return {
            end
            for end, (prefix, wanted) in self._removals.items()
            if any(key.startswith(prefix) for key in keys) and not wanted()
        }

    async def _wait(self, before: _Ends) -> None:
        if not before:
            return
        loop = asyncio.get_running_loop()
        since = loop.time()
        while before := {one for one in before if not one.done()}:
            left = max(since, self._answered()) + self._patience - loop.time()
            if left <= 0:
                raise TimeoutError(
                    f"the source has answered nothing for {self._patience:g} s, and this change "
                    "waited for earlier ones of its key"
                )
            await asyncio.wait(before, timeout=left)

    def _end(self, keys: Iterable[str], end: asyncio.Future[None], before: _Ends) -> None:
        """Let later changes go on, once those before this one have ended, too."""
        left = [one for one in before if not one.done()]
        if left:
            asyncio.gather(*left).add_done_callback(lambda _: self._end(keys, end, set()))
            return
        end.set_result(None)
        for key in keys:
            if self._last.get(key) is end:
                del self._last[key]
