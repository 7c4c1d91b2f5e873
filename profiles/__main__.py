"""``python -m profiles``: count the copies of all stores, and write the results."""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from profiles import stores, workloads
from profiles.case import S3, Case
from profiles.record import Record
from profiles.report.text import headline, terminal_tables
from profiles.result import CaseResult
from profiles.run import connection, run_all
from profiles.s3 import s3_server
from profiles.stores import Row
from ucxstore.copies.workload import Workload

# Captures and unfinished results; git ignores it.
_BUILD = Path("build", "profiles")
# The results of the last whole run, which are committed.
_RESULTS = Path("profiles", "results")

_SIDE = 5000  # 100 MB
_QUICK_SIDE = 2000  # 16 MB
_QUICK_STORES = (
    "UcxStore, memory",
    "UcxStore, directory",
    "LocalStore",
    "MemoryStore",
    "ObjectStore, local",
    "FsspecStore, local",
)

# The memory of a client that connecting may take, and loading UCX where it is used.
_CONNECTION_BYTES = 16 << 20

_INTERRUPTED = 130  # as in shells: 128 + SIGINT


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    options = _make_parser().parse_args(arguments)
    if options.jobs < 1:
        print(f"profiles: --jobs: {options.jobs} is less than 1", file=sys.stderr)
        return 2
    side = _QUICK_SIDE if options.quick else _SIDE
    # A quick run has its own folder, so it does not replace the record of a whole run.
    output = options.output or _BUILD / ("quick" if options.quick else "")
    output.mkdir(parents=True, exist_ok=True)
    record = Record(output / "copies.json", side)
    try:
        rows = stores.select(options.stores or (_QUICK_STORES if options.quick else ()))
        loads = workloads.select(options.workloads or (), side)
        if options.resume:
            record.resume()
    except ValueError as error:
        print(f"profiles: {error}", file=sys.stderr)
        return 2
    try:
        _measure(rows, loads, record, output, options.jobs)
    except KeyboardInterrupt:
        print("profiles: interrupted (--resume goes on)", file=sys.stderr)
        return _INTERRUPTED
    _report(record, output, options.flamegraphs)
    whole = not (options.quick or options.stores or options.workloads)
    return _conclude(record, _RESULTS if whole else None)


def _measure(
    rows: Sequence[Row], loads: Sequence[Workload], record: Record, output: Path, jobs: int
) -> None:
    """Run the cases that the record does not have."""
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(TemporaryDirectory(prefix="ucxstore-copies-")))
        cases = [
            Case(row, load, output, scratch)
            for load in loads
            for row in rows
            if row.supports(load) and not record.has(row, load)
        ]
        if any(case.row.in_bucket for case in cases):
            s3 = _start_s3(scratch / "s3", stack)
            cases = [replace(case, s3=s3) for case in cases]
        run_all(cases, _Progress(record, len(cases)), jobs)
        record.connections = _connections(rows, output, scratch, loads[0])
    record.add([])


class _Progress:
    """Add results to the record as they come, and print the progress of the run."""

    def __init__(self, record: Record, count: int) -> None:
        self._record = record
        self._count = count
        self._number = 0
        self._start = time.monotonic()

    def __call__(self, case: Case, results: list[CaseResult]) -> None:
        self._record.add(results)
        self._number += 1
        seconds = time.monotonic() - self._start
        left = seconds / self._number * (self._count - self._number)
        print(
            f"[{self._number}/{self._count}, {left / 60:.0f} min left] {case.workload.name} "
            f"{case.row.name}: {'; '.join(map(_summary, results))}",
            file=sys.stderr,
            flush=True,
        )


def _start_s3(folder: Path, stack: ExitStack) -> S3:
    folder.mkdir()
    server = stack.enter_context(s3_server(folder))
    return S3(server.bucket, server.access(), f"S3: {server.description}")


def _summary(result: CaseResult) -> str:
    if result.counts is None:
        return result.error
    return f"{result.side} {result.counts.peak_extra:.2f} / {result.counts.total:.2f}"


def _connections(
    rows: Sequence[Row], output: Path, scratch: Path, workload: Workload
) -> dict[str, int]:
    """Return the bytes that a client needs to connect over each transport."""
    ours = {row.transport: row for row in rows if row.kind == "server"}
    return {
        transport: round(connection(row, scratch, output, workload).peak)
        for transport, row in ours.items()
    }


def _report(record: Record, output: Path, drawn: Path) -> None:
    """Write the page and the tables, and print tables."""
    flamegraphs = {path.stem for path in drawn.glob("*.html")}
    page, tables = output / "copies.html", output / "copies.md"
    page.write_text(record.page(flamegraphs, os.path.relpath(drawn, output)), encoding="utf-8")
    tables.write_text(record.markdown(), encoding="utf-8")
    print(terminal_tables(record.cases))
    print(f"\n{headline(record.cases, flamegraphs)}\n")
    for name, nbytes in record.connections.items():
        print(f"connecting over {name}: {nbytes / 2**20:.1f} MiB by memray")
    print(f"The figures are in {output}: copies.json, copies.md, and copies.html with charts.")


def _conclude(record: Record, results: Path | None) -> int:
    """Write the results of a whole run; return 1 if a case failed or connecting takes too much."""
    failed = [case for case in record.cases if case.error]
    for case in failed:
        print(f"FAILED: {case.store}, {case.direction}-{case.codec}-{case.layout}: {case.error}")
    heavy = [name for name, size in record.connections.items() if size >= _CONNECTION_BYTES]
    for name in heavy:
        print(f"MISSED: connecting over {name} takes 16 MiB or more")
    if results is not None and not failed:
        results.mkdir(exist_ok=True)
        record.write(results / "copies.json")
        (results / "copies.md").write_text(record.markdown(), encoding="utf-8")
        print(f"The results are in {results}. Commit them.")
    return 1 if failed or heavy else 0


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m profiles",
        description="Count the copies that every zarr store makes of an array, with memray.",
        allow_abbrev=False,
    )
    parser.add_argument("--quick", action="store_true", help="16 MB, without S3 and zarr 2")
    parser.add_argument(
        "--stores",
        action="append",
        metavar="NAME",
        help="only rows with this in their name; repeatable",
    )
    parser.add_argument(
        "--workloads",
        action="append",
        metavar="NAME",
        help="only workloads with this in their name, such as write-raw-one; repeatable",
    )
    parser.add_argument(
        "--resume", action="store_true", help="keep the results of an earlier run of the same size"
    )
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="concurrent cases")
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FOLDER",
        help="where to write figures, the page and memray's captures (default: build/profiles, or "
        "build/profiles/quick)",
    )
    parser.add_argument(
        "--flamegraphs",
        type=Path,
        metavar="FOLDER",
        default=Path("flamegraphs"),
        help="the flamegraphs that the report links to (default: flamegraphs)",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
