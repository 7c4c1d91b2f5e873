"""What commands share: the options of a connection, and failures reported in one line.

What takes long to import is imported once the arguments are known to be right.
"""

import argparse
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from ucxstore.base.showing import one_line, printable
from ucxstore.cli.common.parser import Parser, add_ucx_option, parse_pairs
from ucxstore.cli.common.status import CommandError, MissingError, Status, UsageError, status_of

if TYPE_CHECKING:
    from ucxstore.base.address import Address
    from ucxstore.base.options import ClientOptions
    from ucxstore.base.secret import Secret
    from ucxstore.stores.store import UcxStore
    from ucxstore.stores.values import Values

# Keys whose sizes are requested together.
_SIZES_AT_ONCE = 1000

# Seconds: `options.DEFAULT_TIMEOUT`, which the parser does without.
_DEFAULT_TIMEOUT = 30.0

# Bytes. Whoever records a handshake can try shorter ones until one fits.
_SHORT_SECRET = 16
SHORT_SECRET = (
    f"the secret has fewer than {_SHORT_SECRET} bytes, and may be guessed: 'ucxstore secret' makes "
    "a good one"
)

_PRIVATE = 0o600


def add_client_options(parser: Parser) -> None:
    """Add the options of a connection to a server."""
    parser.set_defaults(prog=parser.prog)  # who says that it waits
    add_secret_option(parser, "a file with the server's secret")
    parser.add_argument(
        "--timeout",
        type=float,
        default=_DEFAULT_TIMEOUT,
        metavar="SECONDS",
        help="how long to wait without progress, to connect, and for a server that starts "
        "(default: %(default)g)",
    )
    add_ucx_option(parser)


def add_secret_option(parser: Parser, what: str) -> None:
    """Add ``--secret-file``."""
    parser.add_argument(
        "--secret-file",
        metavar="FILE",
        help=f"{what}, which only you can read (default: UCXSTORE_SECRET or UCXSTORE_SECRET_FILE "
        "in the environment)",
    )


def find_secret(arguments: argparse.Namespace) -> "Secret | None":
    """Return the secret of the file that is given, else of the environment, and warn if it's short.

    Raises
    ------
    OSError, ValueError
        If it is not usable.
    UsageError
        If its file cannot be opened.
    """
    from ucxstore.base.secret import ENVIRONMENT_FILE, Secret

    file = arguments.secret_file
    try:
        secret = Secret.find() if file is None else Secret.from_file(file)
    except OSError as error:
        if error.strerror is None:  # it is one of our own, which names the file
            raise
        option = ENVIRONMENT_FILE if file is None else "--secret-file"
        raise UsageError(f"{option}: {one_line(error)}") from error
    warn_of_short(secret)
    return secret


def warn_of_short(secret: "Secret | None") -> None:
    """Warn of a secret that could be guessed, once a process."""
    if is_short(secret):
        warn(SHORT_SECRET)


def is_short(secret: "Secret | None") -> bool:
    """Tell whether a secret could be guessed."""
    return secret is not None and len(secret.reveal()) < _SHORT_SECRET


@cache
def warn(text: str) -> None:
    """Print a warning, once a process."""
    print(f"ucxstore: warning: {text}", file=sys.stderr)


@contextmanager
def usage_errors() -> Iterator[None]:
    """Report what cannot be used as a mistake in the command."""
    try:
        yield
    except (ValueError, TypeError, OSError) as error:
        raise UsageError(str(error)) from error


def client_options(arguments: argparse.Namespace) -> "ClientOptions":
    """Return the options of a connection; say on standard error when it waits for its server.

    Raises
    ------
    UsageError
        If one cannot be used.
    """
    from ucxstore.base.options import ClientOptions
    from ucxstore.client import patience

    patience.tell = partial(_say, arguments.prog)
    with usage_errors():
        return ClientOptions.of(
            timeout=arguments.timeout,
            connect_timeout=arguments.timeout,
            secret=find_secret(arguments),
            ucx=parse_pairs("--ucx", arguments.ucx),
        )


def _say(prog: str, text: str) -> None:
    print(f"{prog}: {text}", file=sys.stderr, flush=True)


def parse_address(text: str) -> "Address":
    """Parse an address that the user gave.

    Raises
    ------
    UsageError
        If it is none.
    """
    from ucxstore.base.address import Address

    with usage_errors():
        return Address.parse(text)


def split_key(text: str) -> "tuple[Address, str]":
    """Split the address of a key into that of its folder, and its name.

    Raises
    ------
    UsageError
        If it is the address of no key.
    """
    from ucxstore.base.address import Address

    address = parse_address(text)
    if not address.prefix:
        raise UsageError(f"{text}: it names a server, not a key")
    parent, _, name = address.prefix.rpartition("/")
    return Address(address.servers, parent), name


