"""What the commands of operators share: a request to one server, and its refusal as a failure."""

import argparse
from typing import TYPE_CHECKING

from ucxstore.cli.common.command import connect, parse_address
from ucxstore.cli.common.parser import Parser, make_parser
from ucxstore.cli.common.status import CommandError, UsageError

if TYPE_CHECKING:
    from ucxstore.base.foreign import Fields
    from ucxstore.stores.values import Values


def make_operator_parser(name: str, what: str, address: str = "ucx://host:port") -> Parser:
    """Make the parser of a command that operates a server.

    Parameters
    ----------
    name : str
    what : str
        What the command does.
    address : str
        What its address may be.
    """
    parser = make_parser(
        name,
        f"{what} For who has the server's secret; without one, for the server's own user; and for "
        "who has an operator's grant ('ucxstore grant --operator').",
    )
    parser.add_argument("address", metavar="ADDRESS", help=address)
    return parser


def connect_to_one(arguments: argparse.Namespace, *, prefix: bool = False) -> "Values":
    """Connect to one server; refuse an address of a prefix unless that is meant.

    Raises
    ------
    UsageError
        If the command does not take the address.
    """
    address = parse_address(arguments.address)
    if len(address.servers) > 1:
        raise UsageError(f"{arguments.address}: several servers; ask each by its own address")
    if address.prefix and not prefix:
        raise UsageError(f"{arguments.address}: a server is needed, without a prefix")
    return connect(arguments, arguments.address)


async def operate(values: "Values", **what: object) -> "Fields":
    """Ask the server; return what it answers.

    Raises
    ------
    CommandError
        If it refuses.
    """
    answer = await values.operate(**what)
    if "refused" in answer.plain:
        raise CommandError(f"{values}: {answer.text('refused')}")
    return answer
