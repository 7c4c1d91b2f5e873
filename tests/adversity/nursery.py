"""Processes that are forked from one that has everything imported, and so start at once.

The fork server runs in Python's development mode with warnings as errors, and so do the processes.
"""

import array
import ctypes
import faulthandler
import importlib
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from tests.stopping import stop

ROOT = Path(__file__).parents[2]

DEVELOPMENT_MODE = ["-X", "dev", "-W", "error"]

# What no process of ours may print, whatever happens to its peers. (That a peer is gone, UCX
# itself sometimes says as an error.)
UNWELCOME = (
    "Traceback",
    "Exception ignored",
    "Fatal Python error",
    "Warning:",
    "terminate called",
    "Assertion",
    "backtrace",
    "UCX  FATAL",
)

_PRELOAD = (
    "tests.adversity.clients",
    "tests.adversity.deaths.processes",
    "tests.adversity.greedy.jobs",
    "tests.adversity.servers",
    "tests.adversity.transfers",
    "ucxstore.base.native",
)
# As a program that is given by itself: Python then ends as such a program does.
_PROGRAM = f"""
from {__name__} import _main
do = _main()
do and do()
"""
_PR_SET_PDEATHSIG = 1


class HasFileno(Protocol):
    def fileno(self) -> int: ...


class Child:
    """A process that runs one function, with a channel to it."""

    def __init__(self, pid: int, channel: Connection, output: Path, nursery: "Nursery") -> None:
        self.pid = pid
        self.channel = channel
        self._output = output
        self._nursery = nursery
        self._pidfd = os.pidfd_open(pid)
        self._status: int | None = None

    def ask(self, question: object, seconds: float = 60.0) -> Any:
        """Send something, and return what comes back."""
        self.channel.send(question)
        return self.hear(seconds)

    def hear(self, seconds: float = 60.0) -> Any:
        """Return what the process says next."""
        if not self.channel.poll(seconds):
            raise AssertionError(f"process {self.pid} says nothing; it wrote: {self.output}")
        try:
            return self.channel.recv()
        except EOFError:
            status = self.wait()
            raise AssertionError(
                f"process {self.pid} ended with {status}; it wrote: {self.output}"
            ) from None

    def kill(self) -> None:
        """End it as the kernel does for want of memory, and see that it is gone."""
        os.kill(self.pid, signal.SIGKILL)
        assert self.wait() == -signal.SIGKILL

    def stop(self) -> None:
        """Stop it, and see that all its threads are."""
        stop(self.pid)

    def go_on(self) -> None:
        """Let it run again."""
        os.kill(self.pid, signal.SIGCONT)

    def has_ended(self) -> bool:
        """Whether it has ended, however it did."""
        return self._status is not None or bool(select.select([self._pidfd], [], [], 0)[0])

    def wait(self, seconds: float = 60.0) -> int:
        """Wait for its end, and return its exit status; negative for a signal."""
        if self._status is None:
            # Either it is gone, or its parent has not waited for it yet.
            assert select.select([self._pidfd], [], [], seconds)[0], (
                f"process {self.pid} still runs; it wrote: {self.output}"
            )
            self._status = self._nursery.status_of(self.pid)
            self.channel.close()
            os.close(self._pidfd)
        return self._status

    def close(self) -> None:
        """End it if it runs, and see that it printed nothing that it should not."""
        if self._status is None:
            self.go_on()
            self.channel.close()  # which tells it to end
            self.channel = Connection(os.open(os.devnull, os.O_RDWR))
            assert self.wait() == 0, self.output
        assert not any(word in self.output for word in UNWELCOME), self.output

    def end(self) -> None:
        """End it at once, whatever it waits for."""
        if self._status is None:
            os.kill(self.pid, signal.SIGKILL)
            self.wait()

    @property
    def output(self) -> str:
        """All that the process has written to its standard output and error."""
        return self._output.read_text(errors="replace")

    @property
    def resident(self) -> int:
        """Bytes of memory of its own: files and shared memory don't count."""
        fields = Path(f"/proc/{self.pid}/status").read_text().split()
        return int(fields[fields.index("RssAnon:") + 1]) * 1024

    @property
    def descriptors(self) -> int:
        """How many files the process has open."""
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))


class Nursery:
    """The fork server. A context manager; its processes end with it.

    Parameters
    ----------
    outputs : Path
        A folder for what its processes write.
    preload : Path or None
        A library that is preloaded into it.
    """

    def __init__(self, outputs: Path, preload: Path | None = None) -> None:
        self._outputs = outputs
        self._count = 0
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # With threads of numpy's, every fork would be of a process with threads.
        env = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
        if preload is not None:
            env["LD_PRELOAD"] = str(preload)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, *DEVELOPMENT_MODE, "-c", _PROGRAM, str(theirs.fileno())],
                cwd=ROOT,
                pass_fds=[theirs.fileno()],
                env=env,
            )

    def start(self, job: Callable[..., None], *arguments: object) -> Child:
        """Run ``job(channel, *arguments)``, a function of a module, in a new process."""
        self._count += 1
        output = self._outputs / f"{self._count}-{job.__name__}"
        ours, theirs = socket.socketpair()
        with theirs, output.open("wb") as file:
            pid = self.fork(_run_job, [theirs, file], job, arguments)
        return Child(pid, Connection(ours.detach()), output, self)

    def fork(
        self, function: Callable[..., None], files: Sequence[HasFileno], *arguments: object
    ) -> int:
        """Have a process call ``function(*descriptors of files, *arguments)``."""
        descriptors = array.array("i", [file.fileno() for file in files])
        request = pickle.dumps((function, arguments))
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)]
        self._socket.sendmsg([request], rights)
        return int(pickle.loads(self._socket.recv(4096)))

    def status_of(self, pid: int) -> int:
        """Return the exit status of a process that has ended."""
        self._socket.send(pickle.dumps(pid))
        return int(pickle.loads(self._socket.recv(4096)))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._socket.close()
        assert self._process.wait(60) == 0


def _main() -> Callable[[], None] | None:
    """Fork on demand; in a child, return what it is to do."""
    for module in _PRELOAD:
        importlib.import_module(module)
    with socket.socket(fileno=int(sys.argv[1])) as requests:
        while True:
            message, rights, _, _ = requests.recvmsg(1 << 16, socket.CMSG_SPACE(64))
            if not message:
                return None
            request = pickle.loads(message)
            if isinstance(request, int):
                _, status = os.waitpid(request, 0)
                requests.send(pickle.dumps(os.waitstatus_to_exitcode(status)))
                continue
            descriptors = array.array("i")
            descriptors.frombytes(rights[0][2])
            pid = os.fork()
            if pid == 0:
                ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
                function, arguments = request
                return partial(function, *descriptors, *arguments)
            for descriptor in descriptors:
                os.close(descriptor)
            requests.send(pickle.dumps(pid))


def _run_job(
    channel: int, output: int, job: Callable[..., None], arguments: tuple[object, ...]
) -> None:
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    faulthandler.enable()
    with Connection(channel) as connection:
        job(connection, *arguments)
