"""Servers and clients that run out of something at a call that a test chooses: who, of what, where.

`scarce_pair` has what runs in their processes, and scarcity.c what makes their calls fail.
"""

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from enum import IntFlag
from pathlib import Path
from types import TracebackType
from typing import Any, Self

SECONDS = 100.0  # for one pair of processes


class Kind(IntFlag):
    """What runs out."""

    MEMORY = 1
    DESCRIPTORS = 2
    MAPPINGS = 4
    THREADS = 8
    DISK = 16


class Caller(IntFlag):
    """Whose calls fail."""

    CORE = 1
    UCX = 2
    OTHERS = 4


@dataclass(frozen=True)
class Case:
    """Who runs out of what.

    Parameters
    ----------
    victim : {"server", "client"}
    way : {"local", "shm", "tcp"}
    storage : {"memory", "directory"}
    kind, callers : int
        A `Kind`, and a `Caller`.
    """

    victim: str
    way: str
    storage: str
    kind: int
    callers: int


@dataclass
class Outcome:
    """What became of a server and a client.

    Parameters
    ----------
    counted, failed : int
        Calls that could have failed, and that did.
    report : str
        The first one that did.
    faults : list of str
        What must not have happened.
    errors : list of str
        The exceptions that were raised, as they may be.
    """

    counted: int = 0
    failed: int = 0
    report: str = ""
    faults: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


class Family:
    """A process that forks a server and a client for each run. A context manager.

    Parameters
    ----------
    library : Path
        scarcity.c, compiled.
    """

    def __init__(self, library: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.adversity.scarce_pair"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                "LD_PRELOAD": str(library),
                "OPENBLAS_NUM_THREADS": "1",
                "UCX_LOG_LEVEL": "fatal",
            },
        )

    def run(self, case: Case, n: int, failures: int = 1) -> Outcome:
        """Let the n-th call fail, and some more; with n = 0, the first of a new place."""
        return Outcome(**self._ask([asdict(case), n, failures]))

    def forget(self) -> None:
        """Take all places for new ones."""
        self._ask(None)

    def _ask(self, what: object) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: object, __: TracebackType | None
    ) -> None:
        self._process.communicate(timeout=SECONDS)
