"""What commands share: the options of a connection, and failures reported in one line."""

import argparse
import os
import sys
from collections.abc import AsyncIterator, Callable

from ucxstore.address import SCHEME
from ucxstore.cli.parser import Parser, add_ucx_option, parse_pairs
from ucxstore.errors import AddressError, UcxStoreError
from ucxstore.options import DEFAULT_TIMEOUT
from ucxstore.secret import Secret
from ucxstore.store import UcxStore

_INTERRUPTED = 130  # as in shells: 128 + SIGINT


# Keys whose sizes are requested together.
_SIZES_AT_ONCE = 1000


class UsageError(Exception):
    """An option or argument is not usable; the exit status is 2."""


class CommandError(Exception):
    """A command failed; the exit status is 1."""


def add_client_options(parser: Parser) -> None:
    """Add the options of a connection to a server."""
    parser.add_argument(
        "--secret-file",
        metavar="FILE",
        help="a file with the server's secret (default: UCXSTORE_SECRET or UCXSTORE_SECRET_FILE)",
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
    """Make the store of an address with the given options. It connects when it is first used.

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
    """Return the name and size of a key that the user gave instead of a prefix."""
    parent, _, name = arguments.address.rstrip("/").rpartition("/")
    if parent.removeprefix(SCHEME).strip("/"):
        with open_store(arguments, parent) as store:
            (size,) = await store.getsizes([name])
        if size is not None:
            return name, size
    raise CommandError(f"{arguments.address}: no values found")


async def in_groups(names: AsyncIterator[str]) -> AsyncIterator[list[str]]:
    """Collect names into groups whose sizes are requested together."""
    group: list[str] = []
    async for name in names:
        group.append(name)
        if len(group) == _SIZES_AT_ONCE:
            yield group
            group = []
    if group:
        yield group


def run(name: str, action: Callable[[], int], *, extra: str = "tools") -> int:
    """Run a command, and print a failure as one line.

    Parameters
    ----------
    name : str
        The command's name, for error messages.
    action : callable
        The command; it returns the exit status.
    extra : str
        The extra of this package that the command needs.

    Returns
    -------
    int
        The exit status.
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
        # The reader has closed our output. Without this, Python would report an error at exit.
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
