"""The command line. Each command is a module or a package here, imported when it is called."""

import sys
from collections.abc import Sequence
from importlib import import_module

from ucxstore import __version__, _ucx
from ucxstore.cli.parser import Parser
from ucxstore.errors import UcxUnavailableError

# By name: the module's name, and what `ucxstore --help` says.
_COMMANDS = {
    "serve": "serve a directory, memory, or an object store",
    "ls": "list the keys of a server",
    "du": "tell how much a server has under a prefix",
    "cp": "copy a tree of values between servers, directories and object stores",
    "stats": "tell what a server has counted",
    "doctor": "find out what is wrong with UCX, or with the way to a server",
    "demo": "write real data through a server, read it back elsewhere, compare",
    "copies": "count the copies that zarr stores make",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Parameters
    ----------
    argv : sequence of str or None
        The arguments; those of this process by default.

    Returns
    -------
    int
        The exit status: 0, 1 where the command failed, 2 for a bad option (as `SystemExit`).
    """
    arguments = sys.argv[1:] if argv is None else list(argv)
    if arguments and arguments[0] in _COMMANDS:
        command = import_module(f"{__name__}.{arguments[0]}")
        status: int = command.main(arguments[1:])
        return status
    parser = _make_parser()
    if parser.parse_args(arguments).version:
        print(_describe_version())
        return 0
    parser.print_help()
    return 2


def _make_parser() -> Parser:
    parser = Parser(
        prog="ucxstore",
        description="A Zarr store whose chunks travel over UCX.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--version", action="store_true", help="print the version, and UCX's, and where it is from"
    )
    commands = parser.add_subparsers(metavar="COMMAND")
    for name, summary in _COMMANDS.items():
        commands.add_parser(name, help=summary)
    return parser


def _describe_version() -> str:
    ours = f"ucxstore {__version__}"
    try:
        ucx = _ucx.load()
    except UcxUnavailableError as error:
        return f"{ours}\nno UCX: {error}"
    return f"{ours}\nUCX {ucx.version} ({ucx.origin}: {ucx.path})"
