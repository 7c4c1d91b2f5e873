"""`LogFile`: a file that a log is appended to, and that can be opened anew."""

from pathlib import Path
from typing import TextIO

from ucxstore.base import process
from ucxstore.base.showing import one_line


class LogFile:
    """A file to log to, which whoever rotates logs may move away; `reopen` makes it anew.

    Parameters
    ----------
    path : str

    Raises
    ------
    OSError
        If it cannot be written to; the message starts with "log_file".
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._lock = process.lock()
        self._file = self._open()

    def reopen(self) -> None:
        """Open the path again; raise ``OSError`` and go on with the old file if that fails."""
        file = self._open()
        with self._lock:
            old, self._file = self._file, file
        old.close()

    def write(self, text: str) -> int:
        """Append text."""
        with self._lock:
            return self._file.write(text)

    def flush(self) -> None:
        """Write out what is buffered."""
        with self._lock:
            self._file.flush()

    def _open(self) -> TextIO:
        try:
            return self._path.open("a", encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            raise OSError(error.errno, f"log_file: {one_line(error)}") from error
