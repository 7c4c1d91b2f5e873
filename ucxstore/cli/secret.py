"""``ucxstore secret``: make a secret."""

import argparse
import secrets
import shlex
import sys

from ucxstore.cli.common.command import write_private
from ucxstore.cli.common.parser import Parser, make_parser

_BYTES = 32


def build_parser() -> Parser:
    """Make the command's parser."""
    parser = make_parser(
        "secret",
        "Make a secret of 32 random bytes, as text, for a server and its clients. Copy the file to "
        "the other machines over a private channel, such as scp.",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="write it to a new file that only you can read (default: print it)",
    )
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    text = secrets.token_urlsafe(_BYTES)
    if arguments.output is None:
        print(text)
        return 0
    write_private(arguments.output, f"{text}\n".encode())
    option = f"--secret-file {shlex.quote(arguments.output)}"
    print(f"give it to servers and clients: {option}", file=sys.stderr)
    return 0
