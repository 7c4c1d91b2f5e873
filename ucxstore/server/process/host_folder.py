"""`HostFolder`: the processes of one host that share a server, and how they find it.

Each process that attends holds a lock, and the kernel frees it however the process ends. So the
server's process knows whether anybody is left, and those that attend know whether it lives.
"""

import fcntl
import json
import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Self

from ucxstore.base import process
from ucxstore.base.errors import ProtocolError
from ucxstore.base.foreign import Fields
from ucxstore.protocol.frames import IDENTITY_BYTES

_MAX_STATE_BYTES = 4096

# Seconds between attempts to get a lock.
_PAUSE = 0.02


class HostLock:
    """A lock on a file, until it is released or the process ends.

    Parameters
    ----------
    file : Path
        It is made if it does not exist. Its folder must.
    shared : bool
        Whether several may have it at once.
    """

    def __init__(self, file: Path, *, shared: bool = False) -> None:
        self._file = file
        self._kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        self._fd: int | None = None
        process.in_child(self._forget)

    def take(self, seconds: float = 0.0) -> bool:
        """Take it within so many seconds; tell whether that has been done.

        Raises
        ------
        OSError
            If its folder is missing.
        """
        deadline = time.monotonic() + seconds
        while True:
            fd = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(fd, self._kind | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(fd)
            else:
                if os.fstat(fd).st_nlink:
                    self._fd = fd
                    return True
                os.close(fd)  # the folder was just removed
            if time.monotonic() >= deadline:
                return False
            time.sleep(_PAUSE)

    @property
    def is_held(self) -> bool:
        """Whether it was taken here."""
        return self._fd is not None

    def release(self) -> None:
        """Release it, if it is held."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)

    def _forget(self) -> None:
        """In a forked child: the lock is the parent's, and ends with that."""
        self.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class HostState(NamedTuple):
    """Where the server of a host is.

    Parameters
    ----------
    address : str
    identity : bytes
        Of its storage.
    """

    address: str
    identity: bytes


class HostFolder:
    """A folder with the locks of those that share a server.

    Parameters
    ----------
    path : Path
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def make(self) -> None:
        """Make the folder.

        Raises
        ------
        PermissionError
            If it is another user's, or others can write to it.
        """
        self.path.mkdir(mode=0o700, exist_ok=True)
        found = self.path.lstat()
        if found.st_uid != os.getuid() or found.st_mode & 0o077:
            raise PermissionError(f"{self.path}: other users can reach it")

    def attending(self, *, shared: bool) -> HostLock:
        """Return the lock of all that attend; one that is not shared is had by nobody else."""
        return HostLock(self.path / "attending", shared=shared)

    def starting(self) -> HostLock:
        """Return the lock of the one that starts a server."""
        return HostLock(self.path / "starting")

    def serving(self) -> HostLock:
        """Return the lock of the server's process."""
        return HostLock(self.path / "serving")

    def reporting(self) -> HostLock:
        """Return the lock of the one that tells what the server has counted."""
        return HostLock(self.path / "reporting")

    @property
    def is_served(self) -> bool:
        """Whether the server's process lives."""
        # A shared one, so that two processes that look do not take one another for the server.
        with HostLock(self.path / "serving", shared=True) as lock:
            return not lock.take()

    @property
    def failure(self) -> Path:
        """The file with the error of a server that did not start, as a pickle."""
        return self.path / "failure"

    def end(self) -> None:
        """Let the server end at once, and none be started."""
        with suppress(FileNotFoundError):
            (self.path / "ended").touch()

    @property
    def ends(self) -> bool:
        """Whether the server is to end, also while others attend."""
        return (self.path / "ended").exists() or not self.path.exists()

    def write(self, state: HostState) -> None:
        """Tell where the server is."""
        fields = {"address": state.address, "identity": state.identity.hex()}
        unfinished = self.path / "server.partial"
        unfinished.write_text(json.dumps(fields))
        unfinished.replace(self.path / "server.json")

    def read(self) -> HostState | None:
        """Return where the server is, or where the last one was; ``None`` if there was none."""
        try:
            data = (self.path / "server.json").read_bytes()
            fields = Fields.read(data, "the state of a host's server", _MAX_STATE_BYTES)
            return HostState(fields.text("address"), fields.hexadecimal("identity", IDENTITY_BYTES))
        except (FileNotFoundError, ProtocolError):
            return None

    def remove(self) -> None:
        """Remove the folder, by one that holds the lock of all that attend alone."""
        shutil.rmtree(self.path, ignore_errors=True)


def wait_until(condition: Callable[[], object], seconds: float) -> bool:
    """Wait until a condition holds, for so many seconds; tell whether it does."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(_PAUSE)
    return True
