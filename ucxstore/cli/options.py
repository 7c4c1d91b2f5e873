"""What the tools have in common: how they get to a server, and how they fail."""

import argparse
import asyncio
import os
import sys
from collections.abc import Coroutine, Sequence
from typing import NoReturn

from ucxstore.errors import AddressError, UcxStoreError
from ucxstore.options import DEFAULT_TIMEOUT
from ucxstore.secret import Secret
from ucxstore.store import UcxStore

_INTERRUPTED = 130  # as shells have it: 128 and the number of SIGINT


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


type Commands = argparse._SubParsersAction[Parser]


def add_ucx_option(parser: argparse.ArgumentParser) -> None:
    """Let a command take UCX options."""
    parser.add_argument(
        "--ucx",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a UCX option, such as TLS=tcp; can be repeated",
    )


def add_client_options(parser: argparse.ArgumentParser) -> None:
    """Let a command take what connecting to a server takes."""
    parser.add_argument(
        "--secret-file",
        metavar="FILE",
        help="holds the server's secret (default: where UCXSTORE_SECRET or "
        "UCXSTORE_SECRET_FILE says)",
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=DEFAULT_TIMEOUT,
        metavar="SECONDS",
        help="the longest time without progress (default: %(default)g)",
    )
    add_ucx_option(parser)


def parse_ucx(pairs: Sequence[str]) -> dict[str, str]:
    """Parse what was given as ``--ucx``.

    Raises
    ------
    ValueError
        If one is not ``NAME=VALUE``, or a name is given twice.
    """
    options: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise ValueError(f"--ucx takes NAME=VALUE, not {pair!r}")
        if name in options:
            raise ValueError(f"--ucx: {name} is given twice")
        options[name] = value
    return options


def open_store(arguments: argparse.Namespace, address: str, *, read_only: bool = True) -> UcxStore:
    """Make the store of an address, with the options that were given; nothing is connected yet.

    Raises
    ------
    UsageError
        If the address or an option is not usable.
    """
    try:
        file = arguments.secret_file
        return UcxStore(
            address,
            read_only=read_only,
            timeout=arguments.timeout,
            secret=Secret.find() if file is None else Secret.from_file(file),
            ucx=parse_ucx(arguments.ucx),
        )
    except (AddressError, ValueError, TypeError, OSError) as error:
        raise UsageError(str(error)) from error


class UsageError(Exception):
    """A command was asked for what cannot be: its exit status is 2."""


class ToolError(Exception):
    """A command failed, and the message says all there is to say: its exit status is 1."""


def run(arguments: argparse.Namespace, work: Coroutine[object, object, int]) -> int:
    """Run a command until its end, and return the exit status; failures are one line."""
    name = f"ucxstore {arguments.command}"
    try:
        status = asyncio.run(work)
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        print(f"{name}: interrupted", file=sys.stderr)
        return _INTERRUPTED
    except BrokenPipeError:
        # Whoever read the output has seen enough; at exit Python would complain once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except UsageError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        print(f'{name}: {error}; pip install "ucxstore[tools]"', file=sys.stderr)
        return 1
    except (ToolError, UcxStoreError, OSError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 1
