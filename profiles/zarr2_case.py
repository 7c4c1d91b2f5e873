"""Run a case with zarr-python 2, in the environment that ``make zarr2`` makes."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profiles.children import CaseError, count_elsewhere
from ucxstore.copies.process import run_child

if TYPE_CHECKING:
    from profiles.case import Case

PYTHON = Path("build", "zarr2", "bin", "python")
_CHILD = Path(__file__).with_name("zarr2.py")


def run_zarr2(case: "Case", location: str, *, phase: str) -> dict[str, Any]:
    """Run the case, and return an answer like that of `profiles.child`.

    Parameters
    ----------
    phase : {"prepare", "measure"}
        ``"prepare"`` only writes the array.

    Raises
    ------
    CaseError
        If the environment does not exist.
    ChildError
        If it fails.
    """
    if not PYTHON.exists():
        raise CaseError(f"there is no zarr 2 in {PYTHON.parent.parent}: `make zarr2` puts it there")
    workload, capture = case.workload, case.capture()
    spec = {
        "store": "s3fs" if case.row.in_bucket else "local",
        "location": location,
        "s3": case.access,
        "phase": phase,
        "direction": workload.direction,
        "codec": workload.codec,
        "shape": workload.shape,
        "chunks": workload.chunk_shape,
        "seed": 0,
        "capture": None if phase == "prepare" else str(capture),
    }
    answer = run_child([str(PYTHON), "-P", str(_CHILD)], spec)
    if phase == "prepare":
        return {}
    own = [answer["result"]] if answer["result"] else []
    result_nbytes = sum(size for _, size in own)
    counts = count_elsewhere(
        capture,
        nbytes=workload.nbytes,
        chunk_nbytes=workload.chunk_nbytes,
        own=own,
        rss_extra=(answer["rss_extra_bytes"] - result_nbytes) / workload.nbytes,
    )
    return {**answer, "counts": asdict(counts)}
