"""`PidFile`: a file with the id of a process that serves."""

import fcntl
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Self


class PidFile:
    """A file with this process's id. A context manager; leaving it removes the file.

    The process holds a lock on the file. So a file that a killed process has left is known by its
    missing lock, whoever has the process's id by now.

    Parameters
    ----------
    path : str

    Raises
    ------
    OSError
        If a process that lives has the file, it has something else in it, or it cannot be read. The
        message starts with "pid_file".
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._check()
        self._file: int | None = None

    def write(self) -> None:
        """Write the file, whole."""
        self._check()
        unfinished = self._path.with_name(f".{self._path.name}.{secrets.token_hex(8)}")
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            self._file = os.open(unfinished, flags, 0o644)
        except OSError as error:
            raise self._failure(error) from error
        try:
            os.write(self._file, f"{os.getpid()}\n".encode())
            fcntl.flock(self._file, fcntl.LOCK_EX)
            unfinished.replace(self._path)
        except OSError:
            unfinished.unlink(missing_ok=True)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the file, unless another process has replaced it."""
        if self._file is None:
            return
        with suppress(OSError):
            if self._path.stat().st_ino == os.fstat(self._file).st_ino:
                self._path.unlink()
        os.close(self._file)

    def _check(self) -> None:
        try:
            file = self._path.open("rb")
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._failure(error) from error
        with file:
            text = file.read(32)
            if not text.strip().isdigit():
                raise OSError(f"pid_file: {str(self._path)!r} exists, but holds no process id")
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                raise OSError(
                    f"pid_file: {str(self._path)!r} is in use by the server with process id "
                    f"{int(text)}"
                ) from None

    def _failure(self, error: OSError) -> OSError:
        return OSError(error.errno, f"pid_file: {error.strerror}: {self._path}")
