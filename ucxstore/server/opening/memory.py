"""`open_memory`: the memory that a server has its values in, and what it does when that is full."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import NamedTuple

from ucxstore.base.errors import StorageError
from ucxstore.base.native import core
from ucxstore.base.showing import one_line
from ucxstore.server.options.server_options import ServerOptions
from ucxstore.server.options.when_full import WhenFull
from ucxstore.server.sources.own_directory import OwnDirectory

_LOCK = "ucxstore-spill.lock"


class OpenMemory(NamedTuple):
    """Memory for values.

    Parameters
    ----------
    storage : core.MemoryStorage
    leave : callable
        Removes what was moved to a directory, and leaves that to other servers. To be called once
        nothing is served any more.
    """

    storage: core.MemoryStorage
    leave: Callable[[], None]


def open_memory(limit: int, options: ServerOptions, hint: str | None) -> OpenMemory:
    """Open memory for the values of a server.

    Parameters
    ----------
    limit : int
        Bytes.
    options : ServerOptions
    hint : str or None
        Ends the text of a refusal. With one, `limit` is that of the memory itself, with all that
        values need besides.

    Raises
    ------
    OSError
        If the directory of `when_full` cannot be used; the message starts with "when_full".
    """
    full = WhenFull.parse("when_full", options.when_full or "refuse")
    with ExitStack() as on_failure:
        if full.does == "spill":
            directory = OwnDirectory("when_full", full.directory, _LOCK)
            on_failure.callback(directory.close)
        try:
            storage = core.MemoryStorage(
                limit,
                visible=options.local,
                mapped_limit=options.most_mapped,
                hint=hint,
                evict=list(full.below) if full.does == "evict" else None,
                spill=str(directory.path) if full.does == "spill" else None,
            )
        except StorageError as error:  # of the directory
            raise OSError(f"when_full: {one_line(error)}") from error
        leaving = on_failure.pop_all()
    leaving.callback(storage.leave)  # first, while the directory is locked
    return OpenMemory(storage, leaving.close)
