"""A block of code under memray, with the resident set beside it."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import memray

_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")


@dataclass(slots=True)
class Resident:
    """The process's resident set over a block of code, in bytes: shared memory counts, too.

    Attributes
    ----------
    before : int
        When the block began.
    peak : int
        The most during the block; 0 until it has ended.
    """

    before: int
    peak: int = 0

    def extra(self, own: int, nbytes: int) -> float:
        """Return its growth beyond `own` bytes, in arrays of `nbytes`."""
        return (self.peak - self.before - own) / nbytes


@contextlib.contextmanager
def tracked(capture: Path) -> Iterator[Resident]:
    """Record every allocation of every thread in the block, with native frames.

    Parameters
    ----------
    capture : Path
        The file to write; one that is there is replaced.
    """
    capture.unlink(missing_ok=True)
    resident = Resident(_kilobytes("VmRSS"))
    # memray's own memory, some tens of MiB for the unwinder, is there before the peak is reset.
    with memray.Tracker(capture, native_traces=True):
        resident.before = _reset_peak()
        try:
            yield resident
        finally:
            resident.peak = _kilobytes("VmHWM")


def _reset_peak() -> int:
    with contextlib.suppress(OSError):  # a sandbox without it: the peak so far stays in the figure
        _CLEAR_REFS.write_text("5")
    return _kilobytes("VmRSS")


def _kilobytes(name: str) -> int:
    """Return a line of /proc/self/status in bytes (man 5 proc_pid_status)."""
    for line in _STATUS.read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"no {name} in {_STATUS}")
