"""The processes of a case: the child that does it, and the server that is counted."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from ucxstore.copies.child import Spec
from ucxstore.copies.result import Counts

_CASE_SECONDS = 300.0
_SERVER_SECONDS = 30.0


class CaseError(Exception):
    """A case that failed, or cannot be: its message goes into the report."""


def run_child(
    spec: Spec, folder: Path, *, at: Mapping[str, Callable[[], object]] | None = None
) -> dict[str, Any]:
    """Run a child, and return its answer, which goes through a file in `folder`.

    Parameters
    ----------
    at : mapping or None
        What to do when the child is ``"connected"``, and when it is ``"done"``, while it waits.

    Raises
    ------
    CaseError
        With the last line of what it said, where it failed.
    """
    answer = folder / "answer.json"
    command = [sys.executable, "-m", "ucxstore.copies.child", spec.to_json(), str(answer)]
    with _process(command, folder) as process:
        for line in process.stdout or ():
            (at or {}).get(line.strip(), lambda: None)()
            with suppress(BrokenPipeError):
                assert process.stdin is not None
                process.stdin.write("\n")
                process.stdin.flush()
    result: dict[str, Any] = json.loads(answer.read_text())
    return result


def count_elsewhere(capture: Path, folder: Path, **options: Any) -> Counts:
    """Count in a process of its own: memray keeps the symbols that it reads, some 50 MB a capture.

    Takes the options of `ucxstore.copies.counting.count`.
    """
    spec = json.dumps({"capture": str(capture), **options})
    command = [sys.executable, "-m", "ucxstore.copies.counting", spec]
    return Counts.from_json(json.loads(run_program(command, folder)))


def run_program(command: list[str], folder: Path) -> str:
    """Run a program, and return what it printed.

    Raises
    ------
    CaseError
        With the last line of what it said, where it failed.
    """
    with _process(command, folder) as process:
        assert process.stdout is not None
        return process.stdout.read()


@contextmanager
def _process(command: list[str], folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Start a program; see that it ends, and well."""
    log = folder / "errors.txt"
    with log.open("w") as errors:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
        )
    with process:
        deadline = threading.Timer(_CASE_SECONDS, process.kill)
        deadline.start()
        try:
            yield process
        except BaseException:
            process.kill()
            raise
        finally:
            deadline.cancel()
    if process.returncode != 0:
        lines = log.read_text().strip().splitlines()
        raise CaseError(lines[-1] if lines else f"it ended with status {process.returncode}")


class MeasuredServer:
    """A server in a process of its own, which counts when it is told to."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.address = str(self._answer()["address"])

    def tell(self, command: str) -> dict[str, Any]:
        """Have it do something, and return what it says."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise CaseError(f"the server ended with status {self._process.wait(_SERVER_SECONDS)}")
        result: dict[str, Any] = json.loads(line)
        return result


def _environment(s3: Mapping[str, str]) -> dict[str, str]:
    """Return what sets obstore up: by the environment, since everybody can see a command line."""
    names = {
        "endpoint": "AWS_ENDPOINT_URL",
        "access_key": "AWS_ACCESS_KEY_ID",
        "secret_key": "AWS_SECRET_ACCESS_KEY",
        "region": "AWS_REGION",
    }
    return {names[name]: value for name, value in s3.items()} | (
        {"AWS_ALLOW_HTTP": "true"} if s3 else {}
    )


@contextmanager
def serving(
    root: str, ucx: dict[str, str], s3: Mapping[str, str] | None = None
) -> Iterator[MeasuredServer]:
    """Start a server of `root`, with these UCX options; it ends with the context.

    `s3` is how it reaches an S3 server, as for `ucxstore.copies.stores.opened`.
    """
    command = [sys.executable, "-m", "ucxstore.copies.serving", root, json.dumps(ucx)]
    with ExitStack() as stack:
        # Longer than its clients may take: then whoever waits for its answer sees its end.
        deadline = threading.Timer(3 * _CASE_SECONDS, lambda: process.kill())
        deadline.daemon = True
        stack.callback(deadline.cancel)
        process = stack.enter_context(
            subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=os.environ | _environment(s3 or {}),
            )
        )
        stack.callback(process.kill)  # where it does not end by itself
        deadline.start()
        yield MeasuredServer(process)
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(_SERVER_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise CaseError(f"the server did not end within {_SERVER_SECONDS:g} s") from error
