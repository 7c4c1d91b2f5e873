"""Measurements that need a new process, and `run`, which starts one.

A child is a module with a ``main``. It reads a task from standard input and prints its answer, both
as JSON.
"""

from typing import Any

from ucxstore.copies.process import answer, module_command, run_child

__all__ = ["answer", "command", "run"]


def command(module: str) -> list[str]:
    return module_command(f"benchmarks.children.{module}")


def run(module: str, **task: Any) -> Any:
    """Run a child to its end and return its answer."""
    return run_child(command(module), task)
