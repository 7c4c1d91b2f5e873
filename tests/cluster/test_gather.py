"""A gathered operation is done when all of its parts are, and then only."""

import asyncio
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.eventually import eventually_async
from ucxstore.base.errors import ConnectError, OperationCancelledError, ServerLostError
from ucxstore.client.ending import Ending
from ucxstore.client.loops import current_queue
from ucxstore.cluster.gather import Gathered, Share

TIMEOUT = 5.0


class Operation:
    """Completes when it is waited for, with the outcome that it was given."""

    def __init__(self, outcome: Any) -> None:
        self.outcome = outcome
        self.cancelled = self.done = False

    def wait(self) -> Any:
        first, self.done = not self.done, True
        if first and callable(self.outcome):
            self.outcome()
        if self.cancelled:
            raise OperationCancelledError("it was cancelled")
        return self.result()

    def result(self) -> Any:
        assert self.done
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome

    def cancel(self) -> None:
        self.cancelled = self.cancelled or not self.done


class Server:
    """A server, and how many attempts it takes to connect to it."""

    def __init__(self, problem: Exception | None = None, sleeps: int = 0) -> None:
        self.problem = problem
        self.sleeps = sleeps
        self.rests = sleeps > 0
        self.requests = self.uses = self.attempts = 0

    def rouse(self) -> None:
        self.attempts += 1
        if self.attempts >= self.sleeps:
            self.rests = False

    def take(self) -> Any:
        if self.rests:
            return None
        if self.problem is not None:
            raise self.problem
        self.uses += 1
        return self

    def put_back(self) -> None:
        self.uses -= 1

    def count_request(self) -> None:
        self.requests += 1


def rouse(server: Server) -> None:
    server.rouse()


class Ask:
    """Makes shares of an operation, and keeps the results that they take."""

    def __init__(self) -> None:
        self.taken: list[Any] = []
        self.operations: list[Operation] = []
        self.servers: list[Server] = []

    def share(
        self,
        outcome: Any,
        server: Server | None = None,
        more: Iterable[Share] = (),
        instead: Iterable[Share] | None = None,
    ) -> Share:
        request: Any = Request(self, Operation(outcome))

        def take(result: Any) -> Iterable[Share]:
            self.taken.append(result)
            return more

        def lost(error: Exception) -> Iterable[Share]:
            if instead is None:
                raise error
            return instead

        asked = server or Server()
        self.servers.append(asked)
        return Share(asked, request, take, lost)

    def gather(self, *shares: Share) -> Gathered:
        return Gathered(shares, lambda: sorted(self.taken), TIMEOUT, None, rouse)


@dataclass
class Request:
    """Its start returns the operation that it was given."""

    ask: Ask
    operation: Operation

    def start(self, _: object, timeout: float, completions: None) -> Operation:
        assert timeout == TIMEOUT
        if isinstance(self.operation.outcome, TypeError):
            raise self.operation.outcome
        self.ask.operations.append(self.operation)
        return self.operation


@pytest.fixture
def ask() -> Iterator[Ask]:
    asking = Ask()
    yield asking
    assert [server.uses for server in asking.servers if server.uses] == []


def test_of_nothing(ask: Ask) -> None:
    gathered = ask.gather()
    assert gathered.done
    assert gathered.wait() == []


def test_all_parts_are_taken(ask: Ask) -> None:
    gathered = ask.gather(ask.share(1), ask.share(2, more=[ask.share(4)]), ask.share(3))
    assert not gathered.done
    assert gathered.wait() == [1, 2, 3, 4]
    assert gathered.done
    assert gathered.result() == [1, 2, 3, 4]


@pytest.mark.parametrize(
    "lost",
    [
        lambda ask, other: ask.share(ServerLostError("gone"), instead=[other]),
        lambda ask, other: ask.share(1, Server(ServerLostError("gone")), instead=[other]),
        lambda ask, other: ask.share(1, Server(ConnectError("never there")), instead=[other]),
    ],
)
def test_another_server_is_asked_instead(ask: Ask, lost: Callable[[Ask, Share], Share]) -> None:
    other = Server()
    gathered = ask.gather(lost(ask, ask.share(5, other)), ask.share(6))
    assert gathered.wait() == [5, 6]
    assert other.requests == 1


