"""``ucxstore grant``: derive a secret that opens only one prefix."""

import argparse
import sys

from ucxstore.cli.common.command import (
    add_output_option,
    add_secret_option,
    find_secret,
    usage_errors,
    write_private,
)
from ucxstore.cli.common.parser import Parser, make_parser
from ucxstore.cli.common.status import UsageError


def build_parser() -> Parser:
    """Make the command's parser."""
    parser = make_parser(
        "grant",
        "Derive a secret that opens only one prefix, or that operates the server. Servers check "
        "it with their own secret. It is a secret, too: give it in a file, or in UCXSTORE_SECRET.",
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("prefix", metavar="PREFIX", nargs="?", help="the folder, such as run-17/")
    what.add_argument(
        "--all", action="store_true", help="open all that the secret opens; without PREFIX"
    )
    what.add_argument(
        "--operator",
        action="store_true",
        help="operate the server, and open no values: sessions, kick, flush, log-level",
    )
    parser.add_argument("--read-only", action="store_true", help="allow no changes")
    parser.add_argument(
        "--expires",
        metavar="TIME",
        help="how long it is valid: 90s, 30m, 8h, 7d (default: for ever)",
    )
    add_secret_option(parser, "a file with the secret, or with a grant to narrow")
    add_output_option(parser)
    return parser


def run(arguments: argparse.Namespace) -> None:
    """Run the command."""
    from ucxstore.base import grants

    with usage_errors():
        secret = find_secret(arguments)
        if secret is None:
            raise UsageError("no secret: give --secret-file, UCXSTORE_SECRET, UCXSTORE_SECRET_FILE")
        granted = secret.grant(
            arguments.prefix,
            read_only=arguments.read_only,
            expires=arguments.expires,
            operator=arguments.operator,
        )
    text = granted.reveal()
    write_private(arguments.output, text)
    print(f"opens {grants.describe(grants.credentials_of(text).caveats)}", file=sys.stderr)
