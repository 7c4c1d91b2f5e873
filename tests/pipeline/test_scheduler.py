"""Groups are fetched and worked on within the budget, by threads or by tasks, to the end."""

import asyncio
import os
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from tests.eventually import eventually_async, loop_turns, nothing_happens_async
from ucxstore.base import native
from ucxstore.client.loops import Queue
from ucxstore.pipeline import scheduler as scheduler_module
from ucxstore.pipeline.budget import Budget, Claim
from ucxstore.pipeline.scheduler import Scheduler

pytestmark = pytest.mark.usefixtures("two_threads")

SECONDS = 20


class Group:
    def __init__(self, number: int, limit: int = 1) -> None:
        self.number = number
        self.limit = limit


class Operation:
    """An operation of a stand-in for the native core: it ends when the test says so."""

    def __init__(self, network: "Network", number: int) -> None:
        self.number = number
        self.cancelled = False
        self.done = False  # as long as nobody has heard of it
        self._network = network

    def result(self) -> int:
        if self.number == self._network.failing:
            raise ZeroDivisionError("as planned")
        return self.number

    def cancel(self) -> None:
        self.cancelled = True
        self._network.arrive(self)


class Network:
    """Stands for a channel and for `core.Completions`; a group is the request for it."""

    def __init__(self) -> None:
        self.at_once = True
        self.failing: int | None = None
        self.drained = 0
        self.started: list[Operation] = []
        self._fd = os.eventfd(0, os.EFD_NONBLOCK)
        self._lock = threading.Lock()
        self._arrived: list[Operation] = []

    async def open(self) -> None:
        """Do nothing: it is open."""

    def check_open(self) -> None:
        """Do nothing: nobody closes it."""

    def track(self, pending: object, cancel: object) -> None:
        """Do nothing, as nobody closes it."""

    def untrack(self, pending: object) -> None:
        """Do nothing, as above."""

    def begin(self, group: Group, queue: Queue) -> Operation:
        assert queue.native is self
        operation = Operation(self, group.number)
        self.started.append(operation)
        if self.at_once:
            self.arrive(operation)
        return operation

    def arrive(self, operation: Operation) -> None:
        with self._lock:
            if operation not in self._arrived:
                self._arrived.append(operation)
                os.eventfd_write(self._fd, 1)

    def fileno(self) -> int:
        return self._fd

    def drain(self) -> list[Operation]:
        with self._lock:
            self.drained += 1
            if self._arrived:
                os.eventfd_read(self._fd)
            arrived, self._arrived = self._arrived, []
            return arrived

    def close(self) -> None:
        os.close(self._fd)


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Iterator[Network]:
    network = Network()
    monkeypatch.setattr(native, "core", SimpleNamespace(Completions=lambda: network))
    yield network
    network.close()


class Asked:
    """Stands for a channel that tasks ask."""

    def __init__(self) -> None:
        self.failing: int | None = None
        self.asked = 0

    async def open(self) -> None:
        """Do nothing: it is open."""

    async def ask(self, group: Group) -> int:
        self.asked += 1
        await loop_turns()
        if group.number == self.failing:
            raise ZeroDivisionError("as planned")
        return group.number


async def fetch(
    channel: Any,
    groups: list[Group],
    work: Any,
    scheduler: Scheduler,
) -> None:
    request: Any = lambda group: group  # noqa: E731
    await asyncio.wait_for(scheduler.fetch(channel, groups, request, work), SECONDS)


def groups(number: int, limit: int = 1) -> list[Group]:
    return [Group(i, limit) for i in range(number)]


async def test_all_is_worked_on_within_the_budget(network: Network) -> None:
    budget = Budget(10)
    done: list[int] = []
    held: list[int] = []

    def work(group: Group, found: int, claim: Claim) -> None:
        assert (group.number, claim.nbytes) == (found, 3)
        held.append(budget.in_use)
        done.append(found)

    await fetch(network, groups(200, 3), work, Scheduler(budget))
    assert sorted(done) == list(range(200))
    assert max(held) <= 9
    assert budget.in_use == 0


async def test_one_that_is_larger_than_the_budget_goes_alone(network: Network) -> None:
    budget = Budget(10)
    done: list[int] = []
    work = lambda group, found, claim: done.append(budget.in_use)  # noqa: E731
    await fetch(network, groups(20, 100), work, Scheduler(budget))
    assert done == [10] * 20
    assert budget.in_use == 0


