"""``ucxstore grant``: derive a secret that opens one prefix alone."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from ucxstore import grants
from ucxstore.cli.command import UsageError, run
from ucxstore.cli.parser import Parser, make_parser
from ucxstore.secret import Secret

_MODE = 0o600


def main(argv: Sequence[str]) -> int:
    """Run ``ucxstore grant``; return the exit status."""
    arguments = _make_parser().parse_args(argv)
    return run("grant", lambda: _main(arguments))


def _make_parser() -> Parser:
    parser = make_parser(
        "grant",
        "Derive a secret that opens one prefix alone. Servers know it by their own secret. "
        "It is a secret, too: give it in a file, or in UCXSTORE_SECRET.",
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("prefix", metavar="PREFIX", nargs="?", help="the folder, such as run-17/")
    what.add_argument(
        "--all", action="store_true", help="all that the secret opens, in place of a prefix"
    )
    parser.add_argument("--read-only", action="store_true", help="nothing may be changed")
    parser.add_argument(
        "--expires", metavar="TIME", help="how long it holds: 90s, 30m, 8h, 7d (default: for ever)"
    )
    parser.add_argument(
        "--secret-file",
        metavar="FILE",
        help="a file with the secret, or with a grant to narrow (default: UCXSTORE_SECRET or "
        "UCXSTORE_SECRET_FILE)",
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="write it to a new file that only you can read"
    )
    return parser


def _main(arguments: argparse.Namespace) -> int:
    try:
        file = arguments.secret_file
        secret = Secret.find() if file is None else Secret.from_file(file)
        if secret is None:
            raise UsageError("no secret: give --secret-file, UCXSTORE_SECRET, UCXSTORE_SECRET_FILE")
        granted = secret.grant(
            arguments.prefix, read_only=arguments.read_only, expires=arguments.expires
        )
    except (ValueError, OSError) as error:
        raise UsageError(str(error)) from error
    text = granted.reveal()
    if arguments.output is None:
        print(text.decode())
    else:
        _write(Path(arguments.output), text + b"\n")
    print(f"opens {grants.describe(grants.credentials_of(text).caveats)}", file=sys.stderr)
    return 0


def _write(path: Path, text: bytes) -> None:
    """Write a file that is new, so that nobody has it open, or may read it by an older mode."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, _MODE)  # whatever the umask took away
        file.write(text)