def open_values(arguments: argparse.Namespace, address: "str | Address") -> "Values":
    """Make the values of an address with the given options. They connect when they're first used.

    Raises
    ------
    UsageError
        If the address or an option cannot be used.
    """
    from ucxstore.stores.values import Values

    with usage_errors():
        return Values(address, client_options(arguments))


def connect(arguments: argparse.Namespace, address: "str | Address") -> "Values":
    """Do as `open_values`, and connect, blocking, even within a coroutine.

    So Ctrl-C ends it at once. A thread that connects would be waited for.
    """
    values = open_values(arguments, address)
    if threading.current_thread() is not threading.main_thread():
        values.open_sync()
        return values
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # not asyncio's
    try:
        values.open_sync()
    finally:
        signal.signal(signal.SIGINT, handler)
    return values


def open_store(
    arguments: argparse.Namespace, address: str, *, read_only: bool = True
) -> "UcxStore":
    """Make the store of an address with the given options. It connects when it is first used.

    Raises
    ------
    UsageError
        If the address or an option cannot be used.
    """
    from ucxstore.stores.store import UcxStore

    options = client_options(arguments)
    with usage_errors():
        return UcxStore(
            address,
            read_only=read_only,
            timeout=options.timeout,
            connect_timeout=options.connect_timeout,
            secret=options.secret,
            ucx=dict(options.ucx.options),
        )


async def find_key(arguments: argparse.Namespace, values: "Values") -> tuple[str, int]:
    """Return the name and size of a key that the user gave instead of a prefix.

    Raises
    ------
    NotFoundError
        If there is no such key.
    """
    folder, name = split_key(str(values))
    size = await size_of(open_values(arguments, folder), name)
    if size is None:
        raise MissingError(f"{values}: no values found")
    return name, size


async def size_of(values: "Values", key: str) -> int | None:
    """Return the size of a value; ``None`` for a missing key and one outside of the grant."""
    from ucxstore.base.errors import GrantError

    try:
        (size,) = await values.sizes([key])
    except GrantError:
        return None
    return size


async def in_groups(pages: AsyncIterator[Sequence[str]]) -> AsyncIterator[list[str]]:
    """Divide the names of a listing into groups whose sizes are requested together."""
    group: list[str] = []
    async for page in pages:
        for name in page:
            group.append(name)
            if len(group) == _SIZES_AT_ONCE:
                yield group
                group = []
    if group:
        yield group


def report_unreadable(
    command: str, folders: Iterable[str], user: str = "the server's user"
) -> Status:
    """Name the folders that something is missing from, and return the exit status."""
    status = Status.DONE
    for folder in dict.fromkeys(folders):
        print(
            f"ucxstore {command}: {printable(folder)}: {user} may not open this folder",
            file=sys.stderr,
        )
        status = Status.FAILED
    return status


def add_output_option(parser: Parser) -> None:
    """Add ``--output``, the file for a secret."""
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="write it to a new file that only you can read (default: print it)",
    )


def write_private(file: str | None, text: bytes) -> None:
    """Write a line into the file of ``--output``, or print it if none is given.

    The file is new, so nobody has it open, or may read it.

    Raises
    ------
    CommandError
        If it cannot be made, or is there.
    """
    if file is None:
        print(text.decode())
        return
    path = Path(file)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _PRIVATE)
    except OSError as error:
        raise CommandError(f"--output: {one_line(error)}") from error
    with os.fdopen(descriptor, "wb") as opened:
        os.fchmod(descriptor, _PRIVATE)  # whatever the umask took away
        opened.write(text + b"\n")


def leave(status: int) -> NoReturn:
    """End the process at once, without the interpreter's shutdown."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def run(
    name: str,
    action: Callable[[], int | Coroutine[Any, Any, int | None] | None],
    *,
    extra: str = "tools",
) -> int:
    """Run a command, and print a failure as one line.

    Parameters
    ----------
    name : str
        The command's name, for error messages.
    action : callable
        The command; it returns the exit status, or nothing if it is done; it may be a coroutine
        function.
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
        if isinstance(status, Coroutine):
            import asyncio

            status = asyncio.run(status)
        print(end="", flush=True)  # which does nothing where standard output is closed
        return Status.DONE if status is None else status
    except KeyboardInterrupt:
        print(f"{command}: interrupted", file=sys.stderr)
        return Status.INTERRUPTED
    except BrokenPipeError:
        # The reader has closed our output. Without this, Python would report an error at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Status.NO_READER
    except ModuleNotFoundError as error:
        print(f'{command}: {error}; pip install "ucxstore[{extra}]"', file=sys.stderr)
        return Status.FAILED
    except UsageError as error:
        print(f"{command}: {error}", file=sys.stderr)
        return Status.USAGE
    except Exception as error:
        from ucxstore.base.errors import UcxStoreError

        if not isinstance(error, CommandError | UcxStoreError | OSError):
            raise
        print(f"{command}: {one_line(error)}", file=sys.stderr)
        return status_of(error)
