"""``ucxstore copies``: measure, and write the report."""

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ucxstore.copies import stores, workloads
from ucxstore.copies.report.page import render_page
from ucxstore.copies.report.text import headline, markdown_tables, terminal_tables
from ucxstore.copies.result import CaseResult
from ucxstore.copies.run import connection, run_all
from ucxstore.copies.s3 import s3_server
from ucxstore.copies.stores import Row
from ucxstore.copies.work import S3, Work
from ucxstore.copies.workloads import Workload

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

# What loading UCX and connecting may take, of a client's memory.
_CONNECTION_BYTES = 16 << 20

_INTERRUPTED = 130  # as of a shell: 128 and SIGINT


def main(arguments: Sequence[str]) -> int:
    """Run the command; return its exit status."""
    options = _make_parser().parse_args(arguments)
    side = _QUICK_SIDE if options.quick else _SIDE
    patterns = options.stores or (_QUICK_STORES if options.quick else ())
    try:
        rows = stores.select(patterns)
        loads = workloads.select(options.workloads or (), side)
    except ValueError as error:
        print(f"ucxstore copies: {error}", file=sys.stderr)
        return 2
    # Apart, so that a quick run does not do away with the figures of a long one.
    kind = "quick" if options.quick else ""
    output = options.output or Path("profiles", kind)
    drawn = options.flamegraphs or Path("flamegraphs", kind)
    output.mkdir(parents=True, exist_ok=True)
    file = output / "copies.json"
    report = _Report(file, _settings(side), _machine())
    if options.resume:
        try:
            report.take_over()
        except ValueError as error:
            print(f"ucxstore copies: {error}", file=sys.stderr)
            return 2
    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory(prefix="ucxstore-copies-"))
        works = _works(rows, loads, output, Path(folder), report)
        if any(work.row.in_bucket for work in works):
            works = _with_s3(works, Path(folder), stack)
        try:
            _measure(works, report, options.jobs)
        except KeyboardInterrupt:
            print("ucxstore copies: interrupted (--resume goes on)", file=sys.stderr)
            return _INTERRUPTED
        report.connections = _connections(rows, output, Path(folder), loads[0])
    report.write()
    page = output / "copies.html"
    flamegraphs = {path.stem for path in drawn.glob("*.html")}
    page.write_text(report.page(flamegraphs), encoding="utf-8")
    tables = output / "copies.md"
    tables.write_text(f"{markdown_tables(report.cases)}\n", encoding="utf-8")
    print(terminal_tables(report.cases))
    print(f"\n{headline(report.cases, flamegraphs)}\n")
    for name, nbytes in report.connections.items():
        print(f"loading UCX and connecting over {name}: {nbytes / 2**20:.1f} MiB by memray")
    print(f"Every figure is in {file}, with the charts in {page} and the tables in {tables}.")
    return _conclude(report)


class _Report:
    """What was found so far; written after every case, so that a run can be resumed."""

    def __init__(self, file: Path, settings: dict[str, Any], machine: dict[str, str]) -> None:
        self.cases: list[CaseResult] = []
        self.connections: dict[str, int] = {}
        self._file = file
        self._settings = settings
        self._machine = machine

    def take_over(self) -> None:
        """Read what an earlier run has found, where it was one of the same settings.

        What failed then is run again. Raises ValueError where the file is something else.
        """
        try:
            found = json.loads(self._file.read_text())
            if found["settings"] != self._settings:
                return
            cases = [CaseResult.from_json(case) for case in found["cases"]]
        except FileNotFoundError:
            return
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{self._file} is no report to resume: {error}") from error
        self.cases = [case for case in cases if not case.error]

    def has(self, row: Row, workload: Workload) -> bool:
        return any(
            (case.store, case.pipeline, case.transport) == (row.store, row.pipeline, row.transport)
            and (case.direction, case.codec, case.layout)
            == (workload.direction, workload.codec, workload.layout)
            for case in self.cases
        )

    def write(self) -> None:
        content = {
            "machine": self._machine,
            "settings": self._settings,
            "connections": self.connections,
            "cases": [case.to_json() for case in self.cases],
        }
        partial = self._file.with_suffix(".partial")
        partial.write_text(json.dumps(content, indent=1))
        partial.replace(self._file)

    def page(self, flamegraphs: set[str]) -> str:
        return render_page(
            self.cases,
            machine=self._machine,
            settings={
                **self._settings,
                **{
                    f"loading UCX and connecting, {name}": f"{nbytes / 2**20:.1f} MiB"
                    for name, nbytes in self.connections.items()
                },
            },
            flamegraphs=flamegraphs,
            folder="../flamegraphs",
        )


