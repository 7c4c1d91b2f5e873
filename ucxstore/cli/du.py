"""``ucxstore du``: print the bytes and the number of values under a prefix."""

import argparse
import asyncio
from collections.abc import Sequence

from ucxstore.cli.command import add_client_options, measure_key, open_store, run
from ucxstore.cli.parser import Parser, make_parser
from ucxstore.cli.text import size_text


def main(argv: Sequence[str]) -> int:
    """Run ``ucxstore du``; return the exit status."""
    arguments = _make_parser().parse_args(argv)
    return run("du", lambda: asyncio.run(_main(arguments)))


def _make_parser() -> Parser:
    parser = make_parser("du", "Print the bytes and the number of values under a prefix.")
    parser.add_argument("address", metavar="ADDRESS[/PREFIX]", help="ucx://host:port[/prefix]")
    parser.add_argument("--human", action="store_true", help="print bytes as kB, MB, ...")
    add_client_options(parser)
    return parser


async def _main(arguments: argparse.Namespace) -> int:
    with open_store(arguments, arguments.address) as store:
        keys, nbytes = await store.measure()
        if keys == 0:
            _, nbytes = await measure_key(arguments)
            keys = 1
    size = size_text(nbytes) if arguments.human else str(nbytes)
    print(f"{size}\t{keys}\t{store}")
    return 0
