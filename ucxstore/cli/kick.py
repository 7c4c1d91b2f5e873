"""``ucxstore kick``: end sessions of a server."""

import argparse
from typing import Any

from ucxstore.base.showing import count_text, printable
from ucxstore.cli.common.command import add_client_options
from ucxstore.cli.common.operate import connect_to_one, make_operator_parser, operate
from ucxstore.cli.common.parser import Parser
from ucxstore.cli.common.status import MissingError


def build_parser() -> Parser:
    """Make the command's parser."""
    parser = make_operator_parser(
        "kick",
        "End a client's session, or all of an origin, whatever is under way. A client may connect "
        "again: to keep it out, change the secret.",
    )
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "session", metavar="SESSION", nargs="?", type=int, help="its number in 'ucxstore sessions'"
    )
    which.add_argument(
        "--origin",
        metavar="ORIGIN",
        help="all sessions of a host, such as 10.1.2.3, or of a user of the server's host, such as "
        "'user 1000'; but not the command's own (default: none)",
    )
    add_client_options(parser)
    return parser


async def run(arguments: argparse.Namespace) -> None:
    """Run the command."""
    which: dict[str, Any] = (
        {"session": arguments.session} if arguments.origin is None else {"origin": arguments.origin}
    )
    with connect_to_one(arguments) as values:
        ended = (await operate(values, do="kick", **which)).integer("ended")
        if not ended:
            missing = (
                f"there is no session {arguments.session}"
                if arguments.origin is None
                else f"there is no other session of {printable(arguments.origin)}"
            )
            raise MissingError(f"{values}: {missing}")
    print(f"ended {count_text(ended, 'session')}")
