"""All cases, each in processes of its own, and what has been found so far."""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ucxstore.copies.children import CaseError, count_elsewhere, run_child, serving
from ucxstore.copies.result import CaseResult, Counts
from ucxstore.copies.stores import COLD, Row
from ucxstore.copies.work import Prepared, Work
from ucxstore.copies.workloads import Workload
from ucxstore.copies.zarr2_case import run_zarr2


def run_all(
    works: Sequence[Work], done: Callable[[Work, list[CaseResult]], None], jobs: int
) -> None:
    """Run the cases, `jobs` at a time, and hand over the results of each as they come.

    Counting is no matter of time, so cases do not disturb each other.
    """
    places = Prepared()
    lock = threading.Lock()

    def one(work: Work) -> None:
        results = run_case(work, places)
        with lock:
            done(work, results)

    with ThreadPoolExecutor(jobs) as pool:
        try:
            for future in [pool.submit(one, work) for work in works]:
                future.result()
        finally:  # interrupted, it begins no more of them
            pool.shutdown(cancel_futures=True)


def run_case(work: Work, prepared: Prepared) -> list[CaseResult]:
    """Run one case; a failure is a result, too."""
    start = time.monotonic()
    try:
        with TemporaryDirectory(prefix="case-", dir=work.scratch) as folder:
            results = _run(work, Path(folder), prepared)
    except (CaseError, OSError) as error:
        results = [_result(work, None, error=" ".join(str(error).split()))]
    seconds = round(time.monotonic() - start, 2)
    return [replace(result, seconds=seconds) for result in results]


def _run(work: Work, folder: Path, prepared: Prepared) -> list[CaseResult]:
    if work.row.zarr2:
        return [_run_zarr2(work, folder, prepared)]
    if work.row.place == "server":
        return _run_with_server(work, folder, prepared)
    place = prepared.place(work, folder)
    answer = run_child(work.spec("measure", place), folder)
    return [_result(work, answer)]


def _run_zarr2(work: Work, folder: Path, prepared: Prepared) -> CaseResult:
    place = prepared.place(work, folder)
    return _result(
        work, run_zarr2(work.row, work.workload, place, work.access, work.capture(), folder)
    )


def _run_with_server(work: Work, folder: Path, prepared: Prepared) -> list[CaseResult]:
    root = _root(work, folder, prepared)
    with serving(root, work.row.ucx, work.access) as server:
        if work.workload.direction == "read" and work.row.storage != COLD:
            run_child(work.spec("prepare", server.address), folder)
        capture = work.capture("server")
        said: list[dict[str, Any]] = []
        at = {
            "connected": lambda: server.tell(f"track {capture}"),
            "done": lambda: said.append(server.tell("stop")),
        }
        answer = run_child(work.spec("measure", server.address), folder, at=at)
        resident = int(said[0]["resident"])
    stored = int(answer["stored_nbytes"])
    is_kept = work.row.storage == COLD or work.workload.direction == "write"
    keeps = is_kept and work.row.storage != "directory"
    counts = count_elsewhere(
        capture,
        folder,
        nbytes=work.workload.nbytes,
        chunk_nbytes=work.workload.chunk_nbytes,
        stored_nbytes=stored,
        rss_extra=(resident - (stored if keeps else 0)) / work.workload.nbytes,
    )
    client = _result(work, answer)
    return [client, replace(client, side="server", counts=counts, capture=str(capture))]


def _root(work: Work, folder: Path, prepared: Prepared) -> str:
    """Return what the server serves."""
    if not work.row.in_bucket:
        return "memory://" if work.row.storage == "memory" else str(folder / "served")
    if work.row.storage == COLD:
        return f"s3://{prepared.place(work, folder)}"
    return f"s3://{prepared.written(work)}"


def connection(row: Row, scratch: Path, captures: Path, workload: Workload) -> Counts:
    """Count what a client needs to load UCX and connect, in parts of the workload's array."""
    work = Work(row, workload, captures, scratch, None)
    with (
        TemporaryDirectory(prefix="case-", dir=scratch) as folder,
        serving("memory://", row.ucx) as server,
    ):
        spec = replace(
            work.spec("connect", server.address), capture=str(captures / f"connect-{row.name}.bin")
        )
        return Counts.from_json(run_child(spec, Path(folder))["counts"])


def _result(work: Work, answer: dict[str, Any] | None, error: str = "") -> CaseResult:
    found = answer or {}
    counts = found.get("counts")
    return CaseResult(
        store=work.row.store,
        pipeline=work.row.pipeline,
        transport=work.row.transport,
        direction=work.workload.direction,
        codec=work.workload.codec,
        layout=work.workload.layout,
        nbytes=work.workload.nbytes,
        chunk_nbytes=work.workload.chunk_nbytes,
        stored_nbytes=int(found.get("stored_nbytes", 0)),
        counts=None if counts is None else Counts.from_json(counts),
        capture=str(work.capture()) if counts is not None else "",
        versions=found.get("versions", {}),
        note=work.note,
        error=error,
    )
