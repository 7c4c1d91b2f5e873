"""Runs the command line in a process of its own."""

import os
import subprocess
import sys
from collections.abc import Mapping

COMMAND = [sys.executable, "-m", "ucxstore"]


def run(
    *arguments: object, env: Mapping[str, str] | None = None, timeout: float = 60
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env={**os.environ, **(env or {})},
    )
