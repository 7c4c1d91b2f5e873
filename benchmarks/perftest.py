"""Run ``ucx_perftest``, UCX's own benchmark, to measure what a transport can do."""

import csv
import os
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from profiles.loopback import HOST, free_port
from ucxstore.base import ucx_library as _ucx

_TIMEOUT_SECONDS = 120.0
_START_SECONDS = 10.0


class Ends(NamedTuple):
    """Where a test runs: the server's address, and what goes before the command of each side."""

    host: str = HOST
    server: Sequence[str] = ()
    client: Sequence[str] = ()


_LOOPBACK = Ends()


def seconds_a_message(
    test: str, nbytes: int, messages: int, settings: Mapping[str, str], ends: Ends = _LOOPBACK
) -> float:
    """Run a test between two processes, with peer error handling.

    Parameters
    ----------
    test : str
        ``"ucp_am_bw"`` (one message after the other) or ``"ucp_am_lat"`` (there and back).
    nbytes, messages : int
        The size of each message, and how many are timed.
    settings : mapping
        Environment variables of UCX.
    ends : Ends
        By default both processes are on loopback.

    Returns
    -------
    float
        The time for each message, one way, on average.
    """
    program, libraries = _find()
    path = [str(libraries), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    environment = {**os.environ, **settings, "LD_LIBRARY_PATH": ":".join(path)}
    port = str(free_port())
    options = ["-t", test, "-s", str(nbytes), "-n", str(messages), "-w", "2", "-e"]
    command = [program, *options, "-p", port, "-f", "-v"]
    server = subprocess.Popen(
        [*ends.server, *command],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        client = [*ends.client, command[0], ends.host, *command[1:]]
        answer = _run_client(client, environment, server)
        server.communicate(timeout=_START_SECONDS)
    finally:
        server.kill()
        server.wait()
    (result,) = csv.DictReader(answer.splitlines())
    return float(result["overall_lat"]) / 1e6


def _run_client(
    command: list[str], environment: Mapping[str, str], server: subprocess.Popen[str]
) -> str:
    """Run the client; run it again if the server does not listen yet."""
    deadline = time.monotonic() + _START_SECONDS
    while True:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS
        )
        if done.returncode == 0:
            return done.stdout
        if server.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"{' '.join(command)} failed: {done.stdout}{done.stderr}")
        time.sleep(0.05)


def _find() -> tuple[str, Path]:
    """Return the program that belongs to the library in use, and the library's folder."""
    libraries = _ucx.load().path.resolve().parent
    beside = libraries.parent / "bin" / "ucx_perftest"
    program = str(beside) if beside.exists() else shutil.which("ucx_perftest")
    if program is None:
        raise FileNotFoundError(f"no ucx_perftest, neither {beside} nor on PATH")
    return program, libraries
