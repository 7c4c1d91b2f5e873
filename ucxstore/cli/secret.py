"""``ucxstore secret``: make a secret."""

import argparse
import secrets
import shlex
import sys

from ucxstore.cli.common.command import add_output_option, write_private
from ucxstore.cli.common.parser import Parser, make_parser

_BYTES = 32


def build_parser() -> Parser:
    """Make the command's parser."""
    parser = make_parser(
        "secret",
        "Make a secret of 32 random bytes, as text, for a server and its clients. Copy the file to "
        "the other machines over a private channel, such as scp.",
    )
    add_output_option(parser)
    return parser


def run(arguments: argparse.Namespace) -> None:
    """Run the command."""
    write_private(arguments.output, secrets.token_urlsafe(_BYTES).encode())
    if arguments.output is not None:
        option = f"--secret-file {shlex.quote(arguments.output)}"
        print(f"give it to servers and clients: {option}", file=sys.stderr)
