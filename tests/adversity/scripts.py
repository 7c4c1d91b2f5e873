"""Scripts in interpreters of their own: development mode, warnings as errors, nothing on stderr."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from tests.adversity.nursery import DEVELOPMENT_MODE, ROOT
from ucxstore.options import UcxValue

# Python warns of every fork in a process with threads, as ours is.
FORKS = ["-W", "ignore:This process:DeprecationWarning"]

_PROLOGUE = """
import asyncio, logging, os, signal, sys, threading, time
import numpy as np
from tests.adversity.transfers import *
from tests.eventually import eventually
from ucxstore import *
logging.getLogger("asyncio").setLevel(logging.ERROR)  # its debug mode minds slow machines
store = UcxStore({address!r}, ucx={ucx!r}, timeout=20, connect_timeout=20)
"""


# In a line that UCX itself prints: it reports peers that are gone, to standard output.
_UCX = " UCX  "


class Script:
    """A script that is given a `store`. A context manager, which sees that it ends well.

    Parameters
    ----------
    address : str
    ucx : mapping
    code : str
    inside : sequence of str
        What comes before the command, such as what takes it to another host.
    """

    def __init__(
        self, address: str, ucx: Mapping[str, UcxValue], code: str, inside: Sequence[str] = ()
    ) -> None:
        prologue = _PROLOGUE.format(address=address, ucx=dict(ucx))
        self._process = subprocess.Popen(
            [*inside, sys.executable, *DEVELOPMENT_MODE, *FORKS, "-c", prologue + code],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        )
        assert self._process.stdout is not None
        self._stdout = self._process.stdout

    @property
    def pid(self) -> int:
        return self._process.pid

    def line(self) -> str:
        """Return the next line that it prints."""
        line = self._stdout.readline()
        if not line:
            self.end()
            raise AssertionError("the script ended")
        return self.line() if _UCX in line else line.strip()

    def say(self, text: str) -> None:
        """Write to its standard input."""
        assert self._process.stdin is not None
        self._process.stdin.write(text)
        self._process.stdin.flush()

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        self._process.send_signal(signal.SIGINT)

    def kill(self) -> None:
        self._process.kill()

    def end(self, seconds: float = 60.0) -> str:
        """Wait until it has ended, and return what it printed since."""
        output, errors = self._process.communicate(timeout=seconds)
        assert (self._process.returncode, errors) == (0, ""), (output, errors)
        return "".join(line for line in output.splitlines(True) if _UCX not in line)

    def status(self, seconds: float = 60.0) -> int:
        """Wait until it has ended, however it did, and return its status."""
        self._process.communicate(timeout=seconds)
        return self._process.returncode

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._process:
            self._process.kill()
