"""The thread that closes idle connections: it ends with its task, and there is one at a time."""

import threading
from collections.abc import Callable

import pytest

from tests.eventually import eventually
from ucxstore.client.idle import IdleWatch


class Looks:
    """Counts looks, and says how long each is followed by another one."""

    def __init__(self, due: Callable[[float], float | None]) -> None:
        self.due = due
        self.times: list[float] = []
        self.threads: set[int] = set()

    def __call__(self, now: float) -> float | None:
        self.times.append(now)
        self.threads.add(threading.get_ident())
        return self.due(now)


def names() -> list[str]:
    return [thread.name for thread in threading.enumerate()]


@pytest.fixture(autouse=True)
def _no_other_watch() -> None:
    eventually(lambda: "ucxstore-idle" not in names())


def test_it_looks_until_nothing_is_left() -> None:
    left = [0.05, 0.1, None]
    look = Looks(lambda now: None if (pause := left.pop(0)) is None else now + pause)
    watch = IdleWatch(look)
    watch.start()
    eventually(lambda: not left and "ucxstore-idle" not in names())
    first, second, third = look.times
    assert second - first >= 0.05
    assert third - second >= 0.1
    watch = IdleWatch(Looks(lambda _: None))
    watch.start()
    eventually(lambda: "ucxstore-idle" not in names())


def test_one_thread_serves_all_who_start_it() -> None:
    left = [0.1, 0.1, None]
    look = Looks(lambda now: None if (pause := left.pop(0)) is None else now + pause)
    watch = IdleWatch(look)
    for _ in range(5):
        watch.start()
    eventually(lambda: not left and "ucxstore-idle" not in names())
    assert len(look.threads) == 1


def test_what_is_added_during_the_last_look_is_looked_at() -> None:
    inside, go_on = threading.Event(), threading.Event()

    def due(_: float) -> None:
        inside.set()
        assert go_on.wait(60)

    look = Looks(due)
    watch = IdleWatch(look)
    watch.start()
    assert inside.wait(60)
    late = threading.Thread(target=watch.start)
    late.start()
    go_on.set()
    late.join(60)
    eventually(lambda: len(look.times) == 2 and "ucxstore-idle" not in names())


def test_without_a_thread_it_starts_later(monkeypatch: pytest.MonkeyPatch) -> None:
    look = Looks(lambda _: None)
    watch = IdleWatch(look)

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        watch.start()
    assert look.times == []
    watch.start()
    eventually(lambda: len(look.times) == 1)
