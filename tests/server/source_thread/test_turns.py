"""Turns at a source, where waiting for one is cancelled."""

import asyncio

import pytest

from tests.eventually import loop_turns
from ucxstore.server.source_thread.turns import Turns


def test_who_is_cancelled_as_his_wait_fails_gives_nothing_back() -> None:
    async def run() -> None:
        turns = Turns(1, 60)
        await turns.take(("", 0))
        waiting = asyncio.create_task(turns.take(("", 0)))
        await loop_turns()
        ((_, turn),) = turns._waiting.values()
        turn.set_exception(TimeoutError("no answer"))
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(turns.take(("", 0)), 0.05)  # the only turn is still taken
        turns.give(("", 0), 0.0, answered=True)
        await asyncio.wait_for(turns.take(("", 0)), 5)

    asyncio.run(run())
