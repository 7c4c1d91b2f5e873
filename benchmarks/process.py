"""Read the memory and processor time of a process from ``/proc``."""

from pathlib import Path


def unshared_bytes(pid: int | str = "self") -> int:
    """Return the memory of a process without mapped files."""
    fields = _bytes_in(f"/proc/{pid}/status")
    return fields["RssAnon"] + fields["RssShmem"]


def own_bytes(pid: int | str = "self") -> int:
    """Return the memory that a process shares with nobody, neither as a file nor otherwise."""
    return _bytes_in(f"/proc/{pid}/status")["RssAnon"]


def mapped_bytes(pid: int | str = "self") -> int:
    """Return the memory of a process that holds mapped files."""
    return _bytes_in(f"/proc/{pid}/status")["RssFile"]


def reset_peak(pid: int) -> None:
    """Reset the memory peak of a process to its present memory."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def peak_bytes(pid: int) -> int:
    """Return the memory peak of a process, with its proportional part of shared memory."""
    shares = _bytes_in(f"/proc/{pid}/smaps_rollup")
    return _bytes_in(f"/proc/{pid}/status")["VmHWM"] - shares["Rss"] + shares["Pss"]


def proportional_bytes(pid: int | str = "self") -> int:
    """Return the memory of a process, of shared memory its proportional part."""
    return _bytes_in(f"/proc/{pid}/smaps_rollup")["Pss"]


def descriptors(pid: int | str = "self") -> int:
    """Return how many descriptors a process has open."""
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


def cpu_seconds(pid: int) -> float:
    """Return the processor time of the threads of a process."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


def _bytes_in(file: str) -> dict[str, int]:
    """Read the lines ``Name:   123 kB`` of a file, as bytes."""
    pairs = (line.split() for line in Path(file).read_text().splitlines() if line.endswith(" kB"))
    return {name.rstrip(":"): int(value) * 1024 for name, value, _ in pairs}
