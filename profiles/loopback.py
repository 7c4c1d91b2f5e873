"""A program that listens on loopback, in a process of its own: started, awaited, ended."""

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

HOST = "127.0.0.1"

# A server in Python may import for seconds where the disk is cold.
START_SECONDS = 60.0
_CLOSE_SECONDS = 10.0
_LOG_LINES = 12

# The kernel ends the program with the thread that started it, whatever becomes of our `finally`.
# This runs between fork and exec: `preexec_fn` may deadlock beside other threads.
_DIE_WITH_PARENT = """
import ctypes, os, signal, sys
PR_SET_PDEATHSIG = 1
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""


def free_port() -> int:
    """Return a port that nobody listened at just now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.contextmanager
def listening(
    command: Sequence[str], environment: Mapping[str, str], port: int, log: Path
) -> Iterator[int]:
    """Run a program for as long as the block does, once it listens; its process id is the value.

    Parameters
    ----------
    command : sequence of str
        The program's absolute path, and its arguments.
    environment : mapping
        All of its environment.
    port : int
        Where it has been told to listen on loopback.
    log : Path
        Gets what it writes to its standard output and error.

    Raises
    ------
    ChildProcessError
        It ended instead. The message has the end of its log.
    TimeoutError
        It does not listen after 60 s.
    """
    process = _start(command, environment, log)
    try:
        _wait_for_port(port, process, log)
        yield process.pid
    finally:
        _end(process)


def last_lines(log: Path) -> str:
    """Return the end of a log for a message, each line on one of its own; ``""`` if it is empty."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return "".join(f"\n  {line}" for line in lines[-_LOG_LINES:])


def _start(
    command: Sequence[str], environment: Mapping[str, str], log: Path
) -> subprocess.Popen[bytes]:
    wrapper = [sys.executable, "-I", "-c", _DIE_WITH_PARENT, str(os.getpid())]
    with log.open("wb") as output:
        return subprocess.Popen(
            [*wrapper, *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment,
            process_group=0,  # Ctrl-C is for this process, which then ends the other
        )


def _wait_for_port(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection((HOST, port), timeout=1.0):
            # Asked after the port: else somebody else may listen there, and ours have failed.
            if process.poll() is None:
                return
        if (status := process.poll()) is not None:
            raise ChildProcessError(f"it ended with status {status}:{last_lines(log)}")
        time.sleep(0.02)
    raise TimeoutError(f"it does not listen after {START_SECONDS:g} s:{last_lines(log)}")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_CLOSE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
