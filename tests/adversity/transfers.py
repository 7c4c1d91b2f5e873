"""Transfers that tests interrupt while they are under way."""

import asyncio
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from tests.eventually import eventually
from ucxstore import UcxStore

# What a value is made of, and what memory that it is read into holds before.
VALUE = 0x11
BLANK = 0xEE

# Long enough to be interrupted, of many segments.
LARGE = 50_000_000
MEDIUM = 20_000_000

# Seconds within which a failure must show, even on a busy machine.
DEADLINE = 4.0

type Bytes = npt.NDArray[np.uint8]


def filled(byte: int, size: int = LARGE) -> Bytes:
    """Return an array of one byte, many times."""
    return np.full(size, byte, "u1")


def wipe(out: Bytes) -> None:
    """Blank those bytes of `out` that the functions below look at."""
    out[0] = out[out.size // 2] = out[-1] = BLANK


def begun(out: Bytes) -> bool:
    """Tell whether a read into `out` has begun and has a good part before it."""
    return bool(out[0] != BLANK and out[out.size // 2] == BLANK and out[-1] == BLANK)


def until_begun(*outs: Bytes) -> None:
    """Wait until a read into one of them has begun: it takes a few ms, so without a pause."""
    eventually(lambda: any(begun(out) for out in outs), pause=0.0)


def partly_filled(out: Bytes) -> bool:
    """Tell whether a read into `out` has begun and not yet ended."""
    return bool(out[0] != BLANK and out[-1] == BLANK)


async def begin_to_read(store: UcxStore, out: Bytes) -> asyncio.Task[None]:
    """Read the value "key" into `out` again and again; return once such a read has begun."""

    async def read() -> None:
        while True:
            wipe(out)
            await store.get_into("key", out)

    reading = asyncio.create_task(read())
    await asyncio.to_thread(until_begun, out)
    return reading


class Background:
    """A call in a thread of its own.

    Of an exception only the type and the text are kept: a traceback would hold memory.
    """

    def __init__(self, call: Callable[[], Any]) -> None:
        self.error: tuple[type[BaseException], str] | None = None
        self.result: Any = None
        self.seconds_since_mark = 0.0
        self._marked = time.monotonic()
        self._thread = threading.Thread(target=self._run, args=(call,), daemon=True)
        self._thread.start()

    def _run(self, call: Callable[[], Any]) -> None:
        try:
            self.result = call()
        except BaseException as error:
            self.error = type(error), str(error)
        self.ended = time.monotonic()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def mark(self) -> None:
        """Begin the time that `join` allows."""
        self._marked = time.monotonic()

    def join(self, seconds: float = DEADLINE) -> None:
        """Wait until it has ended, which must be within so many seconds of the mark."""
        self._thread.join(max(0.0, self._marked + seconds - time.monotonic()))
        assert not self.running, f"it still runs after {seconds:g} s"
        self.seconds_since_mark = self.ended - self._marked

    def failure(self, seconds: float = DEADLINE) -> tuple[type[BaseException], str]:
        """Wait for its failure."""
        self.join(seconds)
        assert self.error is not None, f"it returned {self.result!r}"
        assert "memory back" not in self.error[1], "UCX held on to it"
        return self.error


class Repeated(Background):
    """A call that is repeated until it fails, or until this context manager is left."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.rounds = 0
        self._leave = False
        self._call = call
        super().__init__(self._repeat)

    def _repeat(self) -> None:
        while not self._leave:
            self._call()
            self.rounds += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._leave = True
        self.mark()
        self.join(60.0)  # for its last round, however busy the machine is
        assert self.error is None, self.error


def read_forever(store: UcxStore, out: Bytes) -> Repeated:
    """Read the value "key" into `out` again and again, until that fails."""

    def read() -> None:
        wipe(out)
        assert store.get_into_sync("key", out) == out.size

    return Repeated(read)
