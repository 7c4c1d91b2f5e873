"""Servers and clients of a run: each in a process on one of its hosts."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from tests.eventually import eventually
from tests.faults.workload import Task
from tests.hosts.network import Host

# Seconds, on a machine with much else to do.
_PATIENCE = 400.0

# The tests' own UCXSTORE_LOCAL is for tests of UCX.
_VARIABLES = {"OPENBLAS_NUM_THREADS": "1", "UCXSTORE_LOCAL": "auto"}

# What neither side may print, whatever happens to the other.
_UNWELCOME = ("Traceback", "Fatal", "terminate called", "Assertion", "backtrace", "Timeout (")


class Process:
    """A program on a host, whose output goes to a file.

    Parameters
    ----------
    host : Host
    command : sequence of str
        What follows ``python -m``.
    output : Path
    environment : mapping
        Variables beside those of this process.
    """

    # What it prints once it has started.
    says = "ready"

    def __init__(
        self,
        host: Host,
        command: Sequence[str],
        output: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.output = output
        with output.open("ab") as file:
            self._start = file.tell()
            self.popen = subprocess.Popen(
                [*host.inside, sys.executable, "-m", *command],
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=file,
                env={**os.environ, **_VARIABLES, **(environment or {})},
            )
        self.expected_end = False

    @property
    def text(self) -> str:
        """What it has printed."""
        return self.output.read_bytes()[self._start :].decode(errors="replace")

    @property
    def is_ready(self) -> bool:
        """Whether it has started."""
        return self.says in self.text

    def until_ready(self) -> None:
        """Wait until it has started."""
        eventually(lambda: self.is_ready or self.popen.poll() is not None, _PATIENCE, 0.05)
        assert self.popen.poll() is None, self.text

    def say(self, line: str) -> None:
        """Write a line to its input."""
        assert self.popen.stdin is not None
        self.popen.stdin.write(f"{line}\n".encode())
        self.popen.stdin.flush()

    def until_more_than(self, text: str) -> str:
        """Wait until it has printed a whole line more, and return all that it has printed."""
        eventually(lambda: self.text != text and self.text.endswith("\n"), _PATIENCE, 0.01)
        return self.text

    def send(self, number: int) -> None:
        """Send a signal to the program, which is the child of the process that entered the host."""
        if self.popen.poll() is None:
            os.kill(self._pid(), number)

    def kill(self) -> None:
        """End it as the kernel does for want of memory."""
        self.expected_end = True
        self.send(signal.SIGKILL)
        self.popen.wait(_PATIENCE)

    def stop(self) -> None:
        """Let it stand still."""
        self.send(signal.SIGSTOP)
        # `nsenter` stops itself, too, and lets its child run again when it does.
        eventually(lambda: self._has_stopped() or self.popen.poll() is not None, _PATIENCE)

    def go_on(self) -> None:
        """Let it run again."""
        if self.popen.poll() is None:
            self.popen.send_signal(signal.SIGCONT)
        self.send(signal.SIGCONT)

    def problems(self) -> list[str]:
        """Tell what it must not have done: ended by itself, or printed what nobody should."""
        status = self.popen.poll()
        found = [f"{self.output.name}: {word!r}" for word in _UNWELCOME if word in self.text]
        if status is not None and not self.expected_end:
            found.append(f"{self.output.name}: ended with status {status}")
        return found

    def _has_stopped(self) -> bool:
        state = Path(f"/proc/{self.popen.pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state in "tT"

    def _pid(self) -> int:
        entered = self.popen.pid
        children = Path(f"/proc/{entered}/task/{entered}/children")
        eventually(lambda: children.read_text().strip(), _PATIENCE)
        return int(children.read_text())


class Server(Process):
    """``ucxstore serve`` on a host.

    Parameters
    ----------
    host : Host
    location : str
        What it serves.
    options : sequence of str
    output : Path
    environment : mapping
    """

    says = "serving"

    def __init__(
        self,
        host: Host,
        location: str,
        options: Sequence[str],
        output: Path,
        environment: Mapping[str, str],
    ) -> None:
        command = ["ucxstore", "serve", location, "--insecure", "--bind", host.place, *options]
        super().__init__(host, command, output, environment)

    @property
    def peak(self) -> int:
        """The most bytes that its process has had in memory."""
        lines = Path(f"/proc/{self._pid()}/status").read_text().splitlines()
        peak = dict(line.split(":", 1) for line in lines)["VmHWM"]
        return int(peak.split()[0]) << 10

    def drain(self) -> None:
        """Ask it to end, and see that it does so in time, with status 0."""
        self.expected_end = True
        self.send(signal.SIGTERM)
        begun = time.monotonic()
        status = self.popen.wait(_PATIENCE)
        seconds = time.monotonic() - begun
        if status != 0 or seconds > 60:
            with self.output.open("a") as file:
                file.write(f"Fatal: draining took {seconds:.1f} s, and ended with {status}\n")


class ClientProcess(Process):
    """A client on a host.

    Parameters
    ----------
    host : Host
    task : Task
    folder : Path
        Where its record goes.
    """

    def __init__(self, host: Host, task: Task, folder: Path) -> None:
        self.task = task
        self.host = host
        self.record = folder / f"record-{task.process}"
        command = ["tests.faults.client", str(self.record), json.dumps(asdict(task))]
        super().__init__(host, command, folder / f"client-{task.process}")

    def begin_end(self) -> None:
        """Tell it to finish."""
        self.expected_end = True
        assert self.popen.stdin is not None
        self.popen.stdin.close()

    def finish(self) -> list[str]:
        """Wait for its end, and return what was wrong with that."""
        try:
            status = self.popen.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()
            return [f"{self.output.name}: hangs"]
        return [] if status == 0 else [f"{self.output.name}: ended with status {status}"]
