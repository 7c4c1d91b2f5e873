"""A case of zarr-python 2, which has an environment of its own: ``make zarr2`` makes it."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ucxstore.copies.children import CaseError, count_elsewhere, run_program
from ucxstore.copies.stores import Row
from ucxstore.copies.workloads import Workload

PYTHON = Path("build", "zarr2", "bin", "python")
_CHILD = Path(__file__).with_name("zarr2.py")


def run_zarr2(
    row: Row,
    workload: Workload,
    place: str,
    s3: dict[str, str] | None,
    capture: Path | None,
    folder: Path,
) -> dict[str, Any]:
    """Run it, and return what a child of zarr 3 would: without `capture`, only the writing.

    Raises
    ------
    CaseError
        If it failed, or if there is no such environment.
    """
    if not PYTHON.exists():
        raise CaseError(f"there is no zarr 2 in {PYTHON.parent.parent}: `make zarr2` puts it there")
    spec = {
        "store": "s3fs" if row.place == "bucket" else "local",
        "place": place,
        "s3": s3,
        "phase": "prepare" if capture is None else "measure",
        "direction": workload.direction,
        "codec": workload.codec,
        "shape": workload.shape,
        "chunks": workload.chunk_shape,
        "seed": 0,
        "capture": None if capture is None else str(capture),
    }
    answer = json.loads(run_program([str(PYTHON), "-P", str(_CHILD), json.dumps(spec)], folder))
    if capture is None:
        return {}
    own = [answer["result"]] if answer["result"] else []
    result_nbytes = sum(size for _, size in own)
    counts = count_elsewhere(
        capture,
        folder,
        nbytes=workload.nbytes,
        chunk_nbytes=workload.chunk_nbytes,
        own=own,
        rss_extra=(answer["rss_extra_bytes"] - result_nbytes) / workload.nbytes,
    )
    return {**answer, "counts": asdict(counts)}
