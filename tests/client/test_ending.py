import asyncio

from tests.eventually import eventually_async, loop_turns
from ucxstore.client.ending import Ending


async def test_what_has_ended_is_not_waited_for() -> None:
    end = Ending()
    end.set()
    assert await end.wait(lambda: None) is None


async def test_a_wait_goes_on_however_often_it_is_cancelled() -> None:
    end = Ending()
    asked: list[int] = []
    waiting = asyncio.create_task(end.wait(lambda: asked.append(1)))
    await loop_turns()  # it waits
    for times in (1, 2, 3):
        waiting.cancel(f"for the {times}. time")
        await eventually_async(lambda least=times: len(asked) >= least, pause=0)
        assert not waiting.done()
    end.set()
    cancelled = await waiting
    assert cancelled is not None
    assert cancelled.args == ("for the 3. time",)


async def test_an_end_that_comes_with_the_cancellation_is_seen() -> None:
    end = Ending()
    waiting = asyncio.create_task(end.wait(lambda: None))
    await loop_turns()
    end.set()
    waiting.cancel()
    assert isinstance(await waiting, asyncio.CancelledError)
