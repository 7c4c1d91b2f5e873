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
from profiles.report.page import SMALL
from profiles.report.tables import Links, headline, terminal_tables
from profiles.result import CaseResult
from profiles.run import connection, run_all
from profiles.s3 import s3_server
from profiles.stores import Row
from ucxstore.copies.workload import Workload
from ucxstore.drawing.tables import markdown_table

# Captures and unfinished results; git ignores it.
_BUILD = Path("build", "profiles")
# The results of the last whole run, which are committed, and the chart of them in docs/copies.md.
_RESULTS = Path("profiles", "results")
_IMAGE = Path("docs", "images", "copies.svg")

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
# One chunk: in those of a small grid, memory of constant size would count as copies.
_QUICK_WORKLOADS = ("raw-one", "zstd-one")
_QUICK_JOBS = 2

# Seconds that a case takes on a machine with two cores, for the estimate at the start.
_SECONDS_OF_CASE = 3.0
_SECONDS_OF_QUICK_CASE = 2.2

# The memory of a client that connecting may take, and loading UCX where it is used.
_CONNECTION_BYTES = 16 << 20

_INTERRUPTED = 130  # as in shells: 128 + SIGINT


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    options = _make_parser().parse_args(arguments)
    jobs = (_QUICK_JOBS if options.quick else 1) if options.jobs is None else options.jobs
    if jobs < 1:
        print(f"profiles: --jobs: {jobs} is less than 1", file=sys.stderr)
        return 2
    if options.redraw:
        return _redraw()
    side = _QUICK_SIDE if options.quick else _SIDE
    # A quick run has its own folder, so it does not replace the record of a whole run.
    output = options.output or _BUILD / ("quick" if options.quick else "")
    output.mkdir(parents=True, exist_ok=True)
    record = Record(output / "copies.json", side)
    try:
        rows = stores.select(options.stores or (_QUICK_STORES if options.quick else ()))
        patterns = options.workloads or (_QUICK_WORKLOADS if options.quick else ())
        loads = workloads.select(patterns, side)
        if options.resume:
            record.resume()
    except ValueError as error:
        print(f"profiles: {error}", file=sys.stderr)
        return 2
    page = _Page(record, output / "copies.html", options.flamegraphs)
    try:
        _measure(rows, loads, record, output, jobs, page)
    except KeyboardInterrupt:
        print("profiles: interrupted (--resume goes on)", file=sys.stderr)
        return _INTERRUPTED
    _report(record, output, page)
    whole = not (options.quick or options.stores or options.workloads)
    return _conclude(record, _RESULTS if whole else None)


class _Page:
    """The page of a run in a file, which links to the flamegraphs of a folder."""

    def __init__(self, record: Record, file: Path, flamegraphs: Path) -> None:
        self.flamegraphs = {path.stem for path in flamegraphs.glob("*.html")}
        self._record = record
        self._file = file
        self._folder = os.path.relpath(flamegraphs, file.parent)

    def write(self, left: int = 0) -> None:
        """Write the page of the cases so far, in one step."""
        partial = self._file.with_suffix(".partial")
        page = self._record.page(self.flamegraphs, self._folder, left)
        partial.write_text(page, encoding="utf-8")
        partial.replace(self._file)


def _redraw() -> int:
    """Draw the images of the committed results anew."""
    record = Record.of(_RESULTS / "copies.json")
    _draw(record)
    return 0


def _draw(record: Record) -> None:
    _IMAGE.parent.mkdir(parents=True, exist_ok=True)
    _IMAGE.write_text(record.image(), encoding="utf-8")
    print(f"The chart is in {_IMAGE}.")


def _measure(
    rows: Sequence[Row],
    loads: Sequence[Workload],
    record: Record,
    output: Path,
    jobs: int,
    page: _Page,
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
        if cases:
            print(_estimate(cases, jobs), file=sys.stderr, flush=True)
        run_all(cases, _Progress(record, page, len(cases)), jobs)
        record.add_connections(_connections(rows, output, scratch, loads[0]))
    record.add([])


def _estimate(cases: Sequence[Case], jobs: int) -> str:
    small = cases[0].workload.side == _QUICK_SIDE
    seconds = (_SECONDS_OF_QUICK_CASE if small else _SECONDS_OF_CASE) * len(cases) / jobs
    time_taken = f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
    count = "1 case" if len(cases) == 1 else f"{len(cases)} cases"
    return f"{count}, {jobs} at a time: about {time_taken} on two idle cores"


class _Progress:
    """Add results to the record and the page as they come, and print the progress of the run."""

    def __init__(self, record: Record, page: _Page, count: int) -> None:
        self._record = record
        self._page = page
        self._count = count
        self._number = 0
        self._start = time.monotonic()

    def __call__(self, case: Case, results: list[CaseResult]) -> None:
        self._record.add(results)
        self._number += 1
        self._page.write(self._count - self._number)
        seconds = time.monotonic() - self._start
        left = seconds / self._number * (self._count - self._number)
        print(
            f"[{self._number}/{self._count}, {left / 60:.1f} min left] {case.workload.name} "
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


def _report(record: Record, output: Path, page: _Page) -> None:
    """Write the page and the tables, and print tables."""
    page.write()
    (output / "copies.md").write_text(record.markdown(), encoding="utf-8")
    print(terminal_tables(record.cases))
    print(f"\n{markdown_table(headline(record.cases, Links(page.flamegraphs)))}\n")
    for name, nbytes in record.connections.items():
        print(f"connecting over {name}: {nbytes / 2**20:.1f} MiB by memray")
    if record.is_small:
        print(f"{SMALL}\n")
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
        print(f"The results are in {results}. Commit them, and the chart.")
        _draw(record)
    return 1 if failed or heavy else 0


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m profiles",
        description="Count the copies that every zarr store makes of an array, with memray.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="16 MB in one chunk, raw and zstd, without S3 and zarr 2: about 90 seconds",
    )
    parser.add_argument(
        "--redraw",
        action="store_true",
        help=f"measure nothing; draw {_IMAGE} from the committed results",
    )
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
    parser.add_argument(
        "--jobs", type=int, metavar="N", help="concurrent cases (default: 1, or 2 with --quick)"
    )
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
