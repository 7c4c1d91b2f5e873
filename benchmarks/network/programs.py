"""The programs of the measurement: the C++ ones are compiled, and all speak in lines of JSON."""

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ucxstore.base import ucx_library

ROOT = Path(__file__).parents[2]
_FOLDER = Path(__file__).parent
_BUILT = ROOT / "build" / "network"

_ANSWER_SECONDS = 120.0
_END_SECONDS = 10.0
_COMPILE_SECONDS = 120.0
_SHOWN_ERRORS = 2000  # characters


class ProgramError(RuntimeError):
    """A program ended, or did not answer; the message has its last words."""


class Program:
    """A child process that answers lines with lines, and ends with its input.

    Parameters
    ----------
    command : sequence of str
    environment : mapping
        Variables beside those of this process.
    """

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # close() closes it
        self._line = b""
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=ROOT,
            env={**os.environ, **(environment or {})},
            process_group=0,  # Ctrl-C reaches only this process, which then ends the child
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def say(self, message: object) -> None:
        """Send a line."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{json.dumps(message)}\n".encode())
            self._process.stdin.flush()
        except BrokenPipeError:
            raise ProgramError(self._last_words("it has ended")) from None

    def hear(self, seconds: float = _ANSWER_SECONDS) -> Any:
        """Return the next answer.

        Raises
        ------
        ProgramError
            If there is none within so many seconds.
        """
        assert self._process.stdout is not None
        end = time.monotonic() + seconds
        while b"\n" not in self._line:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self._process.stdout], [], [], left)[0]:
                raise ProgramError(self._last_words(f"no answer within {seconds:g} s"))
            read = os.read(self._process.stdout.fileno(), 1 << 20)
            if not read:
                status = self._process.wait(_END_SECONDS)
                raise ProgramError(self._last_words(f"it has ended with status {status}"))
            self._line += read
        line, _, self._line = self._line.partition(b"\n")
        return json.loads(line)

    def close(self) -> None:
        """End the input, and wait for the program's end; kill it if that takes too long."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _last_words(self, what: str) -> str:
        self._errors.seek(0)
        words = self._errors.read().decode(errors="replace").strip()
        # Of a traceback, the last line says the most.
        return f"{what}: {words[-_SHOWN_ERRORS:]}" if words else what


def python(module: str, task: object) -> list[str]:
    """Return the command of a module of this folder."""
    return [sys.executable, "-m", f"benchmarks.network.{module}", json.dumps(task)]


@cache
def raw_tcp() -> str:
    """Compile ``raw_tcp.cpp``, and return the program."""
    return _compile("raw_tcp", [])


@cache
def ucx_messages() -> str:
    """Compile ``ucx_messages.cpp`` for the UCX in use, and return the program."""
    libraries = ucx_library.load().path.resolve().parent
    headers = libraries.parent / "include"
    names = [str(libraries / f"lib{name}.so.0") for name in ("ucp", "ucs")]
    return _compile("ucx_messages", ["-isystem", str(headers), *names, f"-Wl,-rpath,{libraries}"])


def _compile(name: str, options: Sequence[str]) -> str:
    _BUILT.mkdir(parents=True, exist_ok=True)
    # Another process may run it, or compile it too.
    new = _BUILT / f"{name}-{os.getpid()}"
    compiler = os.environ.get("CXX", "c++")
    command = [compiler, "-std=c++20", "-O2", "-pthread", str(_FOLDER / f"{name}.cpp"), *options]
    done = subprocess.run(
        [*command, "-o", str(new)],
        capture_output=True,
        text=True,
        check=False,
        timeout=_COMPILE_SECONDS,
    )
    if done.returncode != 0:
        raise ProgramError(f"{name}.cpp was not compiled: {done.stderr[-_SHOWN_ERRORS:]}")
    return str(new.replace(_BUILT / name))
