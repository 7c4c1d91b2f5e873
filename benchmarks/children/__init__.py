"""Measurements that need a process of their own, and how to run one.

A child is a module with a ``main`` that takes a job from its standard input, as JSON, and prints
its answer, as JSON too.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

_TIMEOUT_SECONDS = 300.0


def command(module: str) -> list[str]:
    return [sys.executable, "-m", f"benchmarks.children.{module}"]


def run(module: str, **job: Any) -> Any:
    """Run a child to its end and return its answer."""
    done = subprocess.run(
        command(module),
        input=json.dumps(job),
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_SECONDS,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{module} failed with {done.returncode}:\n{done.stderr.strip()}")
    return json.loads(done.stdout)


def answer(main: Callable[..., Any]) -> None:
    """Be the child."""
    print(json.dumps(main(**json.load(sys.stdin))))
