"""Files to write, whose values are sent whole when they are closed."""

import contextlib
import io
import sys
import warnings
from collections.abc import Buffer, Callable
from typing import Any

from fsspec.compression import compr


class ValueWriter(io.BytesIO):
    """A value as a file to write, in memory until it is closed; it can be read and sought in, too.

    Nothing is stored if the file is closed by an exception: by a ``with`` block that raises, or by
    anybody who closes it on the exception's way, such as the file objects that are laid over it, or
    a ``finally``. Such a close raises the exception again, so that nobody who closes a file in an
    ``except`` takes it for stored. `StopIteration` does not count.

    Parameters
    ----------
    path : str
        The value's key.
    mode : str
    send : callable
        Stores the value, blocking.
    autocommit : bool
        Whether closing it stores the value, and not a `commit` afterwards, as in a transaction.
    """

    def __init__(
        self, path: str, mode: str, send: Callable[[bytes], object], *, autocommit: bool = True
    ) -> None:
        super().__init__()
        self.path = self.name = path
        self.mode = mode  # type: ignore[misc]  # a property of typeshed's alone
        self.autocommit = autocommit
        self._send = send
        self._waiting: bytes | None = None
        self._handled = sys.exception()  # that it is opened while one is handled is no failure

    def close(self) -> None:
        """Store the value, unless an exception closes the file.

        Raises
        ------
        UcxStoreError
            If it could not be stored.
        FileExistsError
            If it was to be a new one.
        """
        if self.closed:
            return
        raised = sys.exception()
        if raised is None or raised is self._handled or isinstance(raised, _ENDS):
            self._finish()
            return
        self.discard()
        raised.add_note(f"{self.path!r} was not stored, since this exception closed its file")
        try:
            raise raised
        finally:
            del raised  # its traceback refers to this frame

    def commit(self) -> None:
        """Store the value of a file that was closed, as the end of its transaction does."""
        if not self.closed:
            raise ValueError(f"{self.path!r} is still open: close the file first")
        value, self._waiting = self._waiting, None
        if value is not None:
            self._send(value)

    def discard(self) -> None:
        """Close the file, and drop what has not been stored."""
        self._waiting = self._handled = None
        super().close()

    def _finish(self) -> None:
        value = self.getvalue()  # without a copy
        self._handled = None
        super().close()
        if self.autocommit:
            self._send(value)
        else:
            self._waiting = value

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.discard()
        elif not self.closed:
            self._finish()

    def abandon(self) -> None:
        """Discard what was never closed, with a warning."""
        # Nothing is sent from here, since any thread may collect garbage at any moment.
        if not self.closed:
            self.discard()
            text = f"{self.path!r} was not stored: its file was never closed"
            warnings.warn(text, RuntimeWarning, stacklevel=3)

    def __del__(self) -> None:
        self.abandon()

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError(f"{self.path!r}: a file that is written cannot be pickled")


_ENDS = StopIteration, StopAsyncIteration


class CompressedWriter(io.BufferedIOBase):
    """A file that compresses what is written to it into the file of a value, and closes both.

    Parameters
    ----------
    value : ValueWriter
    compression : str
        One of fsspec's.
    """

    def __init__(self, value: ValueWriter, compression: str) -> None:
        self._value = value
        self._compressor: Any = compr[compression](value, mode="w")
        self._is_whole = False

    def writable(self) -> bool:
        return True

    def write(self, data: Buffer, /) -> int:
        written: int = self._compressor.write(data)
        return written

    def flush(self) -> None:
        if not self._is_whole:
            self._compressor.flush()

    def close(self) -> None:
        if self.closed:
            return
        self._is_whole = True
        super().close()
        try:
            self._compressor.close()
        except BaseException:
            self._value.discard()
            raise
        self._value.close()

    def __del__(self) -> None:
        if not self.closed:
            self._value.abandon()
            with contextlib.suppress(Exception):  # else it says that it was not closed, too
                self._compressor.close()


class TextWriter(io.TextIOWrapper):
    """A file that encodes what is written to it into another, and closes both."""

    def __del__(self) -> None:
        """Leave it to the value's file to say that it was not closed."""
