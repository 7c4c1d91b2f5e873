"""What a root given as text is: memory, a directory, or an object store by its URL. No I/O."""

import enum
import os
import re
from urllib.parse import unquote, urlsplit

MEMORY = "memory://"

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")

# What obstore opens.
_OBJECT_STORES = frozenset(
    {"s3", "s3a", "gs", "az", "adl", "azure", "abfs", "abfss", "http", "https"}
)

TEXTS = (
    "'memory://', a directory's path, 'file:///path', a URL of an object store such as "
    "'s3://bucket/prefix'"
)


class RootKind(enum.Enum):
    """Where the values of a root given as text are."""

    MEMORY = enum.auto()
    DIRECTORY = enum.auto()
    OBJECTS = enum.auto()


def parse_root(name: str, root: str | bytes | os.PathLike[str]) -> tuple[RootKind, str]:
    """Return what a root is, and what names it: for a directory, the path.

    Parameters
    ----------
    name : str
        The argument's, for messages.
    root : str, bytes or os.PathLike

    Raises
    ------
    ValueError
        If it is empty, or a URL of something else.
    """
    text = os.fsdecode(root)
    if not text:
        raise ValueError(f"{name}: it is empty")
    scheme = _SCHEME.match(text)
    if scheme is None:
        return RootKind.DIRECTORY, text
    if text == MEMORY:
        return RootKind.MEMORY, text
    if scheme[1] == "file":
        url = urlsplit(text)
        if url.netloc in {"", "localhost"} and url.path and not url.query and not url.fragment:
            return RootKind.DIRECTORY, unquote(url.path)
    if scheme[1].lower() in _OBJECT_STORES:
        return RootKind.OBJECTS, text
    raise ValueError(f"{name}: {text!r} is none of what can be served: {TEXTS}")


def hide_password(url: str) -> str:
    """Return the URL without a user's name and password."""
    return re.sub(r"(?<=://)[^/@]*@", "", url)
