"""UCX takes no signals from the programs that use it."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping

import pytest

CODE = """
import os, signal, sys
from pathlib import Path
from ucxstore import UcxStore
from ucxstore.server import Server

def caught():
    [line] = [each for each in Path("/proc/self/status").read_text().splitlines()
              if each.startswith("SigCgt")]
    return int(line.split()[1], 16)

before = caught()
with Server("memory://", ucx={"TLS": "tcp,sm,self"}) as server:
    with UcxStore(server.address, local="ucx") as store:
        store.ping_sync()
        assert any("tcp" in lane or "sysv" in lane for lane in store.stats()["lanes"])
        taken = caught() & ~before
        print([signal.Signals(n).name for n in range(1, 32) if taken >> (n - 1) & 1], flush=True)
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_DFL
        os.kill(os.getpid(), signal.SIGHUP)
        print("still here")
"""


def run(environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", CODE],
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_ucx_takes_no_signal() -> None:
    """A client and a server in one process, after both have used UCX."""
    done = run()
    assert done.stdout == "[]\n", done.stderr
    assert done.returncode == -signal.SIGHUP


@pytest.mark.parametrize(
    ("variable", "value", "taken"),
    [
        ("UCX_DEBUG_SIGNO", "SIGUSR2", "SIGUSR2"),
        ("UCX_HANDLE_ERRORS", "bt", "SIGSEGV"),
    ],
)
def test_who_wants_ucxs_handlers_gets_them(variable: str, value: str, taken: str) -> None:
    done = run({variable: value})
    assert taken in done.stdout.splitlines()[0]
