"""``ucxstore completion``: print a script by which a shell completes commands and files."""

import argparse

from ucxstore.cli.common.parser import Parser, make_parser

_SHELLS = ("bash", "zsh", "fish")

# Which arguments are files, by what their help calls them.
_FILES = frozenset({"FILE", "PATH", "LOCATION", "SOURCE", "DESTINATION"})
_FOLDERS = frozenset({"DIRECTORY", "FOLDER"})


def build_parser() -> Parser:
    """Make the command's parser."""
    parser = make_parser(
        "completion",
        "Print a script that lets a shell complete commands, options, choices and files. Let "
        "the shell's start-up file read it. This needs the package shtab, of the extra 'tools'.",
    )
    parser.add_argument("shell", metavar="SHELL", choices=_SHELLS, help=", ".join(_SHELLS))
    return parser


def run(arguments: argparse.Namespace) -> None:
    """Run the command."""
    import shtab

    from ucxstore.cli import make_tree

    parser, parsers = make_tree()
    for each in parsers:
        _mark_files(each)
    print(shtab.complete(parser, shell=arguments.shell))


def _mark_files(parser: argparse.ArgumentParser) -> None:
    import shtab

    for action in parser._actions:
        if action.metavar in _FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        elif action.metavar in _FOLDERS:
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
