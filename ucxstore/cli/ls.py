"""``ucxstore ls``: list the keys of a server."""

import argparse
import json

from ucxstore.base.showing import printable, size_text
from ucxstore.cli.common.command import (
    add_client_options,
    connect,
    find_key,
    in_groups,
    report_unreadable,
)
from ucxstore.cli.common.parser import Parser, add_human_option, make_parser

_SIZE_WIDTH = 14


def build_parser() -> Parser:
    """Make the command's parser."""
    parser = make_parser(
        "ls", "List the names directly under a prefix; folders end in a slash.", human=True
    )
    parser.add_argument("address", metavar="ADDRESS[/PREFIX]", help="ucx://host:port[/prefix]")
    parser.add_argument("-l", "--long", action="store_true", help="print sizes, in bytes")
    add_human_option(parser, "print sizes as kB, MB, ...")
    parser.add_argument(
        "-R", "--recursive", action="store_true", help="list all keys under the prefix"
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help='print a JSON object a line: {"name": ..., "size": bytes, or null for a folder}',
    )
    add_client_options(parser)
    return parser


async def run(arguments: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    needs_sizes = arguments.long or arguments.human or arguments.json or not arguments.recursive
    with connect(arguments, arguments.address) as values:
        found = False
        names = values.keys() if arguments.recursive else values.names()
        async for some in in_groups(names):
            found = True
            sizes = await values.sizes(some) if needs_sizes else [None] * len(some)
            for name, size in zip(some, sizes, strict=True):
                is_folder = size is None and not arguments.recursive
                _show(arguments, f"{name}/" if is_folder else name, size)
        if not found and values.prefix and not values.unreadable:
            _show(arguments, *await find_key(arguments, values))
        return report_unreadable("ls", values.unreadable)


def _show(arguments: argparse.Namespace, name: str, size: int | None) -> None:
    if arguments.json:
        print(json.dumps({"name": name, "size": size}))
    elif arguments.long or arguments.human:
        shown = "" if size is None else size_text(size) if arguments.human else str(size)
        print(f"{shown:>{_SIZE_WIDTH}}  {printable(name)}")
    else:
        print(printable(name))
