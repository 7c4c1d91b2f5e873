"""How much memory this process may use: what its control groups and the machine allow."""

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

# Of what may be used, for the values of a server of memory: the rest is for the process itself,
# what is on its way, and the page cache.
SHARE = 0.8

# Version 1 shows a number somewhat below 2**63 where there is no limit.
_NO_LIMIT = 1 << 60


def default_memory() -> int:
    """Return the bytes that values may take of this process's memory if nobody says otherwise."""
    return int(available_memory() * SHARE)


def available_memory(root: Path = Path("/")) -> int:
    """Return the bytes of memory that this process may use.

    It is the least of the limits of its control group and of those above it, as far as they are
    seen from here, and of the machine's memory. Files without names, in which a server has its
    values, count as a process's other memory does; the size of ``/dev/shm`` does not matter.

    Parameters
    ----------
    root : Path
        The folder that ``/proc`` is in.
    """
    limits = [_machine(root), *_groups(root)]
    return min(limits)


def _machine(root: Path) -> int:
    for line in _read(root / "proc/meminfo").splitlines():
        name, _, rest = line.partition(":")
        if name == "MemTotal":
            return int(rest.split()[0]) * 1024
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _groups(root: Path) -> Iterator[int]:
    """Yield the limits of the process's control groups, of both versions."""
    mounts = [line.split() for line in _read(root / "proc/self/mountinfo").splitlines()]
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not controllers:
            names: tuple[str, ...] = ("memory.max", "memory.high")
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes",)
        else:
            continue
        for folder in _folders(mounts, "memory" if controllers else "", path):
            for name in names:
                text = _read(root / str(folder / name).lstrip("/")).strip()
                if text.isdecimal() and 0 < int(text) < _NO_LIMIT:
                    yield int(text)


def _folders(mounts: list[list[str]], controller: str, path: str) -> Iterator[PurePosixPath]:
    """Yield the folders of a group and of those above it, where they are mounted."""
    for fields in mounts:
        if "-" not in fields[6:]:
            continue
        dash = fields.index("-", 6)
        kind, *_, options = fields[dash + 1 :]
        fits = kind == "cgroup" and controller in options.split(",") if controller else False
        if not fits and (controller or kind != "cgroup2"):
            continue
        mounted, point = PurePosixPath(fields[3]), PurePosixPath(fields[4])
        group = PurePosixPath(path)
        # A container may see its own group as the root, whatever it is called outside.
        below = group.relative_to(mounted) if group.is_relative_to(mounted) else PurePosixPath()
        for part in (below, *below.parents):
            yield point / part


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
