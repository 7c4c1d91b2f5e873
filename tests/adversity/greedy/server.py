"""A server in a process of its own, whose memory is measured."""

import os
import secrets
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Self

import numpy as np
from zarr.core.buffer import cpu

from tests.adversity.greedy import honest, kinds
from tests.eventually import eventually
from ucxstore import Secret, UcxStore

MEMORY = 256 << 20
# Beside its values: an interpreter, its libraries, and the buffers of UCX.
BESIDE = 64 << 20

_GROUPS = Path("/sys/fs/cgroup")


class Measured:
    """A server of memory, in a control group of its own where one may be made.

    Parameters
    ----------
    folder : Path
        For its output.
    processors : frozenset of int
        Those that it may use.
    """

    def __init__(self, folder: Path, processors: frozenset[int]) -> None:
        self.secret = secrets.token_bytes(16).hex().encode()
        self._stack = ExitStack()
        self.group = _Group.make()
        self._stack.callback(self._end_group)
        self.log = folder / f"server-{secrets.token_hex(4)}"
        secret_file = folder / f"{self.log.name}-secret"
        secret_file.write_bytes(self.secret)
        secret_file.chmod(0o600)
        command = [sys.executable, "-m", "ucxstore", "serve", "memory://", "--no-banner"]
        command += ["--memory", str(MEMORY), "--secret-file", str(secret_file), "--grace", "1"]
        if self.group is not None:
            command = self.group.inside(command)
        with self.log.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=output,
            )
        self._stack.callback(self._end)
        self.pid = self._process.pid
        os.sched_setaffinity(self.pid, processors)  # before it has made threads
        self.peak = 0
        assert self._process.stdout is not None
        line = self._process.stdout.readline().decode()
        assert "ucx://" in line, (line, self.log.read_text())
        self.address = "ucx://" + line.split("ucx://")[1].split()[0]

    def fill(self) -> None:
        """Write what clients read."""
        with UcxStore(self.address, secret=self.secret, connect_timeout=60.0) as store:
            honest.fill(store)
            for key, size in kinds.values():
                value = np.random.default_rng(0).integers(0, 256, size, "u1")
                store.set_sync(key, cpu.Buffer.from_array_like(value))

    def grant(self, opens: str) -> bytes:
        """Return a secret that opens so much: see `kinds.Kind`."""
        if opens == "all":
            return self.secret
        prefix, read_only = (None, True) if opens == "reads" else (kinds.FOLDER, False)
        return Secret(self.secret).grant(prefix, read_only=read_only).reveal()

    @property
    def memory(self) -> int:
        """Bytes that are its own now: what it has mapped, files apart."""
        fields = Path(f"/proc/{self.pid}/status").read_text().split()
        return sum(int(fields[fields.index(name) + 1]) << 10 for name in ("RssAnon:", "RssShmem:"))

    def look(self) -> None:
        """Note how much memory it has."""
        with suppress(OSError, ValueError):
            self.peak = max(self.peak, self.memory)

    @property
    def counted(self) -> int | None:
        """The most bytes that the kernel has counted to its control group."""
        return None if self.group is None else self.group.peak

    @property
    def lives(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def _end(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _end_group(self) -> None:
        if self.group is not None:
            self.group.remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


class _Group:
    """A control group for one process: a folder of version 1 or 2 of the kernel's interface."""

    _PEAKS = ("memory.max_usage_in_bytes", "memory.peak")

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._peak = next(folder / name for name in self._PEAKS if (folder / name).exists())

    @classmethod
    def make(cls) -> Self | None:
        """Make one; ``None`` where that is not allowed, or nothing is counted."""
        for above in (_GROUPS / "memory", _GROUPS):
            folder = above / f"ucxstore-greedy-{os.getpid()}-{secrets.token_hex(4)}"
            with suppress(OSError):
                folder.mkdir()
                try:
                    return cls(folder)
                except StopIteration:
                    folder.rmdir()
        return None

    def inside(self, command: list[str]) -> list[str]:
        """Return what runs the command in it."""
        enter = f'echo $$ > {self._folder}/cgroup.procs && exec "$@"'
        return ["sh", "-c", enter, "sh", *command]

    @property
    def peak(self) -> int:
        """The most bytes that it ever had."""
        return int(self._peak.read_text())

    def remove(self) -> None:
        """Remove it, once its process has ended."""

        def is_removed() -> bool:
            with suppress(OSError):
                self._folder.rmdir()
            return not self._folder.exists()

        eventually(is_removed, 10)
