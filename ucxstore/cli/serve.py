"""``ucxstore serve``: run a server in the foreground until a signal ends it."""

import argparse
import logging
import sys
from collections.abc import Sequence
from typing import Any

from ucxstore import logs
from ucxstore.cli.parser import Parser, make_parser, parse_pairs
from ucxstore.errors import UcxStoreError
from ucxstore.secret import Secret
from ucxstore.server.options import DURABILITIES, ServerOptions

# The log levels without -v, with -v, and with -vv.
_LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG)


def main(argv: Sequence[str]) -> int:
    """Run ``ucxstore serve``; return the exit status."""
    parser = _make_parser()
    given = vars(parser.parse_args(argv))
    storage, metrics = given.pop("storage"), given.pop("metrics", None)
    verbosity = min(given.pop("verbose", 0), len(_LEVELS) - 1)
    logs.configure(_LEVELS[verbosity], given.pop("log_format", "text"))
    try:
        options = _options(given)
        from ucxstore.server.foreground import serve  # not for --help

        serve(storage, options, metrics=metrics)
    except ValueError as error:
        parser.exit(2, f"ucxstore serve: {error}\n")
    except ModuleNotFoundError as error:
        print(f'ucxstore serve: {error}; pip install "ucxstore[tools]"', file=sys.stderr)
        return 1
    except (UcxStoreError, OSError) as error:
        print(f"ucxstore serve: {error}", file=sys.stderr)
        return 1
    return 0


def _make_parser() -> Parser:
    """Make the parser: a flag for each field of `ServerOptions`, and the command's own."""
    parser = make_parser(
        "serve", "Serve values until SIGTERM or Ctrl-C; requests in flight are finished."
    )
    parser.argument_default = argparse.SUPPRESS  # ServerOptions has the defaults
    add = parser.add_argument
    add(
        "storage",
        metavar="LOCATION",
        help="a directory, file:///path, memory://, or s3://, gs://, az://, https://",
    )
    add(
        "--bind",
        metavar="HOST:PORT",
        help="the address to listen at; port 0 takes any free one (default: 127.0.0.1:0)",
    )
    add("--threads", type=int, metavar="N", help="threads that serve (default: 1)")
    add("--secret-file", metavar="FILE", help="a file with the secret that clients must know")
    add("--read-only", action="store_true", help="refuse writes")
    add(
        "--insecure",
        action="store_true",
        help="let other machines, and other users of this one, reach the server without a secret",
    )
    add(
        "--progress",
        choices=["blocking", "polling"],
        help="whether threads sleep when idle, or poll (default: blocking)",
    )
    add(
        "--ucx",
        action="append",
        metavar="NAME=VALUE",
        help="a UCX option, such as TLS=tcp; repeatable",
    )
    add(
        "--metrics",
        metavar="HOST:PORT",
        help="the address of metrics for Prometheus, over HTTP; loopback only, unless --insecure",
    )
    add(
        "--shared",
        action=argparse.BooleanOptionalAction,
        help="other servers serve the same LOCATION, such as a network directory (default: only "
        "for object stores)",
    )
    add("--cache", metavar="SIZE", help="memory to cache an object store's values, such as 4GiB")
    add("--block-size", metavar="SIZE", help="fetch large objects in blocks of this size")
    add(
        "--freshness",
        metavar="SECONDS",
        help="how long a cached value is believed before the object store is asked for a newer "
        "one; or 'always' to ask each time, 'forever' to ask never (default: until it is changed "
        "through any server of it; with --read-only: forever)",
    )
    add(
        "--source-timeout",
        type=float,
        metavar="SECONDS",
        help="the longest time that a request to an object store may take, from when it is sent",
    )
    add(
        "--storage-options",
        action="append",
        metavar="NAME=VALUE",
        help="an option to open an object store's URL, such as endpoint=http://host; repeatable. "
        "Other users can see it: put credentials into the environment",
    )
    add(
        "--scratch",
        metavar="memory://",
        help="offer scratch space in memory beside LOCATION; if LOCATION is memory://, it is "
        "offered anyway",
    )
    add("--scratch-limit", metavar="SIZE", help="memory for scratch space, such as 8GiB")
    add("--write-budget", metavar="SIZE", help="memory for values on their way to an object store")
    add(
        "--cache-dir",
        metavar="DIRECTORY",
        help="a directory for cached values without room in memory",
    )
    add("--cache-dir-size", metavar="SIZE", help="the size that it may take, such as 100GiB")
    add(
        "--local",
        action=argparse.BooleanOptionalAction,
        help="serve clients of this host without UCX, over a Unix socket; they see values in "
        "shared memory (default: yes)",
    )
    add(
        "--socket",
        metavar="PATH",
        help="the path of that socket, for clients in containers that share its folder (default: "
        "a name without a file, for this network namespace)",
    )
    add(
        "--mapped-limit",
        metavar="SIZE",
        help="bytes of values that such clients may hold where they lie, in place of copies "
        "(default: half of this host's memory)",
    )
    add(
        "--durability",
        choices=DURABILITIES,
        help="what of a directory survives a crash of the host: atomic: each value whole, the old "
        "one or the new one; fsync: also all that was acknowledged; none: anything may be torn "
        "(default: atomic)",
    )
    add(
        "--grace",
        type=float,
        metavar="SECONDS",
        help="how long requests under way may take to finish after SIGTERM or Ctrl-C; a second one "
        "ends the server at once (default: 8)",
    )
    add(
        "--max-sessions",
        type=int,
        metavar="N",
        help="clients that may be connected at once; beyond it, the one goes that has been idle "
        "for longest, of the host or user that has most (default: 4096)",
    )
    add(
        "--verbose",
        "-v",
        action="count",
        default=0,
        help="also log connections and evictions; -vv: log everything",
    )
    add(
        "--log-format",
        choices=logs.FORMATS,
        help="readable lines, or a JSON object a line (default: text)",
    )
    return parser


def _options(given: dict[str, Any]) -> ServerOptions:
    """Make `ServerOptions` from the arguments, which have the names of its fields."""
    file = given.pop("secret_file", None)
    if file is not None:
        try:
            given["secret"] = Secret.from_file(file)
        except OSError as error:
            raise ValueError(str(error)) from error
    for name in ("ucx", "storage_options"):
        if name in given:
            given[name] = parse_pairs(f"--{name.replace('_', '-')}", given[name])
    return ServerOptions(**given)
