"""Track a block of code with memray, and measure its resident set."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import memray

_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")


@dataclass(slots=True)
class Resident:
    """The resident set of this process during a block of code, in bytes, with shared memory.

    Attributes
    ----------
    before : int
        The size when the block began.
    peak : int
        The largest size during the block; 0 until it has ended.
    """

    before: int
    peak: int = 0

    def extra(self, own: int, nbytes: int) -> float:
        """Return the growth beyond `own` bytes, in multiples of `nbytes`."""
        return (self.peak - self.before - own) / nbytes


@contextlib.contextmanager
def tracked(capture: Path) -> Iterator[Resident]:
    """Record every allocation of every thread in the block, with native frames.

    Parameters
    ----------
    capture : Path
        The file to write; an existing file is replaced.
    """
    capture.unlink(missing_ok=True)
    resident = Resident(_status_bytes("VmRSS"))
    # memray allocates some tens of MiB for its unwinder before the peak is reset.
    with memray.Tracker(capture, native_traces=True):
        resident.before = _reset_peak()
        try:
            yield resident
        finally:
            resident.peak = _status_bytes("VmHWM")


def _reset_peak() -> int:
    with contextlib.suppress(OSError):  # if a sandbox forbids it, an earlier peak may count
        _CLEAR_REFS.write_text("5")
    return _status_bytes("VmRSS")


def _status_bytes(name: str) -> int:
    """Return a line of /proc/self/status in bytes (man 5 proc_pid_status)."""
    for line in _STATUS.read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"no {name} in {_STATUS}")
