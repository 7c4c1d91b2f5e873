"""Processes that stand still."""

import os
import signal
from pathlib import Path

from tests.eventually import eventually


def stop(pid: int) -> None:
    """Stop a process, and see that all its threads are: that takes the first of them to run."""
    os.kill(pid, signal.SIGSTOP)
    eventually(lambda: stands(pid))


def stands(pid: int) -> bool:
    """Tell whether all threads of a process are stopped."""
    return all(_state(task) in "tT" for task in Path(f"/proc/{pid}/task").iterdir())


def _state(task: Path) -> str:
    return (task / "stat").read_text().rpartition(")")[2].split()[0]
