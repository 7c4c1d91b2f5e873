"""A feed gives threads work, and tells its event loop no more often than it must."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from ucxstore.pipeline import feed as feed_module
from ucxstore.pipeline.budget import Budget
from ucxstore.pipeline.feed import Feed
from ucxstore.pipeline.jobs import Jobs

SECONDS = 20


class Wanted:
    """A group of a few bytes."""

    def __init__(self, number: int, limit: int = 1) -> None:
        self.number = number
        self.limit = limit


async def test_a_thread_goes_on_until_there_is_nothing() -> None:
    done: list[int] = []
    feed = Feed(done.append, threads=1, most=10)
    sent = [feed.bring(number) for number in range(1, 4)]
    assert sent == [True, False, False]  # one thread there may be, and it does all
    assert not await asyncio.to_thread(feed.work_on)
    assert done == [1, 2, 3]
    assert feed.bring(4)  # it had ended, so one is needed anew
    assert not feed.work_on()
    assert done == [1, 2, 3, 4]
    assert feed.rest() == []


async def test_those_who_bring_wait_until_half_of_it_is_done() -> None:
    done: list[int] = []
    feed = Feed(done.append, threads=1, most=4)
    for number in range(3):
        feed.bring(number)
        await feed.room()  # does not wait yet
    feed.bring(3)
    waiting = [asyncio.ensure_future(feed.room()) for _ in range(3)]
    assert feed._take() == 0
    await asyncio.sleep(0)
    assert not any(each.done() for each in waiting)
    assert feed._take() == 1
    await asyncio.wait_for(asyncio.gather(*waiting), SECONDS)
    assert feed.rest() == [2, 3]


async def test_a_thread_lets_others_have_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_module, "_TURN_SECONDS", 0.0)
    done: list[int] = []
    feed = Feed(done.append, threads=1, most=10)
    assert feed.bring(1)
    assert not feed.bring(2)
    assert feed.work_on()
    assert done == [1]
    assert not feed.bring(3)  # it is to come back
    assert feed.work_on()
    assert feed.work_on()
    assert not feed.work_on()
    assert done == [1, 2, 3]


async def test_all_groups_are_fetched_and_worked_on_within_the_budget() -> None:
    budget = Budget(10)
    jobs = Jobs(budget)
    lock = threading.Lock()
    held = most = 0
    done: list[int] = []

    async def fetch(group: Wanted, claim: object) -> int:
        nonlocal held, most
        with lock:
            held += group.limit
            most = max(most, held)
        await asyncio.sleep(0)
        return group.number

    def work(number: int) -> None:
        nonlocal held
        with lock:
            held -= 3
            done.append(number)

    await asyncio.wait_for(
        jobs.feed([Wanted(number, 3) for number in range(200)], fetch, work), SECONDS
    )
    assert sorted(done) == list(range(200))
    assert 3 <= most <= 9  # three groups are within the budget
    assert budget.in_use == 0


@pytest.mark.parametrize("place", ["fetch", "work"])
async def test_a_failure_ends_all_of_it(place: str) -> None:
    budget = Budget(100)
    jobs = Jobs(budget)
    working: set[int] = set()

    async def fetch(group: Wanted, claim: object) -> int:
        await asyncio.sleep(0)
        if place == "fetch" and group.number == 20:
            raise ZeroDivisionError("as planned")
        return group.number

    def work(number: int) -> None:
        working.add(number)
        try:
            if place == "work" and number == 20:
                raise ZeroDivisionError("as planned")
        finally:
            working.discard(number)

    groups = [Wanted(number) for number in range(1000)]
    with pytest.raises(ZeroDivisionError, match="as planned"):
        await asyncio.wait_for(jobs.feed(groups, fetch, work), SECONDS)
    assert not working
    assert budget.in_use == 0


async def test_cancelled_it_waits_for_its_threads() -> None:
    budget = Budget(1000)
    jobs = Jobs(budget)
    begun, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    async def fetch(group: Wanted, claim: object) -> int:
        return group.number

    def work(number: int) -> None:
        begun.set()
        may_end.wait(SECONDS)
        ended.set()

    read = asyncio.ensure_future(jobs.feed([Wanted(n) for n in range(100)], fetch, work))
    assert await asyncio.to_thread(begun.wait, SECONDS)
    for _ in range(3):
        read.cancel()
        await asyncio.sleep(0)
        assert not read.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(read, SECONDS)
    assert ended.is_set()
    assert jobs.stopping
    assert budget.in_use == 0


async def test_a_pool_with_no_thread_free_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cancelled while what was fetched waits for a thread, it gives its budget back."""
    budget = Budget(1000)
    jobs = Jobs(budget)
    busy = threading.Event()
    fetched = asyncio.Event()

    async def fetch(group: Wanted, claim: object) -> int:
        fetched.set()
        return group.number

    with ThreadPoolExecutor(1) as pool:
        pool.submit(busy.wait, SECONDS)
        monkeypatch.setattr(jobs, "_pool", pool)
        worked: list[int] = []
        read = asyncio.ensure_future(jobs.feed([Wanted(1)], fetch, worked.append))
        await asyncio.wait_for(fetched.wait(), SECONDS)
        await asyncio.sleep(0)
        read.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(read, SECONDS)
        assert budget.in_use == 0
        busy.set()
    assert not worked
