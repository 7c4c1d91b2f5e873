"""A server in a process of its own: started, watched over, ended."""

import os
import select
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import IO, Self

from ucxstore.options import UcxConfig, check_timeout
from ucxstore.secret import Secret
from ucxstore.server.sources.options import ScratchOptions, StorageOptions

START_SECONDS = 30.0
CLOSE_SECONDS = 15.0  # more than the process itself gives its clients to finish

# For a process that was forgotten: it must not keep the interpreter waiting for long.
_FORGOTTEN_SECONDS = 2.0

# The end of what the process wrote is kept for messages.
_OUTPUT_BYTES = 16 * 1024


class ServerProcess:
    """A server in a process of its own, which `Server.spawn` makes. A context manager.

    Attributes
    ----------
    address : str
        Where clients reach it: ``"ucx://127.0.0.1:41234"``.
    """

    address: str

    def __init__(
        self,
        root: str,
        bind: str,
        *,
        threads: int,
        secret: Secret | None,
        read_only: bool,
        insecure: bool,
        ucx: UcxConfig,
        shared: bool | None,
        storage: StorageOptions | None,
        scratch: ScratchOptions | None,
        die_with_parent: bool,
        start_timeout: float,
    ) -> None:
        deadline = time.monotonic() + check_timeout("start_timeout", start_timeout)
        arguments = ["--bind", bind, "--threads", str(threads), "--progress", ucx.progress]
        arguments += [f"--ucx={name}={value}" for name, value in ucx.options]
        arguments += ["--read-only"] * read_only + ["--insecure"] * insecure
        if shared is not None:
            arguments.append("--shared" if shared else "--no-shared")
        arguments += [] if storage is None else storage.arguments()
        arguments += [] if scratch is None else scratch.arguments()
        with ExitStack() as until_started:
            ready, ready_end = map(until_started.enter_context, _pipe())
            options = ["--ready-fd", str(ready_end.fileno())]
            inherited = [ready_end]
            if secret is not None:
                # By descriptor: neither the command line nor the environment shows it.
                secret_end = until_started.enter_context(_pipe_with(secret.reveal()))
                options += ["--secret-file", f"/dev/fd/{secret_end.fileno()}"]
                inherited.append(secret_end)
            on_failure = until_started.enter_context(ExitStack())
            self._lifeline: IO[bytes] | None = None
            if die_with_parent:
                parent_end, self._lifeline = _pipe()
                until_started.enter_context(parent_end)
                on_failure.enter_context(self._lifeline)
                options += ["--parent-fd", str(parent_end.fileno())]
                inherited.append(parent_end)
            self._output = on_failure.enter_context(tempfile.TemporaryFile())
            # The root last, and behind "--": a path may start with a dash.
            self._process = _start([*arguments, *options, "--", root], inherited, self._output)
            on_failure.callback(_end, self._process, self._lifeline, os.getpid(), 0.0)
            ready_end.close()  # the process has it alone: its end is the end of the process
            self.address = self._wait_until_ready(ready, deadline, start_timeout)
            on_failure.pop_all()
        weakref.finalize(self, self._output.close)
        self._finalizer = weakref.finalize(
            self, _end, self._process, self._lifeline, os.getpid(), _FORGOTTEN_SECONDS
        )
        if self._lifeline is None:
            self._finalizer.detach()  # it is to go on without us
        else:
            _lifelines.add(self._lifeline)

    def _wait_until_ready(self, ready: IO[bytes], deadline: float, seconds: float) -> str:
        line = b""
        while not line.endswith(b"\n"):
            left = max(deadline - time.monotonic(), 0.0)
            if not select.select([ready], [], [], left)[0]:
                raise TimeoutError(
                    f"the server process is not listening after {seconds:g} s: {self.output}"
                )
            part = ready.read(4096)
            if not part:
                raise ChildProcessError(
                    f"the server process did not start ({self._how_it_ended()}): {self.output}"
                )
            line += part
        return line.decode().strip()

    def _how_it_ended(self) -> str:
        try:
            status = self._process.wait(_FORGOTTEN_SECONDS)
        except subprocess.TimeoutExpired:
            return "it still runs"
        return f"killed by signal {-status}" if status < 0 else f"exit status {status}"

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """The process's exit status; negative for a signal, ``None`` while it runs."""
        return self._process.poll()

    @property
    def output(self) -> str:
        """The end of what the process has written to its standard output and error."""
        # Not by seeking: the process writes through the same position.
        size = os.fstat(self._output.fileno()).st_size
        tail = os.pread(self._output.fileno(), _OUTPUT_BYTES, max(size - _OUTPUT_BYTES, 0))
        return tail.decode(errors="replace").strip()

    def close(self, timeout: float = CLOSE_SECONDS) -> None:
        """Ask the process to finish, and kill it if it has not ended after `timeout` seconds."""
        self._finalizer.detach()
        _end(self._process, self._lifeline, os.getpid(), timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"ServerProcess(address={self.address!r}, pid={self.pid})"


def _start(
    arguments: Sequence[str], inherited: Sequence[IO[bytes]], output: IO[bytes]
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "ucxstore", "serve", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        pass_fds=[end.fileno() for end in inherited],
        process_group=0,  # Ctrl-C is for this process, which then ends the other
    )


def _end(
    process: subprocess.Popen[bytes], lifeline: IO[bytes] | None, owner: int, timeout: float
) -> None:
    if os.getpid() != owner:
        return  # a forked child: not its process
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if lifeline is not None:
        lifeline.close()


def _pipe() -> tuple[IO[bytes], IO[bytes]]:
    reader, writer = os.pipe()
    return os.fdopen(reader, "rb", buffering=0), os.fdopen(writer, "wb", buffering=0)


def _pipe_with(data: bytes) -> IO[bytes]:
    """Make a pipe that holds `data`, which must fit into one, and then ends."""
    reader, writer = _pipe()
    with writer:
        writer.write(data)
    return reader


# Write ends that processes watch for our end; a forked child would hold them open after us.
_lifelines: weakref.WeakSet[IO[bytes]] = weakref.WeakSet()


def _close_lifelines() -> None:
    for lifeline in list(_lifelines):
        lifeline.close()


os.register_at_fork(after_in_child=_close_lifelines)