@pytest.mark.parametrize("error", [ServerLostError("gone"), ValueError("no such range")])
def test_a_failure_cancels_the_others_and_sees_them_complete(ask: Ask, error: Exception) -> None:
    gathered = ask.gather(ask.share(1), ask.share(error), ask.share(3))
    for _ in range(2):
        with pytest.raises(type(error), match=str(error)) as failure:
            gathered.wait()
        assert failure.value is not error  # whose traceback would keep memory
    assert all(operation.done for operation in ask.operations)
    assert sum(operation.cancelled for operation in ask.operations) == 1


def test_what_cannot_be_started_cancels_what_was(ask: Ask) -> None:
    gathered = ask.gather(ask.share(1), ask.share(2), ask.share(TypeError("no key")))
    with pytest.raises(TypeError, match="no key"):
        gathered.wait()
    assert len(ask.operations) == 2
    assert all(operation.done and operation.cancelled for operation in ask.operations)


def test_cancelled_it_asks_nobody_else(ask: Ask) -> None:
    other = Server()
    gathered = ask.gather(ask.share(1, more=[ask.share(2, other)]), ask.share(3))
    gathered.cancel()
    with pytest.raises(OperationCancelledError):
        gathered.wait()
    assert all(operation.done for operation in ask.operations)
    assert other.requests == 0


class Interrupted(BaseException):
    pass


def test_a_signal_while_it_waits(ask: Ask) -> None:
    def interrupt(*_: object) -> None:
        raise Interrupted

    gathered = ask.gather(
        *(ask.share(lambda: signal.raise_signal(signal.SIGUSR1)) for _ in range(3))
    )
    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with pytest.raises(Interrupted):
            gathered.wait()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(ask.operations) == 3
    assert all(operation.done for operation in ask.operations)


# ---- servers that rest ----


@pytest.mark.parametrize("sleeps", [1, 3])
def test_a_server_that_rests_is_connected_first(ask: Ask, sleeps: int) -> None:
    """It may rest again before the request has begun."""
    resting = Server(sleeps=sleeps)
    gathered = ask.gather(ask.share(1), ask.share(2, resting), ask.share(3))
    assert gathered.wait() == [1, 2, 3]
    assert resting.requests == 1
    assert resting.attempts == sleeps


def test_a_server_that_rests_and_cannot_be_reached(ask: Ask) -> None:
    gone = Server(ConnectError("nobody there"), sleeps=1)
    instead = ask.share(2)
    assert ask.gather(ask.share(1, gone, instead=[instead])).wait() == [2]
    with pytest.raises(ConnectError, match="nobody there"):
        ask.gather(ask.share(1, gone)).wait()
    assert gone.requests == 0


class Slow(Server):
    """A server whose handshake takes until it is let go on."""

    def __init__(self) -> None:
        super().__init__(sleeps=1)
        self.begun, self.go_on = threading.Event(), threading.Event()

    def rouse(self) -> None:
        self.begun.set()
        assert self.go_on.wait(60)
        super().rouse()


def test_what_connects_is_cancelled_at_once(ask: Ask) -> None:
    slow = Slow()
    gathered = ask.gather(ask.share(1, slow), ask.share(2))
    assert slow.begun.wait(60)
    gathered.cancel()
    with pytest.raises(OperationCancelledError):
        gathered.wait()
    assert not slow.go_on.is_set()
    slow.go_on.set()
    assert slow.requests == 0


def test_a_bug_while_it_connects_is_raised(ask: Ask) -> None:
    class Broken(Server):
        def rouse(self) -> None:
            raise ZeroDivisionError("a bug")

    with pytest.raises(ZeroDivisionError, match="a bug"):
        ask.gather(ask.share(1, Broken(sleeps=1)), ask.share(2)).wait()


def test_more_servers_than_threads_connect(ask: Ask) -> None:
    servers = [Server(sleeps=1) for _ in range(100)]
    shares = [ask.share(number, server) for number, server in enumerate(servers)]
    assert ask.gather(*shares).wait() == list(range(100))


async def test_an_event_loop_goes_on_while_it_connects(ask: Ask) -> None:
    slow = Slow()
    queue = current_queue()
    ended = Ending()
    gathered = Gathered([ask.share(1, slow)], lambda: ask.taken, TIMEOUT, queue, rouse)
    queue.listen(gathered, ended.set)
    await asyncio.to_thread(slow.begun.wait, 60)
    assert not gathered.done
    slow.go_on.set()
    # The request has no queue here, and so ends only when it is waited for.
    await eventually_async(lambda: bool(ask.operations))
    assert not ended.is_set
    assert gathered.wait() == [1]
    assert ended.is_set
