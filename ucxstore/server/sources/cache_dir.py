"""The directory of the disk tier, locked by one server at a time."""

import fcntl
import os
from pathlib import Path

from ucxstore._native import core
from ucxstore.errors import StorageError
from ucxstore.showing import one_line

_LOCK = "ucxstore-cache.lock"


class CacheDirectory:
    """A directory with cached values in files. It stays locked until it is closed.

    Files of an earlier server are removed, since their values may be out of date.

    Parameters
    ----------
    path : str or os.PathLike
        The directory; it is made if it does not exist.
    capacity : int
        The most bytes of files.

    Raises
    ------
    OSError
        If it cannot be used, or another server uses it; the message starts with "cache_dir".
    """

    def __init__(self, path: str | os.PathLike[str], capacity: int) -> None:
        directory = Path(path)
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise OSError(error.errno, f"cache_dir: {one_line(error)}") from error
        try:
            # flock locks the open file, not the process: so it also keeps two servers of one
            # process apart.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.disk = core.DiskCache(str(directory), capacity)
        except BlockingIOError as error:
            os.close(lock)
            raise OSError(
                error.errno, f"cache_dir: {directory} is in use by another server"
            ) from error
        except (OSError, StorageError) as error:
            os.close(lock)
            raise OSError(f"cache_dir: {one_line(error)}") from error
        except BaseException:
            os.close(lock)
            raise
        self._lock = lock

    def close(self) -> None:
        """Remove the files, and unlock the directory."""
        self.disk.forget_prefix("")
        self.disk.sweep()
        # Closing alone does not unlock it if a forked child has the same open file.
        fcntl.flock(self._lock, fcntl.LOCK_UN)
        os.close(self._lock)
