"""A server whose writes and flushes are recorded, beside what its clients were told."""

import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

RECORDER = Path(__file__).with_name("recorder.c")

_SERVE = """
import sys
from ucxstore import Server
with Server(sys.argv[1], durability=sys.argv[2], threads=2, ucx_shared_memory=True) as server:
    print(server.address, flush=True)
    sys.stdin.read()
"""


def preload(source: Path, folder: Path, *libraries: str) -> Path:
    """Compile a library that is to be preloaded; skip the test where there is no compiler.

    Parameters
    ----------
    source, folder : Path
    *libraries : str
        What it needs besides, as the linker takes it.
    """
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    library = folder / f"{source.stem}.so"
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl", "-lpthread"]
    command += ["-Wl,--no-as-needed", *libraries]
    subprocess.run(command, check=True)
    return library


class Recorded:
    """A server of a directory in a process that a library was preloaded into.

    Parameters
    ----------
    root : Path
    durability : str
    library : Path
    folder : Path
        Where the record goes.
    **environment : str
        More variables of the process.
    """

    def __init__(
        self, root: Path, durability: str, library: Path, folder: Path, **environment: str
    ) -> None:
        root.mkdir()
        self.root_inode = root.stat().st_ino
        self.record = folder / "record"
        self._notes = os.open(self.record, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SERVE, root, durability],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                "LD_PRELOAD": str(library),
                "FILE_RECORD": str(self.record),
                **environment,
            },
        )
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().strip()

    def note(self, what: str) -> None:
        """Write a line into the record, between the server's events."""
        os.write(self._notes, f"{what}\n".encode())

    @property
    def lives(self) -> bool:
        return self._process.poll() is None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with suppress(BrokenPipeError):
            assert self._process.stdin is not None
            self._process.stdin.close()
        try:
            self._process.wait(60)
        finally:
            self._process.kill()
            self._process.wait()
            if self._process.stdout is not None:
                self._process.stdout.close()
            os.close(self._notes)
