"""Measurements that need a process of their own, and how to run one.

A child is a module with a ``main`` that takes a task from its standard input, as JSON, and prints
its answer, as JSON too.
"""

from typing import Any

from ucxstore.copies.process import answer, module_command, run_child

__all__ = ["answer", "command", "run"]


def command(module: str) -> list[str]:
    return module_command(f"benchmarks.children.{module}")


def run(module: str, **task: Any) -> Any:
    """Run a child to its end and return its answer."""
    return run_child(command(module), task)
