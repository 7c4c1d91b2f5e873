"""``ucxstore ls``: list the keys of a server."""

import argparse
import asyncio
from collections.abc import Sequence

from ucxstore.cli.command import add_client_options, in_groups, measure_key, open_store, run
from ucxstore.cli.parser import Parser, make_parser
from ucxstore.cli.text import printable

_SIZE_WIDTH = 14


def main(argv: Sequence[str]) -> int:
    """Run ``ucxstore ls``; return the exit status."""
    arguments = _make_parser().parse_args(argv)
    return run("ls", lambda: asyncio.run(_main(arguments)))


def _make_parser() -> Parser:
    parser = make_parser("ls", "List the names directly under a prefix; folders end in a slash.")
    parser.add_argument("address", metavar="ADDRESS[/PREFIX]", help="ucx://host:port[/prefix]")
    parser.add_argument("-l", dest="long", action="store_true", help="print sizes, in bytes")
    parser.add_argument(
        "-R", dest="recursive", action="store_true", help="list all keys under the prefix"
    )
    add_client_options(parser)
    return parser


async def _main(arguments: argparse.Namespace) -> int:
    with open_store(arguments, arguments.address) as store:
        names = store.list() if arguments.recursive else store.list_dir("")
        found = False
        async for some in in_groups(names):
            found = True
            if arguments.recursive and not arguments.long:
                _show([(name, None) for name in some], long=False)
                continue
            sizes = await store.getsizes(some)
            shown = [
                (name if size is not None else f"{name}/", size)
                for name, size in zip(some, sizes, strict=True)
            ]
            _show(shown, long=arguments.long)
        if not found:
            _show([await measure_key(arguments)], long=arguments.long)
    return 0


def _show(names: Sequence[tuple[str, int | None]], *, long: bool) -> None:
    for name, size in names:
        shown = "" if size is None else size
        print(f"{shown:>{_SIZE_WIDTH}}  {printable(name)}" if long else printable(name))
