"""A plugin of pytest that fails a run whose process keeps more and more memory.

What tests leave behind adds up in the process that runs them, and several run side by side.
"""

import ctypes
import gc
import os
import resource
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

# Above what a process comes to that runs all tests of a folder.
MOST_BYTES = 1536 << 20

# Tests that are named.
_NAMED = 5


def resident_bytes() -> int:
    """Return the bytes of memory that this process has now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def let_go() -> None:
    """Give back what nobody holds: garbage, and what the C library keeps to be used again."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


class Kept:
    """The memory that is left after each test.

    Parameters
    ----------
    most : int
        Bytes that a process may have after a test.
    now : Callable
        Returns the bytes that it has.
    """

    def __init__(self, most: int, now: Callable[[], int] = resident_bytes) -> None:
        self._most = most
        self._now = now
        self._before = now()
        self._added: list[tuple[int, str]] = []

    def look(self, test: str) -> str:
        """Look after a test; return what is wrong, once, or an empty text."""
        now = self._now()
        self._added.append((now - self._before, test))
        self._before = now
        self._added = sorted(self._added, reverse=True)[:_NAMED]
        if now <= self._most:
            return ""
        let_go()
        self._before = now = self._now()
        if now <= self._most:
            return ""
        lines = [
            f"After {test} this process ({os.getpid()}) has {_mib(now)} of memory, more than "
            f"{_mib(self._most)} (tests/resident.py). The tests that have added most:",
            *(f"  {_mib(added)}: {name}" for added, name in self._added),
        ]
        self._most = 2 * now  # one such failure is enough
        return "\n".join(lines)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None]:
        """Fail the test after which there is too much."""
        yield
        wrong = self.look(item.nodeid)
        if wrong:
            pytest.fail(wrong, pytrace=False)


def _mib(nbytes: int) -> str:
    return f"{nbytes / (1 << 20):.0f} MiB"
