"""``ucxstore rm``: delete keys, or all keys under a prefix."""

import argparse

from ucxstore.base.showing import count_text, printable, size_text
from ucxstore.cli.common.command import (
    add_client_options,
    connect,
    open_values,
    parse_address,
    report_unreadable,
    size_of,
    split_key,
)
from ucxstore.cli.common.parser import Parser, make_parser
from ucxstore.cli.common.status import CommandError, MissingError, Status, UsageError


def build_parser() -> Parser:
    """Make the command's parser."""
    parser = make_parser(
        "rm", "Delete values without asking; --dry-run shows what would be deleted."
    )
    parser.add_argument(
        "address", metavar="ADDRESS/KEY", nargs="+", help="ucx://host:port/key, or a prefix with -r"
    )
    parser.add_argument(
        "-r", "--recursive", action="store_true", help="also delete all keys under a prefix"
    )
    parser.add_argument(
        "-f",
        "--force",
        action="store_true",
        help="ignore missing keys; with -r, allow deleting all values of a server",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print what would be deleted, and delete nothing"
    )
    add_client_options(parser)
    return parser


async def run(arguments: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    for address in arguments.address:  # all, before one is deleted
        _check(arguments, address)
    status = Status.DONE
    for address in arguments.address:
        status = max(status, await _remove(arguments, address))
    return status


def _check(arguments: argparse.Namespace, address: str) -> None:
    if parse_address(address).prefix:
        return
    if not arguments.recursive:
        raise UsageError(f"{address}: it names a server, not a key")
    if not arguments.force and not arguments.dry_run:
        raise UsageError(f"{address}: -rf is needed to delete all values of a server")


async def _remove(arguments: argparse.Namespace, address: str) -> Status:
    with connect(arguments, address) as values:
        size = None
        if values.prefix:
            at, name = split_key(address)
            folder = open_values(arguments, at)
            if arguments.recursive:  # the grant of a folder does not open the key of its name
                size = await size_of(folder, name)
            else:
                (size,) = await folder.sizes([name])
        below, nbytes = await values.measure() if arguments.recursive or size is None else (0, 0)
        if below and not arguments.recursive:
            found = count_text(below, "value")
            raise CommandError(f"{address}: it is a prefix with {found}: -r deletes them")
        below_unknown = arguments.recursive and bool(values.unreadable)
        if size is None and not below and not below_unknown:
            if arguments.force:
                return Status.DONE
            raise MissingError(f"{address}: no values found")
        if arguments.dry_run:
            count = count_text(below + (size is not None), "value")
            print(f"{printable(str(values))}: {count}, {size_text(nbytes + (size or 0))}")
            return report_unreadable("rm", values.unreadable)
        if size is not None:
            await folder.delete([name])
        if below or below_unknown:
            await values.delete_all()  # which raises for folders that may not be opened
        return Status.DONE
