"""``ucxstore flush``: drop what a server keeps of its source."""

import argparse

from ucxstore.base.showing import size_text
from ucxstore.cli.common.command import add_client_options
from ucxstore.cli.common.operate import connect_to_one, make_operator_parser, operate
from ucxstore.cli.common.parser import Parser


def build_parser() -> Parser:
    """Make the command's parser."""
    parser = make_operator_parser(
        "flush",
        "Drop the cache of a server in front of an object store or a zarr store, in memory and on "
        "disk: all of it, or a key and all below it. The next reads ask the source. What is still "
        "to be written is not in the cache, and is written.",
        "ucx://host:port, or ucx://host:port/prefix",
    )
    add_client_options(parser)
    return parser


async def run(arguments: argparse.Namespace) -> None:
    """Run the command."""
    with connect_to_one(arguments, prefix=True) as values:
        answer = await operate(values, do="flush", name=values.prefix)
    parts = [f"freed {size_text(answer.integer('freed'))} of the cache"]
    if disk := answer.integer("disk_freed"):
        parts.append(f"{size_text(disk)} of the cache directory")
    if read := answer.integer("read"):
        parts.append(f"clients of the server's host still read {size_text(read)} of dropped values")
    print("; ".join(parts))
