"""Waiting for what happens in another thread or process, and for what is not to happen.

Nothing else in tests sleeps (`tests/test_house.py`).
"""

import asyncio
import time
from collections.abc import Callable


def eventually(
    condition: Callable[[], object],
    seconds: float = 60.0,
    pause: float = 0.005,
    why: str | Callable[[], str] = "",
) -> None:
    """Wait until `condition` holds, looking every `pause` seconds; fail after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, _said(why) or f"still not so after {seconds:g} s"
        time.sleep(pause)


async def eventually_async(
    condition: Callable[[], object], seconds: float = 60.0, pause: float = 0.005
) -> None:
    """Do as `eventually`, and let the event loop run meanwhile."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"still not so after {seconds:g} s"
        await asyncio.sleep(pause)


def nothing_happens(seconds: float) -> None:
    """Let time pass in which nothing is waited for: something takes it, or is not to happen."""
    time.sleep(seconds)


async def nothing_happens_async(seconds: float) -> None:
    """Do as `nothing_happens`, and let the event loop run meanwhile."""
    await asyncio.sleep(seconds)


async def loop_turns(times: int = 1) -> None:
    """Let the event loop do once, or `times` times, what is ready."""
    for _ in range(times):
        await asyncio.sleep(0)


def _said(why: str | Callable[[], str]) -> str:
    return why if isinstance(why, str) else why()
