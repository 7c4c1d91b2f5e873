"""The command line ``ucxstore``. Each command is a module or package, imported when it runs."""

import sys
from collections.abc import Sequence
from importlib import import_module

from ucxstore import __version__, _ucx
from ucxstore.cli.parser import Parser
from ucxstore.errors import UcxUnavailableError

# The modules of the commands, and their summaries in `ucxstore --help`.
_COMMANDS = {
    "serve": "serve a directory, memory, or an object store",
    "ls": "list the keys of a server",
    "du": "print the bytes and the number of values under a prefix",
    "cp": "copy a tree of values between servers, directories and object stores",
    "stats": "print a server's counters",
    "grant": "derive a secret that opens one prefix alone",
    "cluster": "show a set of servers, accept a loss, forget a member",
    "doctor": "find problems of UCX and of the connection to a server",
    "demo": "write real data to a server, read it in another process, compare",
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
        The exit status: 0, or 1 if the command failed, or 2 for a bad option (as `SystemExit`).
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
        "--version",
        action="store_true",
        help="print the versions of ucxstore and UCX, and where UCX is",
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
