"""`check_directory`: see that a directory to serve is there."""

import errno
import stat
from pathlib import Path


def check_directory(path: str) -> None:
    """Raise if a directory is missing; the message says how it is made.

    Raises
    ------
    OSError
        If it is missing, cannot be reached, or is no directory.
    """
    try:
        is_directory = stat.S_ISDIR(Path(path).stat().st_mode)
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        what = "there is no such directory" if missing else error.strerror
        hint = "; --create (create=True) makes it" if missing else ""
        if missing and path.lower() == "memory":
            hint = f"; did you mean 'memory://'?{hint[1:]}"
        raise OSError(error.errno, f"storage: {path!r}: {what}{hint}") from None
    if not is_directory:
        raise OSError(errno.ENOTDIR, f"storage: {path!r}: it is not a directory")
