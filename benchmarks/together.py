"""Start processes that begin at the same time, and hear what they answer."""

import json
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

_CHILDREN = Path(__file__).with_name("children")
_TIMEOUT_SECONDS = 300.0


def script(name: str) -> list[str]:
    """Return the command of a child that imports nothing of ours but what it needs.

    It runs as a file, since `benchmarks.children` itself imports ucxstore. Without -P, modules
    beside it would hide others of the same name.
    """
    return [sys.executable, "-P", str(_CHILDREN / f"{name}.py")]


def run_all(name: str, tasks: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """Run a child for each task, all at the same time; return the seconds until the last has ended.

    Returns
    -------
    seconds, cpu_seconds : float
        The time of all, and the processor time of all together.
    """
    before = _cpu_seconds_of_children()
    start = time.perf_counter()
    with _started(name, tasks) as processes:
        statuses = [process.wait() for process in processes]
    seconds = time.perf_counter() - start
    if any(statuses):
        raise RuntimeError(f"{name}: of {len(tasks)} processes some failed: {statuses}")
    return seconds, _cpu_seconds_of_children() - before


class Group:
    """Processes that wait for a line, and answer with one of JSON."""

    def __init__(self, name: str, processes: Sequence[subprocess.Popen[str]]) -> None:
        self._name = name
        self._processes = processes

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes]

    def say(self, message: object) -> None:
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(f"{json.dumps(message)}\n")
            process.stdin.flush()

    def hear(self) -> list[Any]:
        """Return the next answer of each."""
        return [json.loads(self._line(process)) for process in self._processes]

    def _line(self, process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._name}: a process ended with status {process.wait()}")
        return line


@contextmanager
def group(name: str, tasks: Sequence[Mapping[str, Any]]) -> Iterator[Group]:
    """Start a child for each task, and wait until all are ready. The context's end ends them."""
    with _started(name, tasks, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as started:
        found = Group(name, started)
        found.hear()
        yield found
        for process in started:
            assert process.stdin is not None
            process.stdin.close()


@contextmanager
def _started(
    name: str, tasks: Sequence[Mapping[str, Any]], **options: Any
) -> Iterator[list[subprocess.Popen[Any]]]:
    """Start a child for each task. At the end wait for all; kill them if that takes too long."""
    processes: list[subprocess.Popen[Any]] = []

    def kill() -> None:
        for process in processes:
            process.kill()

    timer = threading.Timer(_TIMEOUT_SECONDS, kill)
    timer.daemon = True
    timer.start()
    try:
        with ExitStack() as stack:
            for task in tasks:
                process = subprocess.Popen([*script(name), json.dumps(task)], **options)
                processes.append(stack.enter_context(process))
            try:
                yield processes
            except BaseException:
                kill()
                raise
    finally:
        timer.cancel()


def _cpu_seconds_of_children() -> float:
    """Return the processor time of all children that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
