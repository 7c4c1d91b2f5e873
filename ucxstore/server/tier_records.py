"""`TierRecords`: what the servers behind this one keep with it, to find one another.

This server is their source. Each of them has a presence, and a note of the keys that it may be
changing: docs/consistency.md. No client sees these records. They are beside the server's values, so
that they last as long.
"""

import os
import re
import secrets
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ucxstore.base import process
from ucxstore.base.foreign import Fields
from ucxstore.base.keys import RESERVED_FOLDER
from ucxstore.server.locations import LocationKind, parse_location
from ucxstore.server.options.server_options import ServerOptions

if TYPE_CHECKING:
    from ucxstore.server.source_thread.carrier import Carrier
    from ucxstore.server.sources.source import Source

# Below it each prefix of the server that is a source has a folder.
FOLDER = f"{RESERVED_FOLDER}tiers/"

# Names in an answer; records of a server of memory, which are not more than some for each host.
_MOST_LISTED = 500
_MOST_RECORDS = 100_000

_FOLDER_NAME = re.compile(r"[0-9a-f]{16}")
# A server between the two adds its own folder.
_NAME = re.compile(r"(tiers/[0-9a-f]{16}/){0,8}(servers|writing)/[0-9A-Za-z_-]{1,128}")


class RecordError(Exception):
    """A record that cannot be kept or read, and why."""


class TierRecords(Protocol):
    """Records by their paths, which begin with `FOLDER`. All methods may block."""

    def put(self, path: str, data: bytes) -> None:
        """Keep a record, in the place of any other."""

    def get(self, path: str) -> bytes | None:
        """Return a record; ``None`` if it is missing."""

    def remove(self, path: str) -> None:
        """Remove a record, which may be missing."""

    def list_paths(self, folder: str) -> list[str]:
        """Return the paths of all records in a folder."""


class RecordsInMemory:
    """The records of a server of memory, which end with its values."""

    def __init__(self) -> None:
        self._records: dict[str, bytes] = {}
        self._lock = process.lock()

    def put(self, path: str, data: bytes) -> None:
        with self._lock:
            if len(self._records) >= _MOST_RECORDS and path not in self._records:
                raise RecordError(f"there are {_MOST_RECORDS} records of other servers already")
            self._records[path] = data

    def get(self, path: str) -> bytes | None:
        return self._records.get(path)

    def remove(self, path: str) -> None:
        with self._lock:
            self._records.pop(path, None)

    def list_paths(self, folder: str) -> list[str]:
        with self._lock:
            return [path for path in self._records if path.startswith(folder)]


class RecordsInDirectory:
    """The records of servers of a directory, in files of the folder that is theirs.

    Parameters
    ----------
    directory : Path
        The served one.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def put(self, path: str, data: bytes) -> None:
        file = self._directory / path
        unfinished = file.with_name(f".{file.name}-{secrets.token_hex(8)}")
        for attempt in (1, 2):
            file.parent.mkdir(parents=True, exist_ok=True)
            try:
                unfinished.write_bytes(data)
                break
            except FileNotFoundError:  # another server has just removed the empty folder
                if attempt == 2:
                    raise
        try:
            unfinished.replace(file)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise

    def get(self, path: str) -> bytes | None:
        try:
            return (self._directory / path).read_bytes()
        except FileNotFoundError:
            return None

    def remove(self, path: str) -> None:
        file = self._directory / path
        file.unlink(missing_ok=True)
        # Empty folders go: zarr's LocalStore would list them.
        for folder in list(file.parents)[: path.count("/")]:
            try:
                folder.rmdir()
            except OSError:
                return

    def list_paths(self, folder: str) -> list[str]:
        found = []
        for parent, _, names in os.walk(self._directory / folder):
            inside = Path(parent).relative_to(self._directory)
            found += [f"{inside}/{name}" for name in names if not name.startswith(".")]
        return found


class RecordsInSource:
    """The records of servers of a source, which has them, too.

    Parameters
    ----------
    carrier : Carrier
        Asks the source in its thread.
    """

    def __init__(self, carrier: "Carrier") -> None:
        self._carrier = carrier

    def put(self, path: str, data: bytes) -> None:
        import numpy as np  # servers of memory and directories start without it

        value = np.frombuffer(data, np.uint8)
        self._ask(lambda source: source.put(path, value, if_absent=False))

    def get(self, path: str) -> bytes | None:
        found = self._ask(lambda source: source.get(path, None))
        return None if found is None else bytes(found.buffer)

    def remove(self, path: str) -> None:
        self._ask(lambda source: source.remove([path]))

    def list_paths(self, folder: str) -> list[str]:
        found: list[str] = self._ask(lambda source: source.list_reserved())
        return [path for path in found if path.startswith(folder)]

    def _ask(self, what: "Callable[[Source], Coroutine[object, object, Any]]") -> Any:
        return self._carrier.ask(what)


def keep_records(
    storage: object, carrier: "Carrier | None", options: ServerOptions
) -> TierRecords | None:
    """Return where a server keeps records; ``None`` if it may not change what it serves.

    Parameters
    ----------
    storage
        As `Server` takes it.
    carrier : Carrier or None
        What is behind the cache of a source.
    options : ServerOptions
    """
    if options.read_only:
        return None
    if carrier is not None:
        return RecordsInSource(carrier)
    if isinstance(storage, str | bytes | os.PathLike):
        kind, text = parse_location("storage", storage)
        if kind is LocationKind.DIRECTORY:
            return RecordsInDirectory(Path(text))
    return RecordsInMemory()


def answer_tier(records: TierRecords | None, found: Fields) -> dict[str, object]:
    """Answer a server that has this one as its source: docs/wire.md.

    Parameters
    ----------
    records : TierRecords or None
        ``None`` for a server that may not change what it serves.
    found : Fields
        The request.

    Raises
    ------
    RecordError, OSError
        If it cannot be done.
    ProtocolError
        If it is no such request.
    """
    if records is None:
        raise RecordError("the server is read-only, so servers behind it cannot meet in it")
    folder = found.text("folder")
    if not _FOLDER_NAME.fullmatch(folder):
        raise found.wrong("folder")
    root = f"{FOLDER}{folder}/"
    how = found.text("how")
    if how == "list":
        after = found.text("after")
        names = sorted(path.removeprefix(root) for path in records.list_paths(root))
        left = [name for name in names if name > after and _NAME.fullmatch(name)]
        return {"names": left[:_MOST_LISTED], "more": len(left) > _MOST_LISTED}
    name = found.text("name")
    if not _NAME.fullmatch(name):
        raise found.wrong("name")
    match how:
        case "put":
            records.put(root + name, found.text("text").encode())
        case "remove":
            records.remove(root + name)
        case "get":
            data = records.get(root + name)
            if data is not None:
                with suppress(UnicodeDecodeError):
                    return {"text": data.decode()}
                raise RecordError(f"the record {name} is damaged")
        case _:
            raise found.wrong("how")
    return {}
