"""One case in a process of its own: ``python -m ucxstore.copies.child SPEC ANSWER``."""

import json
import platform
import sys
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ucxstore.copies import arrays, count_copies
from ucxstore.copies.result import Counts
from ucxstore.copies.stores import Row, opened
from ucxstore.copies.workloads import Workload
from ucxstore.zarr_compat import sync

_PACKAGES = ("zarr", "numcodecs", "numpy", "memray", "obstore", "s3fs", "zarrs", "ucxstore")


@dataclass(frozen=True, slots=True)
class Spec:
    """What a child is to do.

    Attributes
    ----------
    task : str
        ``"prepare"``: write the array, for a later read; nothing is counted. ``"measure"``: the
        workload. ``"connect"``: load UCX and connect to the server, and no more.
    place : str
        As for `ucxstore.copies.stores.opened`.
    capture : str
        Where memray writes.
    """

    task: Literal["prepare", "measure", "connect"]
    row: Row
    workload: Workload
    place: str
    s3: dict[str, str] | None
    capture: str

    def to_json(self) -> str:
        """Return the child's argument."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Spec":
        """Return what `to_json` made."""
        value = json.loads(text)
        row, workload = Row(**value["row"]), Workload(**value["workload"])
        return cls(**{**value, "row": row, "workload": workload})


def main(spec: Spec) -> dict[str, Any]:
    """Carry it out; return what the parent asks for, as JSON can hold it."""
    if spec.task == "connect":
        return {"counts": asdict(_connect(spec))}
    with opened(spec.row, spec.place, spec.s3) as store:
        if spec.task == "prepare" or (
            spec.row.place == "process" and spec.workload.direction == "read"
        ):
            arrays.create(store, spec.workload)[:] = arrays.values(spec.workload)
        counts = None if spec.task == "prepare" else asdict(_measure(store, spec))
        stored = sync(store.getsize_prefix("c"))
    return {"counts": counts, "stored_nbytes": stored, "versions": versions()}


def versions() -> dict[str, str]:
    """Return those of Python and of every package that a row runs on."""
    found = {"Python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _measure(store: Any, spec: Spec) -> Counts:
    workload = spec.workload
    array = arrays.open_for(store, workload, spec.row.pipeline)  # connects
    values = arrays.values(workload)
    results: list[Any] = []

    def read() -> Any:
        results.append(array[:])
        return results[0]

    def write() -> None:
        array[:] = values

    _meet("connected")
    counts = count_copies(
        write if workload.direction == "write" else read,
        workload.nbytes,
        chunk_nbytes=workload.chunk_nbytes,
        capture=spec.capture,
    )
    _meet("done")
    if workload.direction == "write":
        array = arrays.open_for(store, _as_read(workload), "default")
        results.append(array[:])
    if not np.array_equal(results[0], values):
        raise AssertionError("the data came back wrong")
    return counts


def _meet(state: str) -> None:
    """Tell the parent, and wait until it says to go on: it may count at the server meanwhile."""
    print(state, flush=True)
    sys.stdin.readline()  # at once, where there is nobody to write


def _as_read(workload: Workload) -> Workload:
    return Workload("read", workload.codec, workload.layout, workload.side)


def _connect(spec: Spec) -> Counts:
    """Count what it takes to be connected, in parts of the array."""
    held: list[Any] = []

    def connect() -> None:
        context = opened(spec.row, spec.place, None)
        held.append(context)
        if context.__enter__().get_sync("missing") is not None:  # type: ignore[attr-defined]
            raise AssertionError("a key that nobody wrote")

    counts = count_copies(connect, spec.workload.nbytes, capture=spec.capture)
    held[0].__exit__(None, None, None)
    return counts


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(json.dumps(main(Spec.from_json(sys.argv[1]))))
