"""Track a block of code with memray, and measure its resident set."""

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import memray

_STATUS = Path("/proc/self/status")
_MAPS = Path("/proc/self/maps")
_CLEAR_REFS = Path("/proc/self/clear_refs")

# A mapping that this process shares with a server of its host: its first address, the one behind
# its last, and its name. The core names all such memory. What it maps for a value that the user
# computes in place is the user's.
_SHARED = re.compile(
    r"^([0-9a-f]+)-([0-9a-f]+) ..\Ss .* /memfd:ucxstore-(?!value)(\w+)", re.MULTILINE
)

# Values go through it to a server. Each connection maps it once, however large the values are.
_FIXED = "upload"


class SharedMemory(NamedTuple):
    """Memory of ucxstore's that several processes of this host have mapped."""

    address: int
    nbytes: int
    name: str


@dataclass(slots=True)
class Resident:
    """The resident set of this process during a block of code, in bytes, and its shared memory.

    Attributes
    ----------
    before : int
        The size when the block began.
    peak : int
        The largest size during the block; 0 until it has ended.
    shared : list of SharedMemory
        What ucxstore has mapped when the block has ended.
    fixed : int
        The bytes of those that were mapped in the block to send values through, once for all.
    """

    before: int
    peak: int = 0
    shared: list[SharedMemory] = field(default_factory=list)
    fixed: int = 0

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
    earlier = {*shared_memory()}
    try:
        # memray allocates some tens of MiB for its unwinder before the peak is reset.
        with memray.Tracker(capture, native_traces=True):
            resident.before = _reset_peak()
            try:
                yield resident
            finally:
                resident.peak = _status_bytes("VmHWM")
    finally:
        resident.shared = shared_memory()
        new = (one for one in resident.shared if one not in earlier)
        resident.fixed = sum(one.nbytes for one in new if one.name == _FIXED)


def shared_memory() -> list[SharedMemory]:
    """Return what ucxstore has mapped in this process to share it with others."""
    return [
        SharedMemory(int(begin, 16), int(end, 16) - int(begin, 16), name)
        for begin, end, name in _SHARED.findall(_MAPS.read_text())
    ]


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
