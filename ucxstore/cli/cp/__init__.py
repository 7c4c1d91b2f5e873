"""``ucxstore cp``: copy values between servers, directories and object stores."""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, NoReturn

from ucxstore.base.showing import count_text, size_text
from ucxstore.cli.common.command import add_client_options, leave, report_unreadable, run, warn
from ucxstore.cli.common.parser import Parser, make_parser
from ucxstore.cli.common.status import UsageError

if TYPE_CHECKING:
    from ucxstore.base.meter import Meter
    from ucxstore.cli.cp.plan import CopyPlan

DEFAULT_JOBS = 8
MAX_JOBS = 1024

_LOCATIONS = "a directory, file:///path, s3://, gs://, az:// or http(s)://..., or ucx://host:port"


def main(argv: Sequence[str]) -> NoReturn:
    """Run ``ucxstore cp``, and end the process with the exit status."""
    arguments = build_parser().parse_args(argv)
    # obstore's threads release Python objects shortly after a request has ended. If the interpreter
    # shuts down meanwhile, the process aborts: one in five copies of a single file did.
    leave(run("cp", lambda: _main(arguments)))


def build_parser() -> Parser:
    """Make the command's parser."""
    parser = make_parser(
        "cp",
        "Copy all values under SOURCE to DESTINATION. Values that DESTINATION has with the same "
        "size are skipped, unless both sides know times and it is older there. So repeat an "
        "interrupted copy to finish it. If SOURCE is one value or one file, it is always copied: "
        "to DESTINATION/NAME if DESTINATION ends in a slash, or is a directory, a server or a "
        "bucket; to DESTINATION otherwise.",
        human=True,
    )
    parser.add_argument("source", metavar="SOURCE", help=f"a file, {_LOCATIONS}[/prefix or /key]")
    parser.add_argument("destination", metavar="DESTINATION", help="the same")
    parser.add_argument(
        "--jobs",
        type=int,
        default=DEFAULT_JOBS,
        metavar="N",
        help="concurrent requests (default: %(default)s)",
    )
    parser.add_argument("--all", action="store_true", help="also copy values that DESTINATION has")
    parser.add_argument("--quiet", action="store_true", help="no progress bar and no summary")
    parser.add_argument(
        "-h",
        "--human",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="print bytes as kB, MB, ... (default: yes; -h is not --help here)",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print the summary as a JSON object: values, bytes, seconds, and present, the values "
        "that were there",
    )
    add_client_options(parser)
    return parser


async def _main(arguments: argparse.Namespace) -> int:
    if not 1 <= arguments.jobs <= MAX_JOBS:
        raise UsageError(f"--jobs: {arguments.jobs} is not between 1 and {MAX_JOBS}")
    from ucxstore.cli.cp import copying
    from ucxstore.cli.cp.locations import is_server

    start = time.monotonic()
    with ExitStack() as locations:
        plan, source, destination = await copying.prepare(arguments, locations)
        with closing(_open_meter(shown=not arguments.quiet)) as meter:
            meter.add(planned=plan.nbytes)
            await copying.copy(
                plan, source, destination, arguments.jobs, lambda done: meter.add(moved=done)
            )
    if not arguments.quiet:
        seconds = time.monotonic() - start
        print(_as_json(plan, seconds) if arguments.json else _summary(arguments, plan, seconds))
    user = "the server's user" if is_server(arguments.source) else "you"
    return report_unreadable("cp", source.unreadable, user)


def _open_meter(*, shown: bool) -> "Meter":
    """Return a meter with a bar, on a terminal and with rich only."""
    from ucxstore.base.meter import Meter, open_bar

    if shown and sys.stderr.isatty():
        try:
            return Meter(open_bar("copy"))
        except ImportError as error:
            warn(str(error))
    return Meter(None)


def _summary(arguments: argparse.Namespace, plan: "CopyPlan", seconds: float) -> str:
    there = f"; {plan.present} were there" if plan.present else ""
    values = count_text(plan.keys, "value")
    if not arguments.human:
        return f"copied {values}, {plan.nbytes} bytes in {seconds:.1f} s{there}"
    speed = size_text(plan.nbytes / max(seconds, 1e-9))
    return f"copied {values}, {size_text(plan.nbytes)} in {seconds:.1f} s ({speed}/s){there}"


def _as_json(plan: "CopyPlan", seconds: float) -> str:
    found = {"values": plan.keys, "bytes": plan.nbytes, "seconds": seconds, "present": plan.present}
    return json.dumps(found)
