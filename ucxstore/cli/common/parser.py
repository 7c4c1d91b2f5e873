"""Parsers of the command line: errors in one line, with a suggestion; and the option ``--ucx``."""

import argparse
from collections.abc import Sequence
from typing import NoReturn, override

from ucxstore.base.showing import suggest


class _Formatter(argparse.HelpFormatter):
    """Help that names the default of each option that has one."""

    @override
    def _get_help_string(self, action: argparse.Action) -> str | None:
        return help_of(action)


class Parser(argparse.ArgumentParser):
    """An argument parser that reports an error in one line, and where to find the usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see '{self.prog} --help'\n")

    @override
    def parse_known_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def]
        words = list(args) if args is not None else []
        before = words[: words.index("--")] if "--" in words else words
        for word in before:  # before argparse asks for what it misses
            flag = word.partition("=")[0]
            if flag.startswith("--") and flag != "--":
                flags = [each for action in self._actions for each in action.option_strings]
                if flag not in flags:
                    self.error(f"there is no option {flag}{suggest(flag, flags)}")
        return super().parse_known_args(args, namespace)

    @override
    def _check_value(self, action: argparse.Action, value: object) -> None:
        choices = list(action.choices or ())
        if choices and value not in choices:
            close = suggest(str(value), map(str, choices)) or f" ({', '.join(map(str, choices))})"
            raise argparse.ArgumentError(action, f"{value!r} is not a choice{close}")
        super()._check_value(action, value)


def make_parser(command: str, description: str, *, human: bool = False) -> Parser:
    """Make the parser of a command.

    Parameters
    ----------
    command : str
    description : str
    human : bool
        Whether ``-h`` is ``--human`` for this command, as for those of other tools. Only ``--help``
        shows its help then.
    """
    parser = Parser(
        prog=f"ucxstore {command}" if command else "ucxstore",
        description=description,
        allow_abbrev=False,
        add_help=False,
        formatter_class=_Formatter,
    )
    flags = ["--help"] if human else ["-h", "--help"]
    parser.add_argument(*flags, action="help", help="show this help")
    return parser


def add_human_option(parser: argparse.ArgumentParser, help: str) -> None:
    """Add ``-h`` and ``--human``."""
    text = f"{help} (-h is not --help here)"
    parser.add_argument("-h", "--human", action="store_true", help=text)


def add_ucx_option(parser: argparse.ArgumentParser) -> None:
    """Add the option ``--ucx``."""
    parser.add_argument(
        "--ucx",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a UCX option, such as TLS=tcp; repeatable (default: none, so UCX_* of the "
        "environment and UCX's own)",
    )


def help_of(action: argparse.Action) -> str:
    """Return what an option's help says, with its default."""
    text = action.help or ""
    if not takes_value(action) or "default" in text:
        return text
    if action.default in (None, argparse.SUPPRESS) or not action.option_strings:
        return text
    return f"{text} (default: %(default)s)"


def takes_value(action: argparse.Action) -> bool:
    """Tell whether an argument takes a value, and is not a mere flag."""
    return action.nargs != 0 and not isinstance(action, argparse.BooleanOptionalAction)


def parse_pairs(flag: str, pairs: Sequence[str], *, is_shown: bool = True) -> dict[str, str]:
    """Parse the values of a repeatable flag that takes ``NAME=VALUE``.

    Parameters
    ----------
    flag : str
        Begins the messages.
    pairs : sequence of str
    is_shown : bool
        Whether messages may show them.

    Raises
    ------
    ValueError
        If one is not ``NAME=VALUE``, or a name is given twice.
    """
    options: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise ValueError(f"{flag} takes NAME=VALUE" + (f", not {pair!r}" if is_shown else ""))
        if name in options:
            raise ValueError(f"{flag}: {name} is given twice")
        options[name] = value
    return options
