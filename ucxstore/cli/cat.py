"""``ucxstore cat``: write values to standard output, byte for byte."""

import argparse
import re
import sys
from typing import TYPE_CHECKING

from ucxstore.cli.common.command import add_client_options, connect, split_key
from ucxstore.cli.common.parser import Parser, make_parser
from ucxstore.cli.common.status import MissingError, UsageError

if TYPE_CHECKING:
    from ucxstore.client.byte_ranges import NativeRange

_RANGE = re.compile(r"(\d*):(\d*)|(-\d+):")


def build_parser() -> Parser:
    """Make the command's parser."""
    parser = make_parser("cat", "Write values to standard output, byte for byte.")
    parser.add_argument("address", metavar="ADDRESS/KEY", nargs="+", help="ucx://host:port/key")
    parser.add_argument(
        "--range",
        metavar="START:STOP",
        help="only these bytes of each value, as a slice in Python: 0:100, 100:, :100; for the "
        "last 100, --range=-100: (default: all)",
    )
    add_client_options(parser)
    return parser


async def run(arguments: argparse.Namespace) -> None:
    """Run the command."""
    part = _parse_range(arguments.range)
    keys = [split_key(address) for address in arguments.address]  # all, before one is written
    for address, (at, name) in zip(arguments.address, keys, strict=True):
        value = None
        with connect(arguments, at) as values:
            value = await values.read(name, part)
        if value is None:
            raise MissingError(f"{address}: no such key")
        sys.stdout.buffer.write(value)
    sys.stdout.buffer.flush()


def _parse_range(text: str | None) -> "NativeRange | None":
    if text is None:
        return None
    match = _RANGE.fullmatch(text)
    if match is None:
        raise UsageError(f"--range: {text!r} is not START:STOP, such as 0:100")
    start, stop, last = match.groups()
    if last is not None:
        return 3, -int(last), 0
    if not stop:
        return 2, int(start or 0), 0
    if int(stop) < int(start or 0):
        raise UsageError(f"--range: {text!r} ends before it starts")
    return 1, int(start or 0), int(stop)
