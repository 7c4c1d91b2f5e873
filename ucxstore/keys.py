"""Check keys before they are sent.

A key is a relative path in a directory storage, so whatever could leave the root, or would mean
the same file as another key, is refused before it is sent. The server checks again.
"""

from ucxstore.errors import InvalidKeyError

# In UTF-8. Far above any key of zarr's, and it keeps a request's header small enough to be sent
# eagerly. The native core's MAX_KEY_BYTES is the same.
MAX_KEY_BYTES = 1024

# Before the name of a scratch space, in all keys that are in one, at any server.
SCRATCH_FOLDER = "__ucxscratch__/"

# Before the notes that clients leave of incarnations of servers: see `ucxstore.cluster.notes`.
STARTS_FOLDER = "__ucxstarts__/"

RESERVED = SCRATCH_FOLDER, STARTS_FOLDER


def is_scratch(prefix: str) -> bool:
    """Tell whether keys under a prefix are in scratch space."""
    return f"{prefix}/".startswith(SCRATCH_FOLDER)


def check_key(key: str) -> None:
    """Refuse a key that no server takes.

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
    """Refuse a key that begins as those in `RESERVED`, but for one of a store in scratch space.

    Raises
    ------
    InvalidKeyError
        If the key is refused.
    """
    if key.startswith(STARTS_FOLDER):
        raise InvalidKeyError(f"{key!r}: clients leave notes there, and no values")
    if not in_scratch:
        # Its keys are each one server's own, also where the store's others are not.
        raise InvalidKeyError(f"{key!r}: a scratch space is used by a store over its prefix")


def find_problem(path: str) -> str | None:
    """Say why `path` can be no key, or ``None`` if it can."""
    if not path:
        return "it is empty"
    if path.startswith("/"):
        return "it starts with '/'"
    if path.endswith("/"):
        return "it ends with '/'"
    if "\0" in path:
        return "it contains a NUL"
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