@pytest.mark.parametrize("limit", [4, 100])
async def test_what_others_hold_of_the_budget_is_waited_for(network: Network, limit: int) -> None:
    budget = Budget(10)
    other = await budget.claim(10)
    done: list[int] = []
    read = asyncio.ensure_future(
        fetch(
            network,
            groups(5, limit),
            lambda group, found, claim: done.append(found),
            Scheduler(budget),
        )
    )
    await loop_turns(20)
    assert not network.started
    other.release()
    await asyncio.wait_for(read, SECONDS)
    assert sorted(done) == list(range(5))
    assert budget.in_use == 0


async def test_it_is_not_busy_while_nothing_arrives(network: Network) -> None:
    network.at_once = False
    done: list[int] = []
    read = asyncio.ensure_future(
        fetch(
            network,
            groups(5),
            lambda group, found, claim: done.append(found),
            Scheduler(Budget(100)),
        )
    )
    for operation in range(5):
        for _ in range(50):  # so that it is idle
            await nothing_happens_async(0.001)
        drained = network.drained
        for _ in range(50):
            await nothing_happens_async(0.001)
        assert network.drained == drained
        network.arrive(network.started[operation])
    await asyncio.wait_for(read, SECONDS)
    assert sorted(done) == list(range(5))


@pytest.mark.parametrize("place", ["fetch", "work"])
async def test_a_failure_ends_what_is_on_its_way(network: Network, place: str) -> None:
    budget = Budget(1000)
    network.at_once = False
    if place == "fetch":
        network.failing = 1

    def work(group: Group, found: int, claim: Claim) -> None:
        if place == "work" and found == 1:
            raise ZeroDivisionError("as planned")

    read = asyncio.ensure_future(fetch(network, groups(1000), work, Scheduler(budget)))
    await eventually_async(lambda: network.started, pause=0)
    network.arrive(network.started[1])
    with pytest.raises(ZeroDivisionError, match="as planned"):
        await asyncio.wait_for(read, SECONDS)
    assert all(one.cancelled for one in network.started if one.number != 1)
    assert len(network.started) < 1000
    assert budget.in_use == 0


async def test_cancelled_it_ends_what_is_on_its_way(network: Network) -> None:
    budget = Budget(1000)
    network.at_once = False
    worked: list[int] = []
    work = lambda group, found, claim: worked.append(found)  # noqa: E731
    read = asyncio.ensure_future(fetch(network, groups(10), work, Scheduler(budget)))
    await eventually_async(lambda: network.started, pause=0)
    read.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(read, SECONDS)
    assert all(one.cancelled for one in network.started)
    assert not worked
    assert budget.in_use == 0


async def test_one_thread_fails_and_the_others_begin_nothing_more(network: Network) -> None:
    budget = Budget(1000)
    worked: list[int] = []
    others = threading.Event()

    def work(group: Group, found: int, claim: Claim) -> None:
        if found == 0:
            raise ZeroDivisionError("as planned")
        worked.append(found)
        others.wait(0.01)  # until the loop has heard of it

    read = asyncio.ensure_future(fetch(network, groups(5000), work, Scheduler(budget)))
    with pytest.raises(ZeroDivisionError, match="as planned"):
        await asyncio.wait_for(read, SECONDS)
    assert len(worked) < 1000
    assert budget.in_use == 0


async def test_a_task_of_its_own_is_cancelled_by_somebody(network: Network) -> None:
    network.at_once = False
    before = asyncio.all_tasks()
    scheduler = Scheduler(Budget(100))
    work = lambda group, found, claim: None  # noqa: E731
    channel: Any = network
    request: Any = lambda group: group  # noqa: E731
    read = asyncio.ensure_future(scheduler.fetch(channel, groups(5), request, work))
    await eventually_async(lambda: network.started, pause=0)
    lane, *_ = asyncio.all_tasks() - before - {read}
    lane.cancel()
    for operation in list(network.started):
        network.arrive(operation)
    with pytest.raises(asyncio.CancelledError, match="a part"):
        await read


async def test_a_thread_lets_others_have_their_turn(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler_module, "TURN_SECONDS", 0.0)
    done: list[int] = []
    turns: list[str] = []
    scheduler = Scheduler(Budget(100))
    in_thread = scheduler.in_thread

    async def counting(function: Any, *args: Any) -> Any:
        turns.append(function.__name__)
        return await in_thread(function, *args)

    monkeypatch.setattr(scheduler, "in_thread", counting)
    await fetch(network, groups(20), lambda group, found, claim: done.append(found), scheduler)
    assert sorted(done) == list(range(20))
    assert turns.count("work_on") >= 20


# ---- tasks ----


