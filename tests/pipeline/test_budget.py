import asyncio
import os
import threading

import pytest

from tests.eventually import loop_turns, nothing_happens_async
from ucxstore.pipeline.budget import Budget


async def test_what_is_free_is_granted_at_once() -> None:
    budget = Budget(100)
    one = await budget.claim(60)
    two = await budget.claim(40)
    assert budget.in_use == 100
    one.release()
    one.release()  # once is enough
    assert budget.in_use == 40
    two.resize(10)
    assert budget.in_use == 10
    with await budget.claim(90):
        assert budget.in_use == 100
    two.release()
    assert budget.in_use == 0


async def test_others_wait_their_turn() -> None:
    budget = Budget(100)
    first = await budget.claim(80)
    large = asyncio.ensure_future(budget.claim(90))
    small = asyncio.ensure_future(budget.claim(10))
    await nothing_happens_async(0.01)
    assert not large.done()
    assert not small.done()  # though there is room: the large one would never get its turn
    first.release()
    claims = await large, await small
    assert budget.in_use == 100
    for claim in claims:
        claim.release()
    assert budget.in_use == 0


async def test_what_turns_out_larger_keeps_others_waiting() -> None:
    budget = Budget(100)
    first, second = await budget.claim(10), await budget.claim(10)
    first.resize(95)
    assert budget.in_use == 105
    waiting = asyncio.ensure_future(budget.claim(1))
    second.release()
    first.resize(1000)  # no claim is larger than all there is
    assert budget.in_use == 100
    await loop_turns()
    assert not waiting.done()
    first.release()
    (await waiting).release()
    assert budget.in_use == 0


async def test_more_than_there_is_waits_for_all_of_it() -> None:
    budget = Budget(100)
    small = await budget.claim(1)
    large = asyncio.ensure_future(budget.claim(1000))
    await nothing_happens_async(0.01)
    assert not large.done()
    small.release()
    claim = await large
    assert budget.in_use == 100
    claim.release()
    assert budget.in_use == 0


@pytest.mark.parametrize("granted", [False, True])
async def test_who_is_cancelled_takes_nothing(granted: bool) -> None:
    budget = Budget(100)
    first = await budget.claim(100)
    waiting = asyncio.ensure_future(budget.claim(100))
    behind = asyncio.ensure_future(budget.claim(50))
    await loop_turns()
    if granted:
        first.release()  # and its task has not run since
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    first.release()
    (await behind).release()
    assert budget.in_use == 0


def test_event_loops_share_it() -> None:
    budget = Budget(1000)
    most = []

    async def use() -> None:
        for _ in range(200):
            with await budget.claim(600):
                most.append(budget.in_use)
                await loop_turns()

    threads = [threading.Thread(target=asyncio.run, args=(use(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(most) == 800
    assert max(most) == 600
    assert budget.in_use == 0


def test_a_loop_that_is_closed_gets_nothing() -> None:
    budget = Budget(100)
    loop = asyncio.new_event_loop()
    first = loop.run_until_complete(budget.claim(100))
    waiting = loop.create_task(budget.claim(100))
    loop.run_until_complete(loop_turns())
    loop.close()
    first.release()
    assert budget.in_use == 0
    waiting._log_destroy_pending = False  # type: ignore[attr-defined]
    coroutine = waiting.get_coro()
    assert coroutine is not None
    coroutine.close()
    assert budget.in_use == 0


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_a_forked_child_has_all_of_it() -> None:
    budget = Budget(100)
    claim = asyncio.run(budget.claim(70))
    child = os.fork()
    if child == 0:
        os._exit(budget.in_use)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert budget.in_use == 70
    claim.release()
