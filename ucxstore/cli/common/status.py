"""Exit statuses of commands, and the failures that stand for them."""

import enum


class Status(enum.IntEnum):
    """How a command ended. All commands but ``serve`` share them: see docs/reference/cli.md."""

    DONE = 0
    FAILED = 1
    USAGE = 2  # as argparse
    NOT_FOUND = 3
    REFUSED = 4
    NO_ANSWER = 5
    INTERRUPTED = 130  # as in shells: 128 + SIGINT
    NO_READER = 141  # 128 + SIGPIPE


class UsageError(Exception):
    """An option or argument is not usable."""


class CommandError(Exception):
    """A command failed."""


class MissingError(CommandError):
    """What the command was asked for is not there."""


def status_of(error: BaseException) -> Status:
    """Return the exit status that stands for a failure."""
    from ucxstore.base import errors

    # The first that fits: some errors are of several classes.
    table: tuple[tuple[tuple[type[BaseException], ...], Status], ...] = (
        ((UsageError,), Status.USAGE),
        ((MissingError, FileNotFoundError), Status.NOT_FOUND),
        ((PermissionError,), Status.REFUSED),
        (
            (
                errors.NotAServerError,
                errors.ProtocolVersionError,
                errors.ClusterError,
                errors.ServerRestartedError,
            ),
            Status.FAILED,
        ),
        ((ConnectionError, TimeoutError), Status.NO_ANSWER),
    )
    return next((status for kinds, status in table if isinstance(error, kinds)), Status.FAILED)
