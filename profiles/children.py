"""Start the processes of a case: the client, and the server whose copies are counted."""

import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from profiles.child import Spec
from profiles.s3 import environment_of
from ucxstore.copies import Counts
from ucxstore.copies.process import TIMEOUT_SECONDS, ChildError, module_command, run_child

_CLOSE_SECONDS = 30.0


class CaseError(Exception):
    """A case cannot be run; the message goes into the report."""


def run_client(
    spec: Spec, folder: Path, *, at: Mapping[str, Callable[[], object]] | None = None
) -> dict[str, Any]:
    """Run the client of a case, and return its answer, which goes through a file in `folder`.

    Parameters
    ----------
    at : mapping or None
        Functions to call when the client is ``"connected"`` and ``"done"``; it waits meanwhile.

    Raises
    ------
    ChildError
        If it fails, or does not end in time.
    """
    answer = folder / "answer.json"
    command = [*module_command("profiles.child"), spec.to_json(), str(answer)]
    log = folder / "errors.txt"
    with log.open("w") as errors:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
        )
    with process, _deadline(process, TIMEOUT_SECONDS):
        for line in process.stdout or ():
            (at or {}).get(line.strip(), lambda: None)()
            with suppress(BrokenPipeError):
                assert process.stdin is not None
                process.stdin.write("\n")
                process.stdin.flush()
    if process.returncode != 0:
        raise ChildError(log.read_text().strip() or f"it ended with status {process.returncode}")
    result: dict[str, Any] = json.loads(answer.read_text())
    return result


def count_elsewhere(capture: Path, **options: Any) -> Counts:
    """Count the copies in a capture, in a new process.

    memray keeps the symbols that it reads, some 50 MB a capture. The options are those of
    `ucxstore.copies.counting.count`.
    """
    task = {"capture": str(capture), **options}
    return Counts.from_json(run_child(module_command("ucxstore.copies.counting"), task))


@contextmanager
def _deadline(process: subprocess.Popen[str], seconds: float) -> Iterator[None]:
    """Kill a process after some time, or when the block fails."""
    timer = threading.Timer(seconds, process.kill)
    timer.daemon = True
    timer.start()
    try:
        yield
    except BaseException:
        process.kill()
        raise
    finally:
        timer.cancel()


class MeasuredServer:
    """A server in a process of its own that tracks its memory on command."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.address = str(self._answer()["address"])

    def send(self, command: str) -> dict[str, Any]:
        """Send a command, and return the answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise CaseError(f"the server ended with status {self._process.wait(_CLOSE_SECONDS)}")
        result: dict[str, Any] = json.loads(line)
        return result


@contextmanager
def serving(
    location: str, options: Mapping[str, Any], s3: Mapping[str, str] | None = None
) -> Iterator[MeasuredServer]:
    """Start a server of a location, with these options; leaving the context ends it.

    `s3` is the access to an S3 server, as for `profiles.stores.opened`.
    """
    command = [*module_command("profiles.serving"), location, json.dumps(options)]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | (environment_of(s3) if s3 else {}),  # others can see a command line
    )
    # Longer than its clients may take. When it is killed, a wait for its answer ends.
    with process, _deadline(process, 3 * TIMEOUT_SECONDS):
        yield MeasuredServer(process)
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(_CLOSE_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise CaseError(f"the server did not end within {_CLOSE_SECONDS:g} s") from error
