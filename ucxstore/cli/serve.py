"""``ucxstore serve``: a server in the foreground, until a signal ends it."""

import argparse
import logging
import os
import resource
import select
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ucxstore.cli.parser import Parser, add_ucx_option, make_parser, parse_ucx
from ucxstore.errors import UcxStoreError
from ucxstore.options import UcxValue
from ucxstore.secret import Secret

if TYPE_CHECKING:
    from ucxstore.server import Server

# How long requests in flight may take to finish once the process is told to end.
DRAIN_SECONDS = 10.0

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def main(argv: Sequence[str]) -> int:
    """Run ``ucxstore serve``; return the exit status."""
    parser = _make_parser()
    arguments = parser.parse_args(argv)
    try:
        secret = None if arguments.secret_file is None else Secret.from_file(arguments.secret_file)
        ucx = parse_ucx(arguments.ucx)
    except (OSError, ValueError) as error:
        parser.exit(2, f"ucxstore serve: {error}\n")
    try:
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


def _make_parser() -> Parser:
    parser = make_parser(
        "serve", "Serve values until SIGTERM or Ctrl-C; requests in flight are finished."
    )
    add = parser.add_argument
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
    add_ucx_option(parser)
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
    return parser


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """What ``ucxstore serve`` was asked for; the first ones as for `Server`.

    Parameters
    ----------
    metrics : str or None
        ``host:port`` to tell Prometheus at; loopback only, unless `insecure`.
    ready_fd : int or None
        Where to write the address, as a line, and then close, once the server listens.
    parent_fd : int or None
        The process ends, as if by SIGTERM, when this pipe does.
    """

    root: str
    bind: str
    threads: int
    secret: Secret | None
    read_only: bool
    insecure: bool
    progress: str
    ucx: Mapping[str, UcxValue]
    shared: bool | None
    metrics: str | None = None
    cache: str | None = None
    block_size: str | None = None
    freshness: str | None = None
    source_timeout: float | None = None
    scratch: str | None = None
    scratch_limit: str | None = None
    cache_dir: str | None = None
    cache_dir_size: str | None = None
    write_budget: str | None = None
    ready_fd: int | None = None
    parent_fd: int | None = None


def serve(options: ServeOptions) -> int:
    """Serve until SIGTERM, SIGINT or the parent's end; then drain, and return the exit status."""
    from ucxstore.server import Server  # not for `--help`, which needs no UCX

    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    _allow_many_descriptors()
    stop = _signals_as_pipe()
    with (
        Server(
            options.root,
            options.bind,
            threads=options.threads,
            secret=options.secret,
            read_only=options.read_only,
            insecure=options.insecure,
            progress=options.progress,
            ucx=options.ucx,
            shared=options.shared,
            cache=options.cache,
            block_size=options.block_size,
            freshness=options.freshness,
            source_timeout=options.source_timeout,
            scratch=options.scratch,
            scratch_limit=options.scratch_limit,
            cache_dir=options.cache_dir,
            cache_dir_size=options.cache_dir_size,
            write_budget=options.write_budget,
        ) as server,
        _metrics(options, server),
    ):
        _announce(options, server.address)
        select.select([stop] if options.parent_fd is None else [stop, options.parent_fd], [], [])
        for number in _SIGNALS:  # the next one does not wait
            signal.signal(number, signal.SIG_DFL)
        if not server.drain(DRAIN_SECONDS):
            logging.warning("requests were still in flight after %g s", DRAIN_SECONDS)
        server.close(0.0)
    return 0


def _metrics(options: ServeOptions, server: "Server") -> AbstractContextManager[object]:
    if options.metrics is None:
        return nullcontext()
    from ucxstore.server.metrics import Metrics  # which needs an extra

    metrics = Metrics(server, options.metrics, anywhere=options.insecure)
    with suppress(OSError):
        print(f"metrics at {metrics.url}", flush=True)
    return metrics


def _allow_many_descriptors() -> None:
    """Raise the soft limit to the hard one: UCX takes a dozen descriptors for each client."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _signals_as_pipe() -> int:
    """Turn signals into something that can be read; whichever thread the system gives them to."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in _SIGNALS:
        signal.signal(number, lambda *_: None)
    return reader


def _announce(options: ServeOptions, address: str) -> None:
    with suppress(OSError):  # that nobody reads it is no reason not to serve
        print(f"serving {options.root} at {address}", flush=True)
    if options.ready_fd is not None:
        with os.fdopen(options.ready_fd, "w") as ready:
            ready.write(f"{address}\n")
