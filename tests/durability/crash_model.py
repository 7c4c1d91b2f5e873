"""What a crash of the host leaves of files: all states that POSIX allows.

Bytes and names are on the medium once a flush of their file or directory has ended that began after
them. All else may be there or not, each name by itself, whatever the order in which it was done:
no file system leaves more to chance.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

TORN = "torn"
"""Stands for contents of which some bytes may be missing."""


def digest(content: bytes | bytearray) -> str:
    """Return what stands for contents that are whole."""
    return hashlib.blake2b(content, digest_size=16).hexdigest()


@dataclass(slots=True)
class Event:
    """A line of the record.

    Parameters
    ----------
    fields : list of str
    content : bytes
        Of a write.
    """

    fields: list[str]
    content: bytes = b""


def read_record(path: Path) -> Iterator[Event]:
    """Read the events of a record, in their order."""
    with path.open("rb") as file:
        while line := file.readline():
            fields = line.decode().split()
            content = file.read(int(fields[3])) if fields[0] == "write" else b""
            yield Event(fields, content)


@dataclass(slots=True)
class _File:
    content: bytearray = field(default_factory=bytearray)
    writes: int = 0
    on_medium: int = 0  # of these writes
    digest: str | None = None  # of the content, once it was asked for


@dataclass(slots=True)
class _Name:
    """What a name has led to, one after the other; the first is on the medium."""

    inodes: list[str | None] = field(default_factory=lambda: [None])
    changes: int = 0  # before the first of these


class Disk:
    """The files under a directory, and what of them is on the medium.

    Parameters
    ----------
    root : int
        The directory's inode.
    """

    def __init__(self, root: int) -> None:
        self._root = f"{root} 0"
        self._uses: dict[str, int] = defaultdict(int)  # of each inode's number
        self._files: dict[str, _File] = {}
        self._directories: dict[str, dict[str, _Name]] = defaultdict(lambda: defaultdict(_Name))
        self._flushes: dict[tuple[str, str], tuple[int, dict[str, int]]] = {}

    def apply(self, event: Event) -> None:
        """Go on by an event. Events of others, such as acknowledgements, change nothing."""
        match event.fields:
            case ["create", inode, directory, name]:
                self._uses[inode] += 1
                self._files[self._now(inode)] = _File()
                if name != "-":
                    self._lead(directory, name, self._now(inode))
            case ["write", inode, offset, _] if self._now(inode) in self._files:
                file = self._files[self._now(inode)]
                begin, end = int(offset), int(offset) + len(event.content)
                file.content.extend(bytes(max(end - len(file.content), 0)))
                file.content[begin:end] = event.content
                file.writes += 1
                file.digest = None
            case ["link", inode, directory, name]:
                self._lead(directory, name, self._now(inode))
            case ["rename", source, old, directory, name]:
                moved = self._directories[self._now(source)][old].inodes[-1]
                self._lead(source, old, None)
                self._lead(directory, name, moved)
            case ["unlink", directory, name]:
                self._lead(directory, name, None)
            case ["mkdir", inode, directory, name]:
                self._uses[inode] += 1
                self._lead(directory, name, self._now(inode))
            case ["sync-begins", inode, thread]:
                one = self._now(inode)
                names = self._directories.get(one, {})
                self._flushes[one, thread] = (
                    self._files[one].writes if one in self._files else 0,
                    {name: each.changes + len(each.inodes) - 1 for name, each in names.items()},
                )
            case ["sync-ends", inode, thread]:
                one = self._now(inode)
                self._flushed(one, *self._flushes.pop((one, thread)))

    def _now(self, inode: str) -> str:
        """Return what tells an inode from others that had its number."""
        return f"{inode} {self._uses[inode]}"

    def _lead(self, directory: str, name: str, inode: str | None) -> None:
        self._directories[self._now(directory)][name].inodes.append(inode)

    def _flushed(self, inode: str, writes: int, names: dict[str, int]) -> None:
        if inode in self._files:
            self._files[inode].on_medium = max(self._files[inode].on_medium, writes)
        for name, change in names.items():
            one = self._directories[inode][name]
            skip = max(change - one.changes, 0)
            one.inodes = one.inodes[skip:]
            one.changes += skip

    def values(self, key: str) -> set[str | None]:
        """Return digests of all that a key may have after a crash now; ``None`` for no value."""
        inodes: set[str | None] = {self._root}
        for name in key.split("/"):
            found: set[str | None] = set()
            for inode in inodes:
                one = self._directories[inode].get(name) if inode is not None else None
                found.update([None] if one is None else one.inodes)
            inodes = found
        values: set[str | None] = set()
        for inode in inodes:
            if inode is None:
                values.add(None)
                continue
            file = self._files[inode]
            file.digest = file.digest or digest(file.content)
            values.add(file.digest)
            if file.on_medium < file.writes:
                values.add(TORN)
        return values
