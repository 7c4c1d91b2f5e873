"""A gathered operation is done when all of its parts are, and then only."""

import signal
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pytest

from ucxstore.base.errors import ConnectError, OperationCancelledError, ServerLostError
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
    def __init__(self, problem: Exception | None = None) -> None:
        self.problem = problem
        self.requests = 0

    def connection(self) -> Any:
        if self.problem is not None:
            raise self.problem

    def count_request(self) -> None:
        self.requests += 1


class Ask:
    """Makes shares of an operation, and keeps the results that they take."""

    def __init__(self) -> None:
        self.taken: list[Any] = []
        self.operations: list[Operation] = []

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

        return Share(server or Server(), request, take, lost)

    def gather(self, *shares: Share) -> Gathered:
        return Gathered(shares, lambda: sorted(self.taken), TIMEOUT, None)


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
def ask() -> Ask:
    return Ask()


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
