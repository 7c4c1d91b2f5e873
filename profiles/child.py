"""The client process of a case: ``python -m profiles.child SPEC ANSWER``."""

import json
import platform
import sys
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

from profiles.moves import action_of
from profiles.stores import Row, check_transport, opened
from profiles.ways import Ways, check_ways
from ucxstore.base.zarr_compat import sync
from ucxstore.copies import Counts, count_copies
from ucxstore.copies.workload import Workload, count_workload

_PACKAGES = ("zarr", "numcodecs", "numpy", "memray", "obstore", "s3fs", "zarrs", "ucxstore")


@dataclass(frozen=True, slots=True)
class Spec:
    """The task of a child.

    Attributes
    ----------
    task : str
        ``"prepare"``: write the array for a later read, and count nothing. ``"measure"``: run the
        workload. ``"connect"``: only connect to the server, and load UCX where it is used.
    location : str
        As for `profiles.stores.opened`.
    capture : str
        The file of memray's capture.
    """

    task: Literal["prepare", "measure", "connect"]
    row: Row
    workload: Workload
    location: str
    s3: dict[str, str] | None
    capture: str

    def to_json(self) -> str:
        """Return the spec as the child's argument."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Spec":
        """Return the spec of the child's argument."""
        value = json.loads(text)
        row, workload = Row(**value["row"]), Workload(**value["workload"])
        return cls(**{**value, "row": row, "workload": workload})


def main(spec: Spec) -> dict[str, Any]:
    """Do the task; return an answer that can be written as JSON."""
    if spec.task == "connect":
        return {"counts": asdict(_connect(spec))}
    workload, counts = spec.workload, None
    ways: dict[str, int] = {}
    with opened(spec.row, spec.location, spec.s3) as store:
        is_kept_here = spec.row.kind == "process" and workload.direction == "read"
        if spec.task == "prepare" or is_kept_here:
            workload.create(store)[:] = workload.values()
        if spec.task == "measure":
            counts, ways = _measure(spec, store)
        stored = sync(store.getsize_prefix("c"))
        check_transport(spec.row, store)
    return {"counts": counts, "ways": ways, "stored_nbytes": stored, "versions": versions()}


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that rows use."""
    found = {"Python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _measure(spec: Spec, store: Any) -> tuple[dict[str, Any], dict[str, int]]:
    """Count the copies of the workload, and the ways that its chunks went."""
    counting: list[Ways] = []
    ways: dict[str, int] = {}

    def wait(state: str) -> None:
        if state == "connected":
            counting.append(Ways(store))
            _wait(state)
        else:
            _wait(state)
            ways.update(counting[0].since())

    counts = count_workload(
        store,
        spec.workload,
        spec.row.pipeline,
        Path(spec.capture),
        wait,
        action=action_of(spec.row, store),
    )
    check_ways(spec.row, ways)
    return asdict(counts), ways


def _wait(state: str) -> None:
    """Print the state and wait, while the parent starts or stops counting at the server."""
    print(state, flush=True)
    sys.stdin.readline()


def _connect(spec: Spec) -> Counts:
    """Count the memory of a connection, in multiples of the array."""
    held: list[Any] = []

    def connect() -> None:
        context = opened(spec.row, spec.location, None)
        held.append(context)
        if context.__enter__().get_sync("missing") is not None:  # type: ignore[attr-defined]
            raise AssertionError("there is a value under the key 'missing'")

    counts = count_copies(connect, spec.workload.nbytes, capture=spec.capture)
    held[0].__exit__(None, None, None)
    return counts


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(json.dumps(main(Spec.from_json(sys.argv[1]))))