async def run(channel: Asked, groups: list[Group], work: Any, scheduler: Scheduler) -> None:
    async def step(group: Group, claim: Claim) -> None:
        await scheduler.in_thread(work, group, await channel.ask(group), claim)

    await asyncio.wait_for(scheduler.run(groups, step), SECONDS)


async def test_tasks_work_within_the_budget() -> None:
    budget = Budget(10)
    held: list[int] = []
    done: list[int] = []

    def work(group: Group, found: int, claim: Claim) -> None:
        assert (group.number, claim.nbytes) == (found, 3)
        held.append(budget.in_use)
        done.append(found)

    await run(Asked(), groups(200, 3), work, Scheduler(budget))
    assert sorted(done) == list(range(200))
    assert max(held) <= 9
    assert budget.in_use == 0


@pytest.mark.parametrize("count", [1, 2])
async def test_tasks_fetch_few_groups(count: int) -> None:
    """With no more groups than threads, each is on its way at once."""
    done: list[int] = []
    channel = Asked()
    work = lambda group, found, claim: done.append(found)  # noqa: E731
    await fetch(channel, groups(count), work, Scheduler(Budget(100)))
    assert sorted(done) == list(range(count))
    assert channel.asked == count


@pytest.mark.parametrize("place", ["fetch", "work"])
async def test_a_failure_ends_all_tasks(place: str) -> None:
    budget = Budget(100)
    channel = Asked()
    working: set[int] = set()
    if place == "fetch":
        channel.failing = 20

    def work(group: Group, found: int, claim: Claim) -> None:
        working.add(found)
        try:
            if place == "work" and found == 20:
                raise ZeroDivisionError("as planned")
        finally:
            working.discard(found)

    with pytest.raises(ZeroDivisionError, match="as planned"):
        await run(channel, groups(1000), work, Scheduler(budget))
    assert not working
    assert channel.asked < 1000
    assert budget.in_use == 0


async def test_cancelled_tasks_wait_for_their_threads() -> None:
    budget = Budget(1000)
    scheduler = Scheduler(budget)
    begun, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def work(group: Group, found: int, claim: Claim) -> None:
        begun.set()
        may_end.wait(SECONDS)
        ended.set()

    read = asyncio.ensure_future(run(Asked(), groups(100), work, scheduler))
    assert await asyncio.to_thread(begun.wait, SECONDS)
    for _ in range(3):
        read.cancel()
        await loop_turns()
        assert not read.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await read
    assert ended.is_set()
    assert scheduler.stopping
    assert budget.in_use == 0


async def test_a_pool_with_no_thread_free_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cancelled while what was fetched waits for a thread, it gives its budget back."""
    budget = Budget(1000)
    scheduler = Scheduler(budget)
    channel = Asked()
    busy = threading.Event()
    worked: list[int] = []
    with ThreadPoolExecutor(1) as pool:
        pool.submit(busy.wait, SECONDS)
        monkeypatch.setattr(scheduler, "_pool", pool)
        work = lambda group, found, claim: worked.append(found)  # noqa: E731
        read = asyncio.ensure_future(run(channel, groups(1), work, scheduler))
        await eventually_async(lambda: channel.asked, pause=0)
        await loop_turns(5)
        read.cancel()
        with pytest.raises(asyncio.CancelledError):
            await read
        assert budget.in_use == 0
        busy.set()
    assert not worked


async def test_what_is_done_from_its_start_is_worked_on(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operation gathered from servers that are all lost is done at its start."""
    network.at_once = False
    begin = network.begin

    def begun(group: Group, queue: Queue) -> Operation:
        operation = begin(group, queue)
        operation.done = True
        return operation

    monkeypatch.setattr(network, "begin", begun)
    done: list[int] = []
    work = lambda group, found, claim: done.append(found)  # noqa: E731
    await fetch(network, groups(100), work, Scheduler(Budget(10)))
    assert sorted(done) == list(range(100))


def test_a_thread_lets_go_before_it_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the next read would find the memory of the last one in use."""
    left: list[bool] = []
    wake = scheduler_module._wake_loop

    def hear(*args: Any) -> None:  # in the thread, which has not gone on yet
        left.append(of_the_group() is not None)
        wake(*args)

    monkeypatch.setattr(scheduler_module, "_wake_loop", hear)
    group = Group(1)
    of_the_group = weakref.ref(group)
    groups = [group]
    del group

    async def work() -> int:
        call = Scheduler(Budget(100)).in_thread(lambda one: one.number, groups.pop())
        return await call

    assert asyncio.run(work()) == 1
    assert left == [False]
