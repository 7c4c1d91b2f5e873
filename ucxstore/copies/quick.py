"""Count the copies of a few small transfers at any location, for ``ucxstore copies``.

Each transfer runs in a new process: ``python -m ucxstore.copies.quick``.
"""

import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from zarr.abc.store import Store
from zarr.storage import LocalStore, MemoryStore, ObjectStore

from ucxstore.base import logs
from ucxstore.base.address import SCHEME
from ucxstore.base.object_urls import open_object_store
from ucxstore.base.secret import Secret
from ucxstore.base.zarr_compat import sync
from ucxstore.copies.process import ChildError, answer, module_command, run_child
from ucxstore.copies.result import Counts
from ucxstore.copies.workload import Workload, count_workload
from ucxstore.stores.store import UcxStore

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


@dataclass(frozen=True, slots=True)
class Row:
    """A location with a pipeline: a row of the report.

    Parameters
    ----------
    name : str
        The name in the report.
    location : str
        A ``ucx://`` address, a URL that obstore opens, or a directory; ``""`` for the memory of
        the process itself. Arrays are written under a new prefix in it, and deleted at the end.
    pipeline : str
        A key of `ucxstore.copies.workload.PIPELINES`.
    client : dict
        `UcxStore`'s options ``ucx``, ``local`` and ``timeout``, and ``secret_file``.
    """

    name: str
    location: str
    pipeline: str = "default"
    client: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, location: str, client: Mapping[str, Any]) -> "Row":
        """Make the row of a user's location, with the usual pipeline for it."""
        if location.startswith(SCHEME):
            return cls(location, location, "zero-copy", client)
        return cls(location, location)


@dataclass(frozen=True, slots=True)
class Result:
    """The counts of a transfer, or the error if there are none."""

    row: Row
    workload: Workload
    counts: Counts | None
    error: str = ""


def workloads(side: int) -> list[Workload]:
    """Return the transfers: each array is written, then read."""
    return [
        Workload(direction, codec, layout, side)
        for codec in ("raw", "zstd")
        for layout in ("one", "grid")
        for direction in ("write", "read")
    ]


def run(rows: Sequence[Row], side: int, captures: Path | None = None) -> Iterator[Result]:
    """Count the copies of every transfer in every row.

    Parameters
    ----------
    rows : sequence of Row
    side : int
        Items along each axis of the array.
    captures : Path or None
        A folder for memray's captures.

    Yields
    ------
    Result
        One for each transfer, as soon as it is counted.
    """
    for number, row in enumerate(rows):
        prefixed = replace(row, location=_join(row.location, f"ucxstore-copies-{uuid.uuid4().hex}"))
        try:
            for workload in workloads(side):
                capture = captures and captures / f"{number}-{workload.name}.bin"
                counts, error = _count(prefixed, workload, capture)
                yield Result(row, workload, counts, error)
        finally:
            if row.location:
                _delete(prefixed)


def _join(location: str, name: str) -> str:
    return location and f"{location.rstrip('/')}/{name}"


def _count(row: Row, workload: Workload, capture: Path | None) -> tuple[Counts | None, str]:
    # Each array has its own prefix. The read uses the array that the write has stored.
    location = _join(row.location, workload.stored_as)
    task = {
        "row": asdict(replace(row, location=location)),
        "workload": asdict(workload),
        "capture": None if capture is None else str(capture),
    }
    try:
        return Counts.from_json(run_child(module_command("ucxstore.copies.quick"), task)), ""
    except ChildError as error:
        return None, str(error).splitlines()[-1]


def _delete(row: Row) -> None:
    with suppress(Exception), closing(_open(row)) as store:  # failures were reported before
        sync(store.delete_dir(""))


def _open(row: Row) -> Store:
    location = row.location
    if not location:
        return MemoryStore()
    if location.startswith(SCHEME):
        options = dict(row.client)
        file = options.pop("secret_file", None)
        secret = Secret.find() if file is None else Secret.from_file(file)
        return UcxStore(location, secret=secret, select_pipeline=False, **options)
    if not _URL.match(location):
        return LocalStore(location)
    more: dict[str, Any] = {"mkdir": True} if location.startswith("file://") else {}
    return ObjectStore(open_object_store(location, warn=partial(logs.root.warning, "%s"), **more))


def _main(row: dict[str, Any], workload: dict[str, Any], capture: str | None) -> dict[str, Any]:
    """Count one transfer in this process."""
    one, moved = Row(**row), Workload(**workload)
    with closing(_open(one)) as store:
        if not one.location and moved.direction == "read":
            moved.create(store)[:] = moved.values()
        path = None if capture is None else Path(capture)
        return asdict(count_workload(store, moved, one.pipeline, path))


if __name__ == "__main__":
    answer(_main)
