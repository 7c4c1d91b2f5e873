"""Limits of this process and host that a server runs into: which one, and how near it is."""

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

_FILES = "/proc/self/fd"  # its size is their number, since Linux 6.2


def open_files() -> tuple[int, int]:
    """Return how many descriptors this process has, and how many it may have; -1 for any.

    To look at them one by one, as a listing does, makes the kernel hold each for a moment. Where
    another thread closes it just then, the close ends in the thread that looks, however long it
    takes: of a peer's socket that lingers, as long as the peer likes. Nor does asking for the size
    take a descriptor, which may be the last one.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        used = os.stat(_FILES).st_size or len(os.listdir(_FILES))  # noqa: PTH116, PTH208 (often)
    except OSError:  # for want of a descriptor
        used = soft
    return used, -1 if soft == resource.RLIM_INFINITY else soft


def shortage_of_files(reserved: int = RESERVED_FILES) -> str | None:
    """Return the limit of open files, where too few are left for another client, one over UCX."""
    used, limit = open_files()
    if limit < 0 or used + reserved <= limit:
        return None
    return f"{used} of the {limit} files that the server may have open are (ulimit -n)"


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
