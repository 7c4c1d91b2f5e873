"""What the kernel says about a process: memory and processor time."""

from pathlib import Path


def unshared_bytes(pid: int | str = "self") -> int:
    """Return the memory of a process, without the files that are mapped into it."""
    fields = _resident(pid)
    return fields["RssAnon"] + fields["RssShmem"]


def mapped_bytes(pid: int | str = "self") -> int:
    """Return the files that are mapped into a process, as far as they are in its memory."""
    return _resident(pid)["RssFile"]


def cpu_seconds(pid: int) -> float:
    """Return the time that the threads of a process have run, to the nanosecond."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


def _resident(pid: int | str) -> dict[str, int]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    pairs = (line.split(":") for line in lines if line.startswith("Rss"))
    return {name: int(value.split()[0]) * 1024 for name, value in pairs}
