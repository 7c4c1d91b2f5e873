"""Scripts in interpreters of their own: development mode, warnings as errors, nothing on stderr."""

import functools
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Self

from tests.adversity.nursery import DEVELOPMENT_MODE, ROOT, Nursery
from ucxstore.base.options import UcxValue

# Python warns of every fork in a process with threads, as ours is.
_FORKS = ["-W", "ignore:This process:DeprecationWarning"]

_PROLOGUE = """
import asyncio, logging, os, signal, sys, threading, time
import numpy as np
from tests.adversity.transfers import *
from tests.eventually import eventually, nothing_happens
from tests.proc import in_child
from tests.values import as_buffer
from ucxstore import *
logging.getLogger("asyncio").setLevel(logging.ERROR)  # its debug mode minds slow machines
store = UcxStore({address!r}, ucx={ucx!r}, timeout=20, connect_timeout=20)
"""


# In a line that UCX itself prints: it reports peers that are gone, to standard output.
_UCX = " UCX  "

# By itself, each script would import zarr, which takes most of the 0.65 s of a processor to start.
_nursery = functools.cache(lambda: Nursery(Path(tempfile.gettempdir())))


class _Forked:
    """A program that was forked from the nursery: what `subprocess.Popen` has that is used here."""

    def __init__(self, code: str, env: Mapping[str, str]) -> None:
        self.returncode: int | None = None
        self._errors = os.fdopen(os.memfd_create("errors"), "r+")
        theirs_in, ours_in = os.pipe()
        ours_out, theirs_out = os.pipe()
        self.stdin = os.fdopen(ours_in, "w")
        self.stdout = os.fdopen(ours_out)
        with os.fdopen(theirs_in) as stdin, os.fdopen(theirs_out, "w") as stdout:
            self.pid = _nursery().fork(_run, [stdin, stdout, self._errors], code, dict(env))
        self._pidfd = os.pidfd_open(self.pid)

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            signal.pidfd_send_signal(self._pidfd, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float) -> tuple[str, str]:
        until = time.monotonic() + timeout
        self.stdin.close()
        output = []
        reader = threading.Thread(target=lambda: output.append(self.stdout.read()), daemon=True)
        reader.start()
        reader.join(timeout)
        if reader.is_alive() or not self._ended(until - time.monotonic()):
            raise TimeoutError(f"the script {self.pid} does not end")
        self._errors.seek(0)
        return output[0], self._errors.read()

    def _ended(self, seconds: float) -> bool:
        if self.returncode is None and select.select([self._pidfd], [], [], max(0, seconds))[0]:
            self.returncode = _nursery().status_of(self.pid)
        return self.returncode is not None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        with suppress(BrokenPipeError):
            self.stdin.close()
        self.stdout.close()
        self._ended(60.0)
        os.close(self._pidfd)
        self._errors.close()


def _elsewhere(inside: Sequence[str], code: str, env: Mapping[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*inside, sys.executable, *DEVELOPMENT_MODE, *_FORKS, "-c", code],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
    )


def _run(stdin: int, stdout: int, stderr: int, code: str, env: dict[str, str]) -> None:
    """Be ``python -c code``, in the nursery's child."""
    for ours, standard in zip((stdin, stdout, stderr), range(3), strict=True):
        os.dup2(ours, standard)
        os.close(ours)
    os.environ.clear()
    os.environ.update(env)
    warnings.filterwarnings("ignore", "This process", DeprecationWarning)
    main = sys.modules["__main__"] = ModuleType("__main__")
    exec(compile(code, "<script>", "exec"), vars(main))


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
        code = prologue + code
        env = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
        self._process = _elsewhere(inside, code, env) if inside else _Forked(code, env)
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
        return self._process.returncode  # type: ignore[return-value]

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
