"""Check keys before they are sent.

A key is a relative path in a directory storage. So a key that could leave the directory, or mean
the same file as another key, is refused before it is sent. The server checks again.
"""

import re

from ucxstore.base.errors import InvalidKeyError

# In UTF-8. Far above any key of zarr's, and small enough for the header of a request to be sent
# eagerly. The native core's MAX_KEY_BYTES is the same.
MAX_KEY_BYTES = 1024

# The prefix of all keys in scratch spaces. The name of the space follows.
SCRATCH_FOLDER = "__ucxscratch__/"

# The folder of the names of decoded values, as the native core has it. The digest of a recipe
# follows, then the bytes of the stored value, then its key.
DECODED_FOLDER = "__ucxdecoded__/"

# What is shown of that name: enough to tell spaces apart, as in the counters of servers.
_SPACE = re.compile(rf"({SCRATCH_FOLDER}\w{{8}})\w+")

# The names of zarr's metadata, in all formats and consolidated. The native core has the same.
METADATA_NAMES = frozenset({"zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata"})

# Beneath this, servers keep what is theirs in a storage: it has no keys.
RESERVED_FOLDER = ".ucxstore/"


def is_metadata(key: str) -> bool:
    """Tell whether a key is of metadata: it describes an array or a group."""
    return key.rpartition("/")[2] in METADATA_NAMES


def is_scratch(prefix: str) -> bool:
    """Tell whether keys under a prefix are in a scratch space."""
    return f"{prefix}/".startswith(SCRATCH_FOLDER)


def stored_key(key: str) -> str:
    """Return the key of the stored value, where a key is the name of a decoded one."""
    if not key.startswith(DECODED_FOLDER):
        return key
    return key.removeprefix(DECODED_FOLDER).split("/", 2)[-1]


def shorten_space(text: str) -> str:
    """Shorten the names of scratch spaces, for reprs and messages: who knows one can use it."""
    return _SPACE.sub(r"\1…", text)


def check_key(key: str) -> None:
    """Refuse a key that no server accepts.

    Parameters
    ----------
    key : str
        The whole key, a store's prefix included.

    Raises
    ------
    InvalidKeyError
        If the key is empty, starts or ends with ``/``, has an empty, ``.`` or ``..`` segment,
        holds a NUL, cannot be encoded as UTF-8, or takes more than `MAX_KEY_BYTES` bytes.
    """
    # Runs once a chunk: a key like "c/10/3" passes here, and only odd ones are looked at closely.
    if (
        key
        and len(key) <= MAX_KEY_BYTES
        and key.isascii()
        and key[0] not in "/."
        and key[-1] != "/"
        and "//" not in key
        and "/." not in key
        and "\0" not in key
    ):
        return
    problem = find_problem(key)
    if problem is not None:
        raise InvalidKeyError(f"invalid key {_shorten(key)}: {problem}")


def check_reserved(key: str, *, in_scratch: bool) -> None:
    """Refuse a key of a scratch space, except in a store over it.

    Parameters
    ----------
    key : str
        A key that starts with `SCRATCH_FOLDER`.
    in_scratch : bool
        Whether the store is over a scratch space.

    Raises
    ------
    InvalidKeyError
        If the key is refused.
    """
    if not in_scratch:
        # A cluster whose servers share values would look for it at servers that do not have it.
        raise InvalidKeyError(f"{key!r}: only the stores of a scratch space can use its keys")


def is_reserved(path: str) -> bool:
    """Tell whether a path is in the folder that servers keep for themselves."""
    return f"{path}/".startswith(RESERVED_FOLDER)


def find_problem(path: str) -> str | None:
    """Return why `path` is not a valid key, or ``None`` if it is one."""
    if not path:
        return "it is empty"
    if path.startswith("/"):
        return "it starts with '/'"
    if path.endswith("/"):
        return "it ends with '/'"
    if "\0" in path:
        return "it contains a NUL"
    if is_reserved(path):
        return f"{RESERVED_FOLDER} is reserved for servers"
    for segment in path.split("/"):
        if not segment:
            return "it has an empty segment ('//')"
        if segment in {".", ".."}:
            return f"it has a {segment!r} segment"
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        return "it has no UTF-8 encoding (a lone surrogate)"
    if size > MAX_KEY_BYTES:
        return f"it takes {size} bytes in UTF-8, and {MAX_KEY_BYTES} are allowed"
    return None


def _shorten(key: str) -> str:
    return repr(key) if len(key) <= 80 else f"{key[:77]!r}..."
