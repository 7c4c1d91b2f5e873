"""The directory of the disk tier, locked by one server at a time."""

import os

from ucxstore.base.native import core
from ucxstore.base.showing import one_line
from ucxstore.server.sources.own_directory import OwnDirectory

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
        self._directory = OwnDirectory("cache_dir", path, _LOCK)
        try:
            self.disk = core.DiskCache(str(self._directory.path), capacity)
        except BaseException as error:
            self._directory.close()
            if isinstance(error, OSError):  # a StorageError is one
                raise OSError(f"cache_dir: {one_line(error)}") from error
            raise

    def close(self) -> None:
        """Remove the files, and unlock the directory."""
        self.disk.forget_prefix("")
        self.disk.sweep()
        self._directory.close()