def _works(
    rows: Sequence[Row], loads: Sequence[Workload], output: Path, scratch: Path, report: _Report
) -> list[Work]:
    return [
        Work(row, load, output, scratch, None)
        for load in loads
        for row in rows
        if row.can(load) and not report.has(row, load)
    ]


def _with_s3(works: Sequence[Work], folder: Path, stack: ExitStack) -> list[Work]:
    (folder / "s3").mkdir()
    server = stack.enter_context(s3_server(folder / "s3"))
    names = ("endpoint", "access_key", "secret_key", "region")
    access = {name: str(getattr(server, name)) for name in names}
    s3 = S3(server.bucket, access, f"S3: {server.description}")
    return [Work(work.row, work.workload, work.captures, work.scratch, s3) for work in works]


def _measure(works: Sequence[Work], report: _Report, jobs: int) -> None:
    start = time.monotonic()
    number = 0

    def done(work: Work, results: list[CaseResult]) -> None:
        nonlocal number
        number += 1
        report.cases.extend(results)
        report.write()
        left = (time.monotonic() - start) / number * (len(works) - number)
        print(
            f"[{number}/{len(works)}, {left / 60:.0f} min left] {work.workload.name} "
            f"{work.row.name}: {'; '.join(map(_summary, results))}",
            file=sys.stderr,
            flush=True,
        )

    run_all(works, done, jobs)
    order = {row.name: number for number, row in enumerate(stores.ROWS)}
    report.cases.sort(
        key=lambda case: order[Row(case.store, case.pipeline, "process", case.transport).name]
    )


def _summary(result: CaseResult) -> str:
    if result.counts is None:
        return result.error
    return f"{result.side} {result.counts.peak_extra:.2f} / {result.counts.total:.2f}"


def _connections(
    rows: Sequence[Row], output: Path, scratch: Path, workload: Workload
) -> dict[str, int]:
    """Return the bytes that a client takes to load UCX and connect, over each transport."""
    ours = {row.transport: row for row in rows if row.place == "server"}
    return {
        transport: round(connection(row, scratch, output, workload).peak)
        for transport, row in ours.items()
    }


def _conclude(report: _Report) -> int:
    """Return 1 where a case failed, or where connecting takes too much."""
    failed = [case for case in report.cases if case.error]
    for case in failed:
        print(f"FAILED: {case.store}, {case.direction}-{case.codec}-{case.layout}: {case.error}")
    heavy = [name for name, size in report.connections.items() if size >= _CONNECTION_BYTES]
    for name in heavy:
        print(f"MISSED: connecting over {name} takes 16 MiB or more")
    return 1 if failed or heavy else 0


def _settings(side: int) -> dict[str, Any]:
    return {"array": f"{side} x {side} float32, random", "bytes": side * side * 4}


def _machine() -> dict[str, str]:
    return {
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "CPUs": str(os.cpu_count()),
        "Python": platform.python_version(),
    }


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ucxstore copies",
        description="Count the copies that zarr stores make of an array, with memray.",
        allow_abbrev=False,
    )
    parser.add_argument("--quick", action="store_true", help="16 MB, and no S3 and no zarr 2")
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
        "--resume", action="store_true", help="keep what an earlier run of the same size has found"
    )
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="cases at a time")
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FOLDER",
        help="where the figures, the page and memray's captures go (profiles, or profiles/quick)",
    )
    parser.add_argument(
        "--flamegraphs",
        type=Path,
        metavar="FOLDER",
        help="where flamegraphs are that the report links to (flamegraphs, or flamegraphs/quick)",
    )
    return parser
