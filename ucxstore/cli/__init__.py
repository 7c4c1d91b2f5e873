"""The command line: which command there is, and where it is carried out."""

import argparse
import sys
from collections.abc import Sequence

from ucxstore import __version__, _ucx
from ucxstore.cli import cp, doctor, look, stats
from ucxstore.cli.options import Commands, Parser, add_ucx_option, parse_ucx
from ucxstore.errors import UcxStoreError, UcxUnavailableError
from ucxstore.secret import Secret


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
    parser = _make_parser()
    arguments, rest = parser.parse_known_args(argv)
    if arguments.version:
        print(_describe_version())
        return 0
    if arguments.command == "demo":
        return _demo(rest)
    if arguments.command == "copies":
        return _copies(rest)
    if rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if arguments.command == "serve":
        return _serve(parser, arguments)
    if arguments.command is not None:
        status: int = arguments.run(arguments)
        return status
    parser.print_help()
    return 2


def _make_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="ucxstore",
        description="A Zarr store whose chunks travel over UCX.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--version", action="store_true", help="print the version, and UCX's, and where it is from"
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    _add_serve(commands)
    look.add_commands(commands)
    cp.add_command(commands)
    stats.add_command(commands)
    doctor.add_command(commands)
    commands.add_parser(
        "demo",
        help="write real data through a server, read it back elsewhere, compare",
        add_help=False,  # --help is for the demo's own parser
    )
    commands.add_parser(
        "copies",
        help="count the copies that zarr stores make, and write a report",
        add_help=False,
    )
    return parser


def _add_serve(commands: Commands) -> None:
    serve = commands.add_parser(
        "serve",
        help="serve a directory, memory, or an object store",
        description="Serve values until SIGTERM or Ctrl-C; requests in flight are finished.",
        allow_abbrev=False,
    )
    add = serve.add_argument
    add(
        "root",
        metavar="ROOT",
        help="a directory, file:///path, memory://, or s3://, gs://, az://, https://",
    )
    add(
        "--bind",
        default="127.0.0.1:0",
        metavar="HOST:PORT",
        help="where to listen; port 0 takes any free one (default: %(default)s)",
    )
    add("--threads", type=int, default=1, metavar="N", help="threads that serve (default: 1)")
    add("--secret-file", metavar="FILE", help="holds the secret that clients must know")
    add("--read-only", action="store_true", help="refuse writes")
    add(
        "--insecure",
        action="store_true",
        help="allow to be reached from other machines without a secret",
    )
    add(
        "--progress",
        choices=["blocking", "polling"],
        default="blocking",
        help="whether threads sleep when idle, or poll (default: %(default)s)",
    )
    add_ucx_option(serve)
    add(
        "--metrics",
        metavar="HOST:PORT",
        help="where to tell Prometheus, over HTTP; loopback only, unless --insecure",
    )
    add(
        "--shared",
        action=argparse.BooleanOptionalAction,
        help="other servers serve the same ROOT, such as a network directory (default: for object "
        "stores alone)",
    )
    add("--cache", metavar="SIZE", help="memory for an object store's values, such as 4GiB")
    add("--block-size", metavar="SIZE", help="large objects are fetched in blocks of this size")
    add(
        "--freshness",
        metavar="SECONDS",
        help="how long the cache is believed; or 'always', 'forever' (default: forever)",
    )
    add(
        "--source-timeout",
        type=float,
        metavar="SECONDS",
        help="how long a request to an object store may take",
    )
    add(
        "--scratch",
        metavar="WHERE",
        help="offer scratch space beside ROOT: memory://; where ROOT is that, it is offered anyway",
    )
    add("--scratch-limit", metavar="SIZE", help="memory for scratch space, such as 8GiB")
    add("--write-budget", metavar="SIZE", help="values on their way to an object store")
    add("--cache-dir", metavar="DIRECTORY", help="for values that the memory has no room for")
    add("--cache-dir-size", metavar="SIZE", help="what that may take, such as 100GiB")
    add("--ready-fd", type=int, help=argparse.SUPPRESS)  # these two are for Server.spawn
    add("--parent-fd", type=int, help=argparse.SUPPRESS)


def _serve(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> int:
    try:
        secret = None if arguments.secret_file is None else Secret.from_file(arguments.secret_file)
        ucx = parse_ucx(arguments.ucx)
    except (OSError, ValueError) as error:
        parser.exit(2, f"ucxstore serve: {error}\n")
    try:
        # Here, so that the other commands and --help do without UCX.
        from ucxstore.cli.serve import ServeOptions, serve

        return serve(
            ServeOptions(
                root=arguments.root,
                bind=arguments.bind,
                threads=arguments.threads,
                secret=secret,
                read_only=arguments.read_only,
                insecure=arguments.insecure,
                progress=arguments.progress,
                ucx=ucx,
                shared=arguments.shared,
                metrics=arguments.metrics,
                cache=arguments.cache,
                block_size=arguments.block_size,
                freshness=arguments.freshness,
                source_timeout=arguments.source_timeout,
                scratch=arguments.scratch,
                scratch_limit=arguments.scratch_limit,
                cache_dir=arguments.cache_dir,
                cache_dir_size=arguments.cache_dir_size,
                write_budget=arguments.write_budget,
                ready_fd=arguments.ready_fd,
                parent_fd=arguments.parent_fd,
            )
        )
    except ValueError as error:
        parser.exit(2, f"ucxstore serve: {error}\n")
    except ModuleNotFoundError as error:
        print(f'ucxstore serve: {error}; pip install "ucxstore[tools]"', file=sys.stderr)
        return 1
    except (UcxStoreError, OSError) as error:
        print(f"ucxstore serve: {error}", file=sys.stderr)
        return 1


def _demo(arguments: Sequence[str]) -> int:
    from ucxstore.cli.demo import main as run_demo  # which imports xarray and others of the extra

    return run_demo(arguments)


def _copies(arguments: Sequence[str]) -> int:
    from ucxstore.copies.command import main as run_copies  # which imports those of its extra

    return run_copies(arguments)


def _describe_version() -> str:
    ours = f"ucxstore {__version__}"
    try:
        ucx = _ucx.load()
    except UcxUnavailableError as error:
        return f"{ours}\nno UCX: {error}"
    return f"{ours}\nUCX {ucx.version} ({ucx.origin}: {ucx.path})"
