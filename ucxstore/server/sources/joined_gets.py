"""`JoinedGets`: gets of small values that are asked for in one request."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from ucxstore.client import requests
from ucxstore.client.byte_ranges import NativeRange
from ucxstore.client.requests import ANY_VERSION, Found, Request

type Ask = Callable[[Request[list[Found | None]]], Awaitable[list[Found | None]]]

# Values in one request, and about so many bytes. A request of many values ends with its last one,
# so it is not to be long, and large values go by themselves.
_MOST = 16
_MOST_BYTES = 1 << 20

# The weight of a value's size in the average.
_WEIGHT = 0.1


class _Waiting(NamedTuple):
    key: str
    ranges: list[NativeRange]
    version: int
    answer: "asyncio.Future[Found | None]"


class JoinedGets:
    """Gets of one step of the event loop go in common requests.

    To send a request, and to wait for it, takes longer than to move a small value. How many go
    together depends on how large the last ones were.

    Parameters
    ----------
    ask : callable
        Sends a request.
    """

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._waiting: list[_Waiting] = []
        self._usual = float(_MOST_BYTES)  # bytes of an answer
        self._tasks: set[asyncio.Task[None]] = set()

    async def get(
        self, key: str, ranges: list[NativeRange], version: int = ANY_VERSION
    ) -> Found | None:
        """Read a value, or a part of it, as `requests.get` does."""
        loop = asyncio.get_running_loop()
        one = _Waiting(key, ranges, version, loop.create_future())
        if not self._waiting:
            loop.call_soon(self._send)
        self._waiting.append(one)
        return await one.answer

    def _send(self) -> None:
        waiting, self._waiting = self._waiting, []
        most = max(1, min(_MOST, int(_MOST_BYTES / max(self._usual, 1.0))))
        for begin in range(0, len(waiting), most):
            task = asyncio.ensure_future(self._carry_out(waiting[begin : begin + most]))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            _cancel_if_unwanted(task, waiting[begin : begin + most])

    async def _carry_out(self, some: list[_Waiting]) -> None:
        try:
            found = await self._ask(
                requests.get(
                    [one.key for one in some],
                    [one.ranges for one in some],
                    [one.version for one in some],
                )
            )
        except Exception as error:
            if len(some) == 1:
                _fail(some[0], error)
                return
            # Each by itself: only those that fail alone have failed.
            await asyncio.gather(*(self._carry_out([one]) for one in some))
            return
        for one, value in zip(some, found, strict=True):
            if value is not None and value[0] is not None:
                self._usual += _WEIGHT * (value[0].nbytes - self._usual)
            if not one.answer.done():
                one.answer.set_result(value)


def _fail(one: _Waiting, error: Exception) -> None:
    if not one.answer.done():
        one.answer.set_exception(error)


def _cancel_if_unwanted(task: "asyncio.Task[None]", some: list[_Waiting]) -> None:
    """Cancel a request once nobody waits for any of its values."""

    def look(_: object) -> None:
        if all(one.answer.cancelled() for one in some):
            task.cancel()

    for one in some:
        one.answer.add_done_callback(look)
