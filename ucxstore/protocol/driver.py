"""Carry out the steps of a handshake, by whatever sends and receives."""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from ucxstore.protocol.handshake import ReceivedBytes, Send, Steps

type SendAll = Callable[[bytes], Awaitable[object]]
"""Sends all of some bytes."""

type ReceiveSome = Callable[[int], Awaitable[bytes]]
"""Receives at least one byte, and at most so many; none if the peer has closed the connection."""


async def carry_out[T](
    steps: Steps[T],
    send: SendAll,
    receive: ReceiveSome,
    *,
    heard: Callable[[ReceivedBytes], object] = lambda _: None,
    late: str = "",
) -> T:
    """Send and receive what the steps yield, and return their result.

    Parameters
    ----------
    steps : Steps
    send, receive : callable
        Asynchronous; for calls that block, see `without_waiting`.
    heard : callable
        Told what each `Receive` has got, before the steps go on.
    late : str
        When bytes should have come, for the message where `receive` raises `TimeoutError`: "within
        5 s". Without it, that goes to the caller.
    """
    try:
        step = next(steps)
        while True:
            if isinstance(step, Send):
                await send(step.data)
                received = ReceivedBytes()
            else:
                received = await _receive(receive, step.size, late)
                heard(received)
            step = steps.send(received)
    except StopIteration as stop:
        result: T = stop.value
        return result


def without_waiting[T](coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine in which each call blocks, so that it is never suspended."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    raise RuntimeError("the coroutine waits for an event loop")


async def _receive(receive: ReceiveSome, size: int, late: str) -> ReceivedBytes:
    data = b""
    try:
        while len(data) < size:
            part = await receive(size - len(data))
            if not part:
                return ReceivedBytes(data, "closed the connection")
            data += part
    except ConnectionError:
        return ReceivedBytes(data, "reset the connection")
    except TimeoutError:
        if not late:
            raise
        return ReceivedBytes(data, f"sent {'no more' if data else 'nothing'} {late}")
    return ReceivedBytes(data)
