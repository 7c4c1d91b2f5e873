"""Connections of UCX over TCP that end just as they are made: they fail, and nothing crashes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.adversity.resetting import ROUNDS
from tests.durability.recording import preload

SHIM = Path(__file__).with_name("reset.c")


@pytest.mark.parametrize("what", ["connections", "servers", "requests"])
def test_a_connection_that_ends_as_it_is_made(what: str, tmp_path: Path) -> None:
    """The client gets an exception, each time; the server goes on, if it was not killed."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.adversity.resetting", what],
        env={**os.environ, "LD_PRELOAD": str(preload(SHIM, tmp_path))},
        cwd=SHIM.parents[2],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, f"{ROUNDS}\n"), done.stderr
