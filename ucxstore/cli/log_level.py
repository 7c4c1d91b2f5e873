"""``ucxstore log-level``: show or change what a server logs."""

import argparse
from typing import Any

from ucxstore.base.showing import printable
from ucxstore.cli.common.command import add_client_options
from ucxstore.cli.common.operate import connect_to_one, make_operator_parser, operate
from ucxstore.cli.common.parser import Parser

# As `ucxstore.server.operating.LEVELS`, which the parser does without.
_LEVELS = ("debug", "info", "warning", "error")


def build_parser() -> Parser:
    """Make the command's parser."""
    parser = make_operator_parser(
        "log-level",
        "Print the level of a server's log, or change it until the server ends: debug logs every "
        "request, as -vv does, and info connections, as -v does.",
    )
    parser.add_argument(
        "level",
        metavar="LEVEL",
        nargs="?",
        choices=_LEVELS,
        help=f"{', '.join(_LEVELS)} (default: print the level)",
    )
    add_client_options(parser)
    return parser


async def run(arguments: argparse.Namespace) -> None:
    """Run the command."""
    new: dict[str, Any] = {} if arguments.level is None else {"level": arguments.level}
    with connect_to_one(arguments) as values:
        answer = await operate(values, do="log-level", **new)
    level, before = printable(answer.text("level")), printable(answer.text("before"))
    print(level if arguments.level is None else f"{level}, before: {before}")
