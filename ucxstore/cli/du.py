"""``ucxstore du``: print the bytes and the number of values under a prefix."""

import argparse
import json

from ucxstore.base.showing import size_text
from ucxstore.cli.common.command import add_client_options, connect, find_key, report_unreadable
from ucxstore.cli.common.parser import Parser, add_human_option, make_parser


def build_parser() -> Parser:
    """Make the command's parser."""
    parser = make_parser(
        "du", "Print the bytes and the number of values under a prefix.", human=True
    )
    parser.add_argument("address", metavar="ADDRESS[/PREFIX]", help="ucx://host:port[/prefix]")
    add_human_option(parser, "print bytes as kB, MB, ...")
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object: address, bytes and values"
    )
    add_client_options(parser)
    return parser


async def run(arguments: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    with connect(arguments, arguments.address) as values:
        keys, nbytes = await values.measure()
        if keys == 0 and values.prefix and not values.unreadable:
            _, nbytes = await find_key(arguments, values)
            keys = 1
    if arguments.json:
        print(json.dumps({"address": str(values), "bytes": nbytes, "values": keys}))
    else:
        size = size_text(nbytes) if arguments.human else str(nbytes)
        print(f"{size}\t{keys}\t{values}")
    return report_unreadable("du", values.unreadable)
