"""Limits of this process and host that a server runs into: which one, and how near it is."""

import fcntl
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress

# Descriptors that are kept for what is under way, and for clients that need few.
RESERVED_FILES = 64
# Those that are kept from these, too.
RESERVED_FROM_LOCAL = 16
# Those that not even a handshake gets, which can end in room being made. UCX needs one as it first
# sends a large value over TCP, to ask about the network device, and never sends it where there is
# none.
UNACCEPTED_FILES = 8


def open_files() -> tuple[int, int]:
    """Return how many descriptors this process has, and how many it may have; -1 for any."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        used = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 (each handshake asks, of hundreds)
    except OSError:  # for want of a descriptor
        used = soft
    return used, -1 if soft == resource.RLIM_INFINITY else soft


def shortage_of_files(reserved: int = RESERVED_FILES) -> str | None:
    """Return the limit of open files, where too few are left for another client, one over UCX."""
    used, limit = open_files()
    if limit < 0 or used + reserved <= limit:
        return None
    return f"{used} of the {limit} files that the server may have open are (ulimit -n)"


def shortage_for_handshakes() -> str | None:
    """Return the limit of open files, where too few are left for another connection.

    It takes no descriptor to tell, as the last one may be needed elsewhere.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return None
    free = 0
    for descriptor in reversed(range(limit)):  # the last are the first to be free
        try:
            fcntl.fcntl(descriptor, fcntl.F_GETFD)
        except OSError:
            free += 1
            if free > UNACCEPTED_FILES:
                return None
    return f"{limit - free} of the {limit} files that the server may have open are (ulimit -n)"


class Spare:
    """A descriptor that is kept, so that to refuse a connection takes none that others need."""

    def __init__(self) -> None:
        self._descriptor = -1
        self._open()

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Let it go for a while."""
        self.close()
        try:
            yield
        finally:
            self._open()

    def close(self) -> None:
        """Let it go."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _open(self) -> None:
        with suppress(OSError):  # somebody was faster
            self._descriptor = os.open(os.devnull, os.O_RDONLY)
