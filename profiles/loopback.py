"""Run a program that listens on loopback: start it, wait for its port, end it."""

import contextlib
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

HOST = "127.0.0.1"

# The first and the last of the ports that the system gives (ip(7)); and ports above those that
# services have.
GIVEN_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")
_FIRST_PORT = 10_000
_TRIES = 100

# A server in Python may import for seconds where the disk is cold.
START_SECONDS = 60.0
_CLOSE_SECONDS = 10.0
_LOG_LINES = 12

# Let the kernel end the program with the thread that started it, even if our `finally` does not
# run. This runs between fork and exec, since `preexec_fn` may deadlock with other threads.
_DIE_WITH_PARENT = """
import ctypes, os, signal, sys
PR_SET_PDEATHSIG = 1
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""


def free_port() -> int:
    """Return a port that is free now, and that the system gives to nobody in the meantime.

    It gives ports of its own choice to whoever connects, or binds port 0. A program may take
    seconds until it binds the port that it was told.

    Raises
    ------
    OSError
        If none can be bound.
    """
    first_given = int(GIVEN_PORTS.read_text().split()[0])
    choices = max(first_given - _FIRST_PORT, 0)
    for _ in range(_TRIES if choices else 0):
        with contextlib.suppress(OSError):
            return _bind(_FIRST_PORT + secrets.randbelow(choices))
    return _bind(0)  # it may give any of them: let it choose


def _bind(port: int) -> int:
    with socket.socket() as probe:
        probe.bind((HOST, port))
        bound: int = probe.getsockname()[1]
        return bound


@contextlib.contextmanager
def listening(
    command: Sequence[str], environment: Mapping[str, str], port: int, log: Path
) -> Iterator[int]:
    """Run a program during the block, which begins once it listens. Yields its process id.

    Parameters
    ----------
    command : sequence of str
        The program's absolute path, and its arguments.
    environment : mapping
        All of its environment.
    port : int
        The port on loopback where the command lets it listen.
    log : Path
        A file for its standard output and error.

    Raises
    ------
    ChildProcessError
        If it ends first; the message has the end of its log.
    TimeoutError
        If it does not listen after 60 s.
    """
    process = _start(command, environment, log)
    try:
        _wait_for_port(port, process, log)
        yield process.pid
    finally:
        _end(process)


def last_lines(log: Path) -> str:
    """Return the last lines of a log for a message, each after a newline; ``""`` if it is empty."""
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
            process_group=0,  # Ctrl-C reaches only this process, which then ends the program
        )


def _wait_for_port(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection((HOST, port), timeout=1.0):
            # Check this after the port: our program may have failed, and another may listen there.
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
