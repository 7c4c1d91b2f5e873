"""Parsers of the command line, and the option ``--ucx``."""

import argparse
from collections.abc import Sequence
from typing import NoReturn


class Parser(argparse.ArgumentParser):
    """An argument parser that reports errors in one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


def make_parser(command: str, description: str) -> Parser:
    """Make the parser of a command."""
    return Parser(prog=f"ucxstore {command}", description=description, allow_abbrev=False)


def add_ucx_option(parser: argparse.ArgumentParser) -> None:
    """Add the option ``--ucx``."""
    parser.add_argument(
        "--ucx",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a UCX option, such as TLS=tcp; repeatable",
    )


def parse_pairs(flag: str, pairs: Sequence[str]) -> dict[str, str]:
    """Parse the values of a repeatable flag that takes ``NAME=VALUE``.

    Raises
    ------
    ValueError
        If one is not ``NAME=VALUE``, or a name is given twice.
    """
    options: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise ValueError(f"{flag} takes NAME=VALUE, not {pair!r}")
        if name in options:
            raise ValueError(f"{flag}: {name} is given twice")
        options[name] = value
    return options
