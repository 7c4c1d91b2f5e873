"""``ucxstore du``: print the bytes and the number of values under a prefix."""

import argparse
import json
from collections.abc import Sequence

from ucxstore.cli.common.command import (
    add_client_options,
    connect,
    find_key,
    report_unreadable,
    run_async,
)
from ucxstore.cli.common.parser import Parser, add_human_option, make_parser
from ucxstore.cli.common.text import size_text


def main(argv: Sequence[str]) -> int:
    """Run ``ucxstore du``; return the exit status."""
    arguments = build_parser().parse_args(argv)
    return run_async("du", lambda: _main(arguments))


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


async def _main(arguments: argparse.Namespace) -> int:
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
