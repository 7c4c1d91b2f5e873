"""Run cases, each in new processes."""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from profiles.case import Case, Prepared
from profiles.children import CaseError, count_elsewhere, run_client, serving
from profiles.result import CaseResult
from profiles.stores import COLD, Row
from profiles.zarr2_case import run_zarr2
from ucxstore.copies import Counts
from ucxstore.copies.process import ChildError
from ucxstore.copies.workload import Workload


def run_all(
    cases: Sequence[Case], done: Callable[[Case, list[CaseResult]], None], jobs: int
) -> None:
    """Run the cases, `jobs` at a time; call `done` with the results of each.

    Cases do not disturb one another, since counts do not depend on time.
    """
    prepared = Prepared()
    lock = threading.Lock()

    def one(case: Case) -> None:
        results = run_case(case, prepared)
        with lock:
            done(case, results)

    with ThreadPoolExecutor(jobs) as pool:
        try:
            for future in [pool.submit(one, case) for case in cases]:
                future.result()
        finally:  # after Ctrl-C, start no more cases
            pool.shutdown(cancel_futures=True)


def run_case(case: Case, prepared: Prepared) -> list[CaseResult]:
    """Run one case; a failure also gives a result."""
    start = time.monotonic()
    try:
        with TemporaryDirectory(prefix="case-", dir=case.scratch) as folder:
            results = _run(case, Path(folder), prepared)
    except (CaseError, ChildError, OSError) as error:
        results = [_result(case, {}, error=_reason(error))]
    seconds = round(time.monotonic() - start, 2)
    return [replace(result, seconds=seconds) for result in results]


def _run(case: Case, folder: Path, prepared: Prepared) -> list[CaseResult]:
    if case.row.kind == "server":
        return _run_with_server(case, folder, prepared)
    location = prepared.location(case, folder)
    if case.row.zarr2:
        return [_result(case, run_zarr2(case, location, phase="measure"))]
    return [_result(case, run_client(case.spec("measure", location), folder))]


def _reason(error: Exception) -> str:
    """Return an error as one line; of a child's output, the last line."""
    text = str(error)
    return text.splitlines()[-1] if isinstance(error, ChildError) else " ".join(text.split())


def _run_with_server(case: Case, folder: Path, prepared: Prepared) -> list[CaseResult]:
    with serving(_served(case, folder, prepared), case.row.server_options, case.access) as server:
        if case.workload.direction == "read" and case.row.storage != COLD:
            run_client(case.spec("prepare", server.address), folder)
        capture = case.capture("server")
        answers: list[dict[str, Any]] = []
        at = {
            "connected": lambda: server.send(f"track {capture}"),
            "done": lambda: answers.append(server.send("stop")),
        }
        answer = run_client(case.spec("measure", server.address), folder, at=at)
        resident = int(answers[0]["resident"])
    stored = int(answer["stored_nbytes"])
    is_kept = case.row.storage == COLD or case.workload.direction == "write"
    keeps = is_kept and case.row.storage != "directory"
    counts = count_elsewhere(
        capture,
        nbytes=case.workload.nbytes,
        chunk_nbytes=case.workload.chunk_nbytes,
        stored_nbytes=stored,
        rss_extra=(resident - (stored if keeps else 0)) / case.workload.nbytes,
    )
    client = _result(case, answer)
    server_side = replace(client, side="server", counts=counts, ways={}, capture=str(capture))
    return [client, server_side]


def _served(case: Case, folder: Path, prepared: Prepared) -> str:
    """Return the location that the server serves."""
    if case.row.storage == "memory":
        return "memory://"
    if not case.row.in_bucket:
        (folder / "served").mkdir(exist_ok=True)
        return str(folder / "served")
    if case.row.storage == COLD:
        return f"s3://{prepared.location(case, folder)}"
    return f"s3://{prepared.written(case)}"


def connection(row: Row, scratch: Path, captures: Path, workload: Workload) -> Counts:
    """Count the memory that a client needs to connect, in multiples of the array."""
    case = Case(row, workload, captures, scratch)
    with (
        TemporaryDirectory(prefix="case-", dir=scratch) as folder,
        serving("memory://", row.server_options) as server,
    ):
        spec = replace(
            case.spec("connect", server.address), capture=str(captures / f"connect-{row.name}.bin")
        )
        return Counts.from_json(run_client(spec, Path(folder))["counts"])


def _result(case: Case, answer: dict[str, Any], error: str = "") -> CaseResult:
    counts = answer.get("counts")
    return CaseResult(
        store=case.row.store,
        pipeline=case.row.pipeline,
        transport=case.row.transport,
        direction=case.workload.direction,
        codec=case.workload.codec,
        layout=case.workload.layout,
        nbytes=case.workload.nbytes,
        chunk_nbytes=case.workload.chunk_nbytes,
        stored_nbytes=int(answer.get("stored_nbytes", 0)),
        counts=None if counts is None else Counts.from_json(counts),
        ways=answer.get("ways", {}),
        capture=str(case.capture()) if counts is not None else "",
        versions=answer.get("versions", {}),
        note=case.note,
        error=error,
    )
