"""Run a measurement in a child process, so that it has no memory of an earlier one.

The child reads its task from standard input and prints its answer, both as JSON.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

TIMEOUT_SECONDS = 300.0


class ChildError(RuntimeError):
    """A child process failed; the message has its standard error."""


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
        A dict that can be written as JSON.
    timeout : float
        Seconds after which the process is killed.

    Raises
    ------
    ChildError
        If it fails, or does not end in time.
    """
    try:
        done = subprocess.run(
            command,
            input=json.dumps(task),
            capture_output=True,
            text=True,
            timeout=timeout,
            process_group=0,  # Ctrl-C reaches only this process, which then kills the child
        )
    except subprocess.TimeoutExpired:
        raise ChildError(f"it did not end within {timeout:g} s") from None
    if done.returncode != 0:
        raise ChildError(done.stderr.strip() or f"it ended with status {done.returncode}")
    return json.loads(done.stdout)


def answer(main: Callable[..., object]) -> None:
    """Run the child's side: call `main` with the items of the task, and print what it returns."""
    print(json.dumps(main(**json.load(sys.stdin))))
