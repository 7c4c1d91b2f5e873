"""`OwnDirectory`: a directory for files of a server's own, locked by one server at a time."""

import fcntl
import os
from pathlib import Path

from ucxstore.base.showing import one_line


class OwnDirectory:
    """A directory that one server at a time uses. It stays locked until it is closed.

    Parameters
    ----------
    option : str
        The option that has named it, for messages.
    path : str or os.PathLike
        The directory; it is made if it does not exist.
    lock : str
        The name of the file that is locked, by servers that use the directory for the same.

    Raises
    ------
    OSError
        If it cannot be used, or another server uses it; the message starts with `option`.
    """

    def __init__(self, option: str, path: str | os.PathLike[str], lock: str) -> None:
        self.path = Path(path)
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            held = os.open(self.path / lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise OSError(error.errno, f"{option}: {one_line(error)}") from error
        try:
            # flock locks the open file, not the process: so it also keeps two servers of one
            # process apart.
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(held)
            in_use = isinstance(error, BlockingIOError)
            why = f"{self.path} is in use by another server" if in_use else one_line(error)
            raise OSError(error.errno, f"{option}: {why}") from error
        self._lock = held

    def close(self) -> None:
        """Unlock it."""
        # Closing alone does not unlock it if a forked child has the same open file.
        fcntl.flock(self._lock, fcntl.LOCK_UN)
        os.close(self._lock)
