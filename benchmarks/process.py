"""Memory and processor time of a process, as the kernel counts them."""

from pathlib import Path


def unshared_bytes(pid: int | str = "self") -> int:
    """Return the memory of a process, without the files that are mapped into it."""
    fields = _bytes_in(f"/proc/{pid}/status")
    return fields["RssAnon"] + fields["RssShmem"]


def mapped_bytes(pid: int | str = "self") -> int:
    """Return the files that are mapped into a process, as far as they are in its memory."""
    return _bytes_in(f"/proc/{pid}/status")["RssFile"]


def reset_peak(pid: int) -> None:
    """Let the peak of a process's memory begin anew, with what it has now."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def peak_bytes(pid: int) -> int:
    """Return the most memory that a process had; of what it shares now, its part."""
    shares = _bytes_in(f"/proc/{pid}/smaps_rollup")
    return _bytes_in(f"/proc/{pid}/status")["VmHWM"] - shares["Rss"] + shares["Pss"]


def cpu_seconds(pid: int) -> float:
    """Return the time that the threads of a process have run, to the nanosecond."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


def _bytes_in(file: str) -> dict[str, int]:
    """Read the lines ``Name:   123 kB`` of a file, as bytes."""
    pairs = (line.split() for line in Path(file).read_text().splitlines() if line.endswith(" kB"))
    return {name.rstrip(":"): int(value) * 1024 for name, value, _ in pairs}
