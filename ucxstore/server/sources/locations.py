"""Parse locations as users write them: memory, a directory or an object store. No I/O."""

import enum
import os
import re
from urllib.parse import unquote, urlsplit

MEMORY = "memory://"

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")

# The schemes that obstore opens.
_OBJECT_STORES = frozenset(
    {"s3", "s3a", "gs", "az", "adl", "azure", "abfs", "abfss", "http", "https"}
)

LOCATIONS = (
    "'memory://', a directory's path, 'file:///path', or the URL of an object store such as "
    "'s3://bucket/prefix'"
)


class Kind(enum.Enum):
    """The kind of storage or source that a location names."""

    MEMORY = enum.auto()
    DIRECTORY = enum.auto()
    OBJECTS = enum.auto()


def parse_location(name: str, location: str | bytes | os.PathLike[str]) -> tuple[Kind, str]:
    """Return the kind of a location, and its text; for a directory, the path.

    Parameters
    ----------
    name : str
        The argument's name, for messages.
    location : str, bytes or os.PathLike

    Raises
    ------
    ValueError
        If it is empty, or a URL of any other kind.
    """
    text = os.fsdecode(location)
    if not text:
        raise ValueError(f"{name}: it is empty")
    scheme = _SCHEME.match(text)
    if scheme is None:
        return Kind.DIRECTORY, text
    if text == MEMORY:
        return Kind.MEMORY, text
    if scheme[1] == "file":
        url = urlsplit(text)
        if url.netloc in {"", "localhost"} and url.path and not url.query and not url.fragment:
            return Kind.DIRECTORY, unquote(url.path)
    if scheme[1].lower() in _OBJECT_STORES:
        return Kind.OBJECTS, text
    raise ValueError(f"{name}: {hide_password(text)!r} cannot be served; it must be {LOCATIONS}")


def hide_password(url: str) -> str:
    """Return the URL without its user name and password."""
    return re.sub(r"(?<=://)[^/]*@", "", url)
