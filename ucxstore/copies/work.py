"""A case: one row on one workload, and where its array and its capture are."""

import threading
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from ucxstore.copies.child import Spec
from ucxstore.copies.children import CaseError, run_child
from ucxstore.copies.stores import Place, Row
from ucxstore.copies.workloads import Workload
from ucxstore.copies.zarr2_case import run_zarr2


@dataclass(frozen=True, slots=True)
class S3:
    """The S3 server of a run: how a child reaches it, and what the report calls it."""

    bucket: str
    access: dict[str, str]
    description: str


@dataclass(frozen=True, slots=True)
class Work:
    """One row on one workload.

    Parameters
    ----------
    captures : Path
        Where memray's captures go.
    scratch : Path
        Where arrays go; what was prepared for one read serves the next.
    """

    row: Row
    workload: Workload
    captures: Path
    scratch: Path
    s3: S3 | None

    @property
    def access(self) -> dict[str, str] | None:
        """How the row reaches the S3 server, if it does."""
        return self.s3.access if self.s3 is not None and self.row.in_bucket else None

    @property
    def note(self) -> str:
        """What the report says beside it."""
        return self.s3.description if self.s3 is not None and self.row.in_bucket else ""

    def capture(self, side: str = "client") -> Path:
        """Where memray's capture of a side goes."""
        end = "" if side == "client" else f"-{side}"
        return self.captures / f"{self.workload.name}-{self.row.name}{end}.bin"

    def spec(self, task: Literal["prepare", "measure", "connect"], place: str) -> Spec:
        """Return what a child is told."""
        capture = str(self.capture())
        return Spec(task, self.row, self.workload, place, self.access, capture)


def _place(in_bucket: bool) -> Place:
    return "bucket" if in_bucket else "folder"


class Prepared:
    """Arrays that are there to be read: each is written once, by zarr alone, in its own process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}
        self._there: set[str] = set()

    def place(self, work: Work, folder: Path) -> str:
        """Return where the case's array is, or goes to."""
        workload, row = work.workload, work.row
        if row.place == "process":
            return ""
        if workload.direction == "write":
            return self.written(work) if row.in_bucket else str(folder / "array")
        kind = "zarr2-" if row.zarr2 else ""
        place = self._at(work, f"{kind}{workload.stored_as}")
        with self._lock_of(place):
            if place not in self._there:
                self._prepare(work, place)
                self._there.add(place)
        return place

    def written(self, work: Work) -> str:
        """Return a place in the bucket to write to.

        Each writer overwrites what it has written before: less fills up.
        """
        return self._at(work, f"written-{threading.get_native_id()}")

    def _at(self, work: Work, name: str) -> str:
        if work.row.in_bucket:
            if work.s3 is None:
                raise CaseError("no S3 server")
            return f"{work.s3.bucket}/{name}"
        return str(work.scratch / "arrays" / name)

    def _prepare(self, work: Work, place: str) -> None:
        workload = replace(work.workload, direction="write")
        in_bucket = work.row.in_bucket
        row = Row("ObjectStore, S3" if in_bucket else "LocalStore", "default", _place(in_bucket))
        case = replace(work, row=row, workload=workload)
        with TemporaryDirectory(prefix="case-", dir=work.scratch) as folder:
            if work.row.zarr2:
                run_zarr2(work.row, workload, place, work.access, None, Path(folder))
            else:
                run_child(case.spec("prepare", place), Path(folder))

    def _lock_of(self, place: str) -> threading.Lock:
        with self._lock:
            return self._locks.setdefault(place, threading.Lock())
