"""Run a command: connect to a server with its options, report failures in one line."""

import argparse
import os
import sys
from collections.abc import Callable

from ucxstore.address import SCHEME
from ucxstore.cli.parser import Parser, add_ucx_option, parse_pairs
from ucxstore.errors import AddressError, UcxStoreError
from ucxstore.options import DEFAULT_TIMEOUT
from ucxstore.secret import Secret
from ucxstore.store import UcxStore

_INTERRUPTED = 130  # as in shells: 128 and the number of SIGINT


class UsageError(Exception):
    """An option or argument cannot be used; the exit status is 2."""


class CommandError(Exception):
    """A command failed, and the message is complete; the exit status is 1."""


def add_client_options(parser: Parser) -> None:
    """Let a command take the options of a connection to a server."""
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


def open_store(arguments: argparse.Namespace, address: str, *, read_only: bool = True) -> UcxStore:
    """Make the store of an address with the given options; it connects later.

    Raises
    ------
    UsageError
        If the address or an option cannot be used.
    """
    try:
        file = arguments.secret_file
        return UcxStore(
            address,
            read_only=read_only,
            timeout=arguments.timeout,
            secret=Secret.find() if file is None else Secret.from_file(file),
            ucx=parse_pairs("--ucx", arguments.ucx),
        )
    except (AddressError, ValueError, TypeError, OSError) as error:
        raise UsageError(str(error)) from error


async def measure_key(arguments: argparse.Namespace) -> tuple[str, int]:
    """Return name and size of the key that the user gave in place of a prefix."""
    parent, _, name = arguments.address.rstrip("/").rpartition("/")
    if parent.removeprefix(SCHEME).strip("/"):
        with open_store(arguments, parent) as store:
            (size,) = await store.getsizes([name])
        if size is not None:
            return name, size
    raise CommandError(f"{arguments.address}: there is nothing")


def run(name: str, action: Callable[[], int], *, extra: str = "tools") -> int:
    """Run a command to its end.

    Parameters
    ----------
    name : str
        The command's name, for error messages.
    action : callable
        Returns the exit status.
    extra : str
        The extra of this package that the command needs.

    Returns
    -------
    int
        The exit status; a failure prints one line.
    """
    command = f"ucxstore {name}"
    try:
        status = action()
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        print(f"{command}: interrupted", file=sys.stderr)
        return _INTERRUPTED
    except BrokenPipeError:
        # The reader of the output has closed it; Python would complain about that at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except UsageError as error:
        print(f"{command}: {error}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        print(f'{command}: {error}; pip install "ucxstore[{extra}]"', file=sys.stderr)
        return 1
    except (CommandError, UcxStoreError, OSError) as error:
        print(f"{command}: {error}", file=sys.stderr)
        return 1
