"""Measurements in a process of their own, where no memory is left from an earlier one.

Such a process gets its task on its standard input, and prints its answer, both as JSON.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

TIMEOUT_SECONDS = 300.0


class ChildError(RuntimeError):
    """A process failed; the message has what it wrote to its standard error."""


def module_command(module: str) -> list[str]:
    """Return the command that runs a module."""
    return [sys.executable, "-m", module]


def run_child(command: Sequence[str], task: object, *, timeout: float = TIMEOUT_SECONDS) -> Any:
    """Run a process to its end, and return its answer.

    Parameters
    ----------
    command : sequence of str
        The program and its arguments.
    task : object
        Whatever JSON can hold.
    timeout : float
        Seconds, after which the process is killed.

    Raises
    ------
    ChildError
        If it fails, or is not done in time.
    """
    try:
        done = subprocess.run(
            command,
            input=json.dumps(task),
            capture_output=True,
            text=True,
            timeout=timeout,
            process_group=0,  # Ctrl-C is for this process, which then kills the other
        )
    except subprocess.TimeoutExpired:
        raise ChildError(f"it was not done after {timeout:g} s") from None
    if done.returncode != 0:
        raise ChildError(done.stderr.strip() or f"it ended with status {done.returncode}")
    return json.loads(done.stdout)


def answer(main: Callable[..., object]) -> None:
    """Be the process: call `main` with the task's items, and print what it returns."""
    print(json.dumps(main(**json.load(sys.stdin))))
