"""Threads fetch and work by themselves, and the event loop waits without being busy."""

import asyncio
import os
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from ucxstore import _native
from ucxstore.pipeline.budget import Budget, Claim
from ucxstore.pipeline.jobs import Jobs

SECONDS = 20


class Group:
    def __init__(self, number: int, limit: int = 1) -> None:
        self.number = number
        self.limit = limit


class Operation:
    """Of a native core that does what the test says."""

    def __init__(self, network: "Network", number: int) -> None:
        self.number = number
        self.cancelled = False
        self._network = network

    def result(self) -> int:
        if self.number == self._network.failing:
            raise ZeroDivisionError("as planned")
        return self.number

    def cancel(self) -> None:
        self.cancelled = True
        self._network.arrive(self)


class Network:
    """Stands for `core.Completions`, too."""

    def __init__(self) -> None:
        self.at_once = True
        self.failing: int | None = None
        self.drained = 0
        self.started: list[Operation] = []
        self._fd = os.eventfd(0, os.EFD_NONBLOCK)
        self._lock = threading.Lock()
        self._arrived: list[Operation] = []

    def start(self, group: Group, completions: object) -> Operation:
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
    monkeypatch.setattr(_native, "core", SimpleNamespace(Completions=lambda: network))
    yield network
    network.close()


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

    await asyncio.wait_for(
        Jobs(budget).pump(groups(200, 3), network.start, work),  # type: ignore[arg-type]
        SECONDS,
    )
    assert sorted(done) == list(range(200))
    assert max(held) <= 9
    assert budget.in_use == 0


async def test_one_that_is_larger_than_the_budget_goes_alone(network: Network) -> None:
    budget = Budget(10)
    done: list[int] = []
    jobs = [
        Jobs(budget).pump(
            groups(20, 100),
            network.start,  # type: ignore[arg-type]
            lambda group, found, claim: done.append(budget.in_use),
        )
    ]
    await asyncio.wait_for(asyncio.gather(*jobs), SECONDS)
    assert done == [10] * 20
    assert budget.in_use == 0


@pytest.mark.parametrize("limit", [4, 100])
async def test_what_others_hold_of_the_budget_is_waited_for(network: Network, limit: int) -> None:
    budget = Budget(10)
    other = await budget.claim(10)
    done: list[int] = []
    read = asyncio.ensure_future(
        Jobs(budget).pump(
            groups(5, limit),
            network.start,  # type: ignore[arg-type]
            lambda group, found, claim: done.append(found),
        )
    )
    for _ in range(20):
        await asyncio.sleep(0)
    assert not network.started
    other.release()
    await asyncio.wait_for(read, SECONDS)
    assert sorted(done) == list(range(5))
    assert budget.in_use == 0


async def test_it_is_not_busy_while_nothing_arrives(network: Network) -> None:
    network.at_once = False
    done: list[int] = []
    read = asyncio.ensure_future(
        Jobs(Budget(100)).pump(
            groups(5),
            network.start,  # type: ignore[arg-type]
            lambda group, found, claim: done.append(found),
        )
    )
    for operation in range(5):
        for _ in range(50):  # so that it is idle
            await asyncio.sleep(0.001)
        drained = network.drained
        for _ in range(50):
            await asyncio.sleep(0.001)
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

    read = asyncio.ensure_future(
        Jobs(budget).pump(groups(1000), network.start, work)  # type: ignore[arg-type]
    )
    while not network.started:
        await asyncio.sleep(0)
    network.arrive(network.started[1])
    with pytest.raises(ZeroDivisionError, match="as planned"):
        await asyncio.wait_for(read, SECONDS)
    assert all(one.cancelled for one in network.started if one.number != 1)
    assert len(network.started) < 1000
    assert budget.in_use == 0


async def test_cancelled_it_ends_what_is_on_its_way(network: Network) -> None:
    budget = Budget(1000)
    network.at_once = False
    jobs = Jobs(budget)
    worked: list[int] = []
    read = asyncio.ensure_future(
        jobs.pump(
            groups(10),
            network.start,  # type: ignore[arg-type]
            lambda group, found, claim: worked.append(found),
        )
    )
    while not network.started:
        await asyncio.sleep(0)
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

    jobs = Jobs(budget)
    read = asyncio.ensure_future(
        jobs.pump(groups(5000), network.start, work)  # type: ignore[arg-type]
    )
    with pytest.raises(ZeroDivisionError, match="as planned"):
        await asyncio.wait_for(read, SECONDS)
    assert len(worked) < 1000
    assert budget.in_use == 0


async def test_a_task_of_its_own_is_cancelled_by_somebody(network: Network) -> None:
    network.at_once = False
    before = asyncio.all_tasks()
    read = asyncio.ensure_future(
        Jobs(Budget(100)).pump(
            groups(5),
            network.start,  # type: ignore[arg-type]
            lambda group, found, claim: None,
        )
    )
    while not network.started:
        await asyncio.sleep(0)
    lane, *_ = asyncio.all_tasks() - before - {read}
    lane.cancel()
    for operation in list(network.started):
        network.arrive(operation)
    with pytest.raises(asyncio.CancelledError, match="a part"):
        await asyncio.wait_for(read, SECONDS)
