"""Parse locations as users write them: memory, a directory, an object store, servers. No I/O."""

import enum
import os
import re
from urllib.parse import unquote, urlsplit

from ucxstore.base.address import SCHEME, Address
from ucxstore.base.keys import is_scratch

MEMORY = "memory://"

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")

# What is no URL, and hardly meant as a directory: "memory:", "s3:bucket", and what is left of a URL
# that was taken for a path.
_ALMOST = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)

# Of a URL, up to its user name and password; the third slash of file:/// begins a path.
_USER = re.compile(r"(:/{1,2}|(?<!file):/{3,})[^/]*@")

# The schemes that obstore opens.
_OBJECT_STORES = frozenset(
    {"s3", "s3a", "gs", "az", "adl", "azure", "abfs", "abfss", "http", "https"}
)

LOCATIONS = (
    "'memory://', a directory's path, 'file:///path', the URL of an object store such as "
    "'s3://bucket/prefix', or the address of other servers such as 'ucx://host:7400/prefix'"
)


class LocationKind(enum.Enum):
    """The kind of storage or source that a location names."""

    MEMORY = enum.auto()
    DIRECTORY = enum.auto()
    OBJECTS = enum.auto()
    SERVERS = enum.auto()


def parse_location(name: str, location: str | bytes | os.PathLike[str]) -> tuple[LocationKind, str]:
    """Return the kind of a location, and its text; for a directory, the path.

    Parameters
    ----------
    name : str
        The argument's name, for messages.
    location : str, bytes or os.PathLike

    Raises
    ------
    ValueError
        If it is empty, not UTF-8, a URL of any other kind, or begins like a URL without being one.
    """
    text = os.fsdecode(location)
    if not text:
        raise ValueError(f"{name}: it is empty")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name}: {hide_password(text)!r} is not UTF-8") from None
    scheme = _SCHEME.match(text)
    if scheme is None:
        _refuse_almost_a_url(name, text)
        return LocationKind.DIRECTORY, text
    if text == MEMORY:
        return LocationKind.MEMORY, text
    if scheme[1] == "file":
        url = urlsplit(text)
        if url.netloc in {"", "localhost"} and url.path and not url.query and not url.fragment:
            return LocationKind.DIRECTORY, unquote(url.path)
    if scheme[1].lower() in _OBJECT_STORES:
        return LocationKind.OBJECTS, text
    if text.startswith(SCHEME):
        return LocationKind.SERVERS, str(_address_of(name, text))
    raise ValueError(f"{name}: {hide_password(text)!r} cannot be served; it must be {LOCATIONS}")


def _address_of(name: str, text: str) -> Address:
    try:
        address = Address.parse(text)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    if is_scratch(address.prefix):
        raise ValueError(f"{name}: a scratch space ends with its owner, and cannot be served")
    return address


def _refuse_almost_a_url(name: str, text: str) -> None:
    almost = _ALMOST.fullmatch(text)
    if almost is None:
        return
    scheme, rest = almost[1].lower(), almost[2].lstrip("/")
    shown = text.removesuffix(rest) + hide_password(f"://{rest}")[3:]
    if scheme == "memory":
        meant = f"did you mean {MEMORY!r}? "
    elif scheme == "file":
        meant = f"did you mean {f'file:///{rest}'!r}? "
    elif scheme in _OBJECT_STORES or f"{scheme}://" == SCHEME:
        meant = f"did you mean {hide_password(f'{scheme}://{rest}')!r}? "
    else:
        meant = ""
    raise ValueError(
        f"{name}: {shown!r} looks like a URL but is not one; {meant}for a directory of that "
        f"name, write {f'./{shown}'!r} or its whole path"
    )


def hide_password(url: str) -> str:
    """Return the URL without its user name and password, also if it has too few slashes or more."""
    return _USER.sub(r"\1", url)
