"""``ucxstore copies``: count the copies that zarr stores make of an array."""

import argparse
import json
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from ucxstore.base.showing import printable, terminal_width, text_columns
from ucxstore.cli.common.command import add_client_options, client_options, parse_address, run
from ucxstore.cli.common.parser import Parser, make_parser
from ucxstore.cli.common.status import CommandError, UsageError

if TYPE_CHECKING:
    from ucxstore.copies.quick import Result, Row

_DEFAULT_MEGABYTES = 16
# Seconds that a transfer of the default size takes on a machine with two cores, and those that
# each further megabyte adds, for the estimate at the start.
_SECONDS = 1.1
_SECONDS_OF_MEGABYTE = 0.05
# An array that is smaller is not representative.
_LARGE_MEGABYTES = 50
_MOST_MEGABYTES = 1_000_000  # more than machines have memory
_ITEM_BYTES = 4


def main(argv: Sequence[str]) -> int:
    """Run ``ucxstore copies``; return the exit status."""
    arguments = build_parser().parse_args(argv)
    return run("copies", lambda: _main(arguments), extra="copies")


def build_parser() -> Parser:
    """Make the command's parser."""
    parser = make_parser(
        "copies",
        "Count the copies that zarr stores make of an array, with memray. The array is written "
        "under a new prefix of each LOCATION, read and deleted. Without LOCATION, stores of this "
        "machine are used: a server of memory, a directory, the memory of the process. The matrix "
        "of all stores, codecs and layouts is in the repository of ucxstore: see "
        "profiles/README.md.",
    )
    parser.add_argument(
        "location",
        metavar="LOCATION",
        nargs="*",
        help="ucx://host:port[/prefix], a directory, or file:///path, s3://, gs://, az://, https://",
    )
    # Does nothing. Scripts may give it, since it was required once.
    parser.add_argument("--quick", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument(
        "--size",
        type=float,
        default=_DEFAULT_MEGABYTES,
        metavar="MB",
        help="megabytes of the array (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, a line for each transfer")
    parser.add_argument(
        "--page",
        type=Path,
        metavar="FILE",
        help="write an HTML page with a chart; it is written again after every transfer "
        "(default: none)",
    )
    parser.add_argument(
        "--captures",
        type=Path,
        metavar="FOLDER",
        help="keep memray's captures, for flamegraphs (default: none)",
    )
    add_client_options(parser)
    return parser


def _main(arguments: argparse.Namespace) -> None:
    if not 0 < arguments.size <= _MOST_MEGABYTES:
        raise UsageError(f"--size: {arguments.size:g} MB is not between 0 and {_MOST_MEGABYTES}")
    # The grid has ten chunks along each axis.
    side = round((arguments.size * 1e6 / _ITEM_BYTES) ** 0.5 / 10) * 10
    if side < 10:
        raise UsageError(f"--size: {arguments.size:g} MB is too small")
    if find_spec("memray") is None:
        raise CommandError('memray is missing: pip install "ucxstore[copies]"')
    from ucxstore.copies.page import render_page
    from ucxstore.copies.quick import run as run_quick
    from ucxstore.copies.quick import workloads

    if arguments.captures is not None:
        arguments.captures.mkdir(parents=True, exist_ok=True)
    with _rows(arguments) as rows:
        count = len(rows) * len(workloads(side))
        if not arguments.json:
            print(_estimate(count, arguments.size), file=sys.stderr, flush=True)
        results: list[Result] = []
        start = time.monotonic()
        for result in run_quick(rows, side, arguments.captures):
            results.append(result)
            if arguments.page is not None:
                page = render_page(results, left=count - len(results), note=_note(arguments.size))
                _replace(arguments.page, page)
            if arguments.json:
                print(json.dumps(asdict(result)), flush=True)
            else:
                left = (time.monotonic() - start) / len(results) * (count - len(results))
                progress = f"[{len(results)}/{count}, {left:.0f} s] {progress_of(result)}"
                print(progress, file=sys.stderr, flush=True)
    if not arguments.json:
        print("\n\n".join(filter(None, [report(results), _wrapped(_note(arguments.size))])))
    failures = [result for result in results if result.error]
    if failures:
        raise CommandError(f"{len(failures)} of {len(results)} transfers failed")


def _estimate(count: int, megabytes: float) -> str:
    larger = max(0, megabytes - _DEFAULT_MEGABYTES)
    seconds = count * (_SECONDS + larger * _SECONDS_OF_MEGABYTE)
    return f"{count} transfers of {megabytes:g} MB: about {seconds:.0f} s on two idle cores"


def _note(megabytes: float) -> str:
    """Say what a small array distorts."""
    if megabytes >= _LARGE_MEGABYTES:
        return ""
    return (
        f"{megabytes:g} MB is a small array, and each chunk of the grid has a hundredth of it. "
        "Memory that does not grow with the array counts as part of a copy here: 0.1 in one chunk, "
        "and up to several arrays in a grid, since a compressor has buffers for each chunk. So "
        "compare rows of one column with one another; --size 100 comes closer to large arrays."
    )


def _replace(file: Path, text: str) -> None:
    """Write a file in one step, so that whoever looks finds a whole page."""
    partial = file.with_name(f"{file.name}.partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(file)


@contextmanager
def _rows(arguments: argparse.Namespace) -> Iterator[list["Row"]]:
    """Yield the rows of the user's locations, or else of stores of this machine."""
    from ucxstore.base.address import SCHEME
    from ucxstore.copies.quick import Row

    for location in arguments.location:
        if location.startswith(SCHEME):
            parse_address(location)
    options = client_options(arguments)
    client = {"ucx": dict(options.ucx.options), "timeout": options.timeout}
    if arguments.secret_file is not None:
        client["secret_file"] = arguments.secret_file
    if arguments.location:
        yield [Row.of(location, client) for location in arguments.location]
        return
    from ucxstore.server import Server

    with (
        tempfile.TemporaryDirectory(prefix="ucxstore-copies-") as folder,
        Server.spawn("memory://", local=True, ucx_shared_memory=True) as server,
    ):
        tcp = {"local": "ucx", "ucx": {"TLS": "tcp"}}
        rows = [
            Row("UcxStore, local", server.address, "zero-copy"),
            Row("UcxStore, shared memory", server.address, "zero-copy", {"local": "ucx"}),
            Row("UcxStore, TCP", server.address, "zero-copy", tcp),
            Row("LocalStore", folder, "default"),
            Row("LocalStore", folder, "fused"),
            Row("MemoryStore", "", "default"),
        ]
        if find_spec("obstore") is not None:
            rows.append(Row("ObjectStore, local", f"file://{folder}", "default"))
        yield rows


def report(results: Sequence["Result"]) -> str:
    """Return the report: tables for each direction, fixed memory, and the errors."""
    from ucxstore.copies.figures import fixed_memory

    parts = []
    for direction in ("write", "read"):
        found = [result for result in results if result.workload.direction == direction]
        heading = f"{direction}: extra memory at the peak / allocated in all, in arrays"
        figures, culprits = _tables(found)
        right = range(2, len(figures[0]))
        table = text_columns(figures, right=right, width=terminal_width())
        parts.append("\n".join([heading, "", *table]))
        if len(culprits) > 1:
            parts.append("\n".join(text_columns(culprits, width=terminal_width())))
    counted = [(one.row.name, one.counts) for one in results if one.counts is not None]
    parts += filter(None, [_wrapped(fixed_memory(counted))])
    errors = dict.fromkeys(
        f"{_name(result)}: {printable(result.error)}" for result in results if result.error
    )
    return "\n\n".join([*parts, *(["\n".join(map(_wrapped, errors))] if errors else [])])


def _wrapped(text: str) -> str:
    return textwrap.fill(text, terminal_width(), break_on_hyphens=False)


def _tables(results: Iterable["Result"]) -> tuple[list[list[str]], list[list[str]]]:
    """Return the table of the figures, and that of the functions that allocate most of them."""
    from ucxstore.copies.figures import name_culprits, pair, weight

    by_row: dict[tuple[str, str], dict[str, Result]] = {}
    for result in results:
        by_row.setdefault((result.row.name, result.row.pipeline), {})[_stored(result)] = result
    names = list(dict.fromkeys(name for found in by_row.values() for name in found))
    figures = [["store", "pipeline", *names]]
    culprits = [["store", "pipeline", "what allocates most"]]
    for (store, pipeline), found in by_row.items():
        counted = {name: one.counts for name, one in found.items() if one.counts is not None}
        cells = {
            name: pair(one.peak_extra, one.total).replace(" ", "") for name, one in counted.items()
        }
        row = [printable(store), pipeline]
        figures.append([*row, *(cells.get(name, "failed") for name in names)])
        worst = max(counted, key=lambda name: weight(counted[name]), default="")
        if worst and (culprit := name_culprits(counted[worst], found[worst].workload.nbytes)):
            culprits.append([*row, f"{worst}: {culprit}"])
    return figures, culprits


def _stored(result: "Result") -> str:
    return f"{result.workload.codec}, {result.workload.layout}"


def _name(result: "Result") -> str:
    return f"{printable(result.row.name)} {result.row.pipeline} {result.workload.name}"


def progress_of(result: "Result") -> str:
    """Return what the line of progress says of a result."""
    from ucxstore.copies.figures import pair

    counts = result.counts
    found = result.error if counts is None else pair(counts.peak_extra, counts.total)
    return f"{_name(result)}: {found}"
