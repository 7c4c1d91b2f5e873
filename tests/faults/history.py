"""Histories: what each process asked for, when, and what came back.

A process writes two lines for each operation to a file of its own: one before it begins, one after
its end. So what a process had begun when it was killed is known, too. Times are nanoseconds of
CLOCK_MONOTONIC, which is one clock for all processes of a machine.
"""

import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from typing import Any

# Kinds of operations. `LOSE` is no client's: the harness accepts that a server's values are lost.
SET, ADD, DELETE, GET, LOSE = "set", "add", "delete", "get", "lose"

# Errors of what was never sent to a server.
_NOT_SENT = ("ConnectError", "NotAServerError", "ServerRestartedError")

# Not the end of an operation, as far as anybody knows.
UNKNOWN = -1


@dataclass(slots=True)
class Operation:
    """An operation on one key.

    Attributes
    ----------
    process : int
    kind : str
    key : str
    number : int
        What it wrote; 0 for the others.
    found : int
        What it read, or whether `ADD` has written.
    call, end : int
        Nanoseconds. `UNKNOWN` for the end of one that failed: it may have an effect until then.
    error : str
        The name of the exception.
    seconds : float
        What it took, however it ended.
    """

    process: int
    kind: str
    key: str
    number: int
    found: int
    call: int
    end: int
    error: str
    seconds: float


class Recorder:
    """The file of one process.

    Parameters
    ----------
    path : Path
    """

    def __init__(self, path: Path) -> None:
        # By the line: what was written is in the kernel's hands when the process is killed.
        self._file: TextIOWrapper = path.open("w", buffering=1)

    def begin(self, kind: str, key: str, number: int = 0) -> None:
        """Note that an operation begins."""
        self._write([kind, key, number, time.monotonic_ns()])

    def end(self, found: int = 0, error: str = "", text: str = "") -> None:
        """Note that it has ended."""
        self._write([time.monotonic_ns(), found, error, text])

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _write(self, fields: list[Any]) -> None:
        self._file.write(json.dumps(fields) + "\n")


def operations_of(path: Path, process: int) -> Iterator[Operation]:
    """Yield the operations of a process that a `Recorder` has written."""
    begun: list[Any] | None = None
    for line in path.read_text().splitlines():
        try:
            fields = json.loads(line)
        except json.JSONDecodeError:
            continue  # the last line of a process that was killed
        if isinstance(fields[0], str):
            begun = fields
            continue
        assert begun is not None, f"{path}: an end without a beginning"
        kind, key, number, call = begun
        end, found, error, _ = fields
        seconds = (end - call) / 1e9
        known = UNKNOWN if error else end
        yield Operation(process, kind, key, number, found, call, known, error, seconds)
        begun = None
    if begun is not None:
        kind, key, number, call = begun
        yield Operation(process, kind, key, number, 0, call, UNKNOWN, "unfinished", 0.0)


def write_history(path: Path, operations: Iterable[Operation], *, shared: bool) -> None:
    """Write operations for the checker: a line for each, as it reads them.

    A read that failed says nothing, so it is left out. So is what was never sent. Where servers
    stand in for one another, nobody knows that: it may have been sent to the one before.
    """
    with path.open("w") as file:
        for one in operations:
            if one.kind == GET and one.end == UNKNOWN:
                continue
            if one.error in _NOT_SENT and not shared:
                continue
            fields = [one.process, one.kind, one.number, one.found, one.call, one.end, one.key]
            file.write("\t".join(map(str, fields)) + "\n")
