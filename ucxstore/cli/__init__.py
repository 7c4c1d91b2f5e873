"""The command line ``ucxstore``. Each command is a module or package, imported when it runs.

Each has ``build_parser``, which makes its parser, and ``run``, which takes the parsed arguments and
returns the exit status, or nothing; it may be a coroutine function. A command that needs more has
``main`` instead, which takes the arguments as they were given. A command imports what takes long
once its arguments are known to be right.
"""

import argparse
import io
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import cast

from ucxstore.base.showing import suggest
from ucxstore.cli.common.parser import Parser, make_parser
from ucxstore.cli.common.status import Status

# The modules of the commands, and their summaries in `ucxstore --help`.
COMMANDS = {
    "serve": "serve a directory, memory, or an object store",
    "ls": "list the keys of a server",
    "du": "print the bytes and the number of values under a prefix",
    "cat": "write values to standard output",
    "rm": "delete keys, or all keys under a prefix",
    "cp": "copy a tree of values between servers, directories and object stores",
    "info": "show an array, or a group as a tree",
    "ping": "measure round trips to a server",
    "stats": "print a server's counters",
    "sessions": "list a server's clients",
    "kick": "end a client's session, or all of an origin",
    "flush": "drop the cache of a server, or a prefix of it",
    "log-level": "show or change what a server logs",
    "secret": "make a secret",
    "grant": "derive a secret that opens only one prefix",
    "cluster": "show a set of servers, accept a loss, forget a member",
    "doctor": "find problems of UCX and of the connection to a server",
    "demo": "write real data to a server, read it in another process, compare",
    "copies": "count the copies that zarr stores make",
    "completion": "print a completion script",
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
        The exit status: see `Status`; of a bad option, as `SystemExit`.
    """
    arguments = sys.argv[1:] if argv is None else list(argv)
    name = arguments[0] if arguments else ""
    if isinstance(sys.stdout, io.TextIOWrapper):  # keys may have what its encoding lacks
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        if name in COMMANDS:
            return _run(name, arguments[1:])
        return _main(arguments)
    except KeyboardInterrupt:  # while it was being imported
        print(f"ucxstore {name}: interrupted", file=sys.stderr)
        return Status.INTERRUPTED


def _run(name: str, arguments: Sequence[str]) -> int:
    module = _module_of(name)
    if hasattr(module, "main"):
        status: int = module.main(arguments)
        return status
    given = module.build_parser().parse_args(arguments)
    from ucxstore.cli.common.command import run

    return run(name, partial(module.run, given))


def _main(arguments: Sequence[str]) -> int:
    parser = _make_parser("print the versions of ucxstore and UCX, and where UCX is", Parser)
    if arguments and not arguments[0].startswith("-"):
        parser.error(f"there is no command {arguments[0]!r}{suggest(arguments[0], COMMANDS)}")
    if parser.parse_args(arguments).version:
        print(_describe_version())
        return Status.DONE
    parser.print_help()
    return Status.USAGE


def _make_parser(version: str, parser_class: Callable[..., argparse.ArgumentParser]) -> Parser:
    """Make the parser with all commands, given the help of ``--version``."""
    parser = make_parser("", "A Zarr store whose chunks travel over UCX.")
    parser.add_argument("--version", action="store_true", help=version)
    commands = parser.add_subparsers(
        metavar="COMMAND", parser_class=cast(type[argparse.ArgumentParser], parser_class)
    )
    for name, summary in COMMANDS.items():
        commands.add_parser(name, help=summary).description = summary  # the short one, in lists
    return parser


def parsers() -> Iterator[tuple[str, Parser]]:
    """Yield the parser of every command, and of the actions that commands have, with its name."""
    for name in COMMANDS:
        module = _module_of(name)
        yield name, module.build_parser()
        for action, (build, _) in getattr(module, "ACTIONS", {}).items():
            yield f"{name} {action}", build()


def _module_of(name: str) -> ModuleType:
    return import_module(f"{__name__}.{name.replace('-', '_')}")


def make_tree() -> tuple[Parser, list[Parser]]:
    """Make one parser with all commands, for tools that walk parsers; and return those, too."""
    made = [build for name, build in parsers() if name in COMMANDS]
    rest = iter(made)

    def take(**_: object) -> Parser:
        return next(rest)  # in the order in which they are added

    return _make_parser("print the versions", take), made


def _describe_version() -> str:
    from ucxstore import __version__
    from ucxstore.base import ucx_library
    from ucxstore.base.errors import UcxUnavailableError

    ours = f"ucxstore {__version__}"
    try:
        ucx = ucx_library.load()
    except UcxUnavailableError as error:
        return f"{ours}\nno UCX: {error}"
    return f"{ours}\nUCX {ucx.version} ({ucx.origin}: {ucx.path})"
