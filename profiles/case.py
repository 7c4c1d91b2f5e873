"""`Case`: one row on one workload, with the locations of its array and its captures."""

import threading
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from profiles.child import Spec
from profiles.children import CaseError, run_client
from profiles.stores import Row
from profiles.zarr2_case import run_zarr2
from ucxstore.copies.workload import Workload


@dataclass(frozen=True, slots=True)
class S3:
    """The S3 server of a run: its bucket, the access for a child, its name in the report."""

    bucket: str
    access: dict[str, str]
    description: str


@dataclass(frozen=True, slots=True)
class Case:
    """One row on one workload.

    Parameters
    ----------
    captures : Path
        The folder of memray's captures.
    scratch : Path
        The folder of arrays. Several reads share an array.
    """

    row: Row
    workload: Workload
    captures: Path
    scratch: Path
    s3: S3 | None = None

    @property
    def access(self) -> dict[str, str] | None:
        """The access to the S3 server, if the row needs it."""
        return self.s3.access if self.s3 is not None and self.row.in_bucket else None

    @property
    def note(self) -> str:
        """The note of the case in the report."""
        return self.s3.description if self.s3 is not None and self.row.in_bucket else ""

    def capture(self, side: str = "client") -> Path:
        """Return the path of memray's capture of a side."""
        end = "" if side == "client" else f"-{side}"
        return self.captures / f"{self.workload.name}-{self.row.name}{end}.bin"

    def spec(self, task: Literal["prepare", "measure", "connect"], location: str) -> Spec:
        """Return the task of the child."""
        capture = str(self.capture())
        return Spec(task, self.row, self.workload, location, self.access, capture)


class Prepared:
    """The arrays to read. Each is written once, without ucxstore, in a new process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}
        self._there: set[str] = set()

    def location(self, case: Case, folder: Path) -> str:
        """Return the location of the case's array; if it is to be read, write it first."""
        workload, row = case.workload, case.row
        if row.kind == "process":
            return ""
        if workload.direction == "write":
            return self.written(case) if row.in_bucket else str(folder / "array")
        prefix = "zarr2-" if row.zarr2 else ""
        location = self._at(case, f"{prefix}{workload.stored_as}")
        with self._lock_of(location):
            if location not in self._there:
                self._prepare(case, location)
                self._there.add(location)
        return location

    def written(self, case: Case) -> str:
        """Return a location in the bucket to write to.

        Each thread has one location and overwrites it, so the bucket stays small.
        """
        return self._at(case, f"written-{threading.get_native_id()}")

    def _at(self, case: Case, name: str) -> str:
        if case.row.in_bucket:
            if case.s3 is None:
                raise CaseError("no S3 server")
            return f"{case.s3.bucket}/{name}"
        return str(case.scratch / "arrays" / name)

    def _prepare(self, case: Case, location: str) -> None:
        writing = replace(case, workload=replace(case.workload, direction="write"))
        with TemporaryDirectory(prefix="case-", dir=case.scratch) as name:
            folder = Path(name)
            if case.row.zarr2:
                run_zarr2(writing, location, phase="prepare")
                return
            if case.row.in_bucket:
                row = Row("ObjectStore, S3", "default", "bucket")
            else:
                row = Row("LocalStore", "default", "folder")
            run_client(replace(writing, row=row).spec("prepare", location), folder)

    def _lock_of(self, location: str) -> threading.Lock:
        with self._lock:
            return self._locks.setdefault(location, threading.Lock())
