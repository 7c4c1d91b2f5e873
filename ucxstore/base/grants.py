"""Grants: secrets that open a part of what the secret opens that they were made from.

A grant is a list of caveats, each of which takes something away, and the key at the end of a chain
that begins with the secret (Birgisson et al., "Macaroons", 2014)::

    key 0 = HMAC-SHA256(secret, "ucxstore grant")
    key n = HMAC-SHA256(key n-1, "ucxstore caveat" + caveat n)

Whoever has the secret, as a server does, makes the key of any list of caveats. Whoever has a grant
makes those of longer lists alone: from a key, the one before it cannot be found. So a server keeps
no list of grants, and who has one can narrow it and pass it on.

A caveat is its kind (u8), the length of its body (u16), and the body:

1. a prefix, relative to that of the caveats before it, in UTF-8: "run-17/", "a/" opens "run-17/a/";
2. nothing may be changed; no body;
3. the end, in seconds since 1970 (u64);
4. of an operator: operates the server, and opens no values; no body. It is the first caveat, and
   only an end may follow: so nobody can add it to a grant that opens less than everything.

As text, which takes the place of a secret's, a grant is ``ucxgrant1.`` and the key and its caveats
in URL-safe base64. Everything is little-endian.
"""

import base64
import binascii
import enum
import hmac
import math
import re
import struct
import time
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from ucxstore.base.keys import MAX_KEY_BYTES, find_problem

# What `expires` may be: "8h", seconds, or a point in time with a time zone.
type Expiry = str | float | timedelta | datetime

MAX_CAVEATS_BYTES = 2048

_MAGIC = b"ucxgrant1."
_KEY_BYTES = 32  # SHA-256
_FIRST_LABEL = b"ucxstore grant"
_CAVEAT_LABEL = b"ucxstore caveat"

_HEAD = struct.Struct("<BH")
_TIME = struct.Struct("<Q")
_PREFIX, _READ_ONLY, _EXPIRES, _OPERATOR = 1, 2, 3, 4

_LAST_SECOND = 253402300799  # of the year 9999: later ones cannot be written as a date

_LIFETIME = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw]?)")
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


class Role(enum.IntEnum):
    """What a client may do besides what it may do to values. The core has the same numbers."""

    CLIENT = 0  # nothing
    OPERATOR = 1  # operates the server, and opens no values
    OWNER = 2  # operates the server, too


class Bounds(NamedTuple):
    """What a grant opens.

    Parameters
    ----------
    prefix : str
        What all keys begin with; it ends in ``/``, or is empty for all keys.
    read_only : bool
        Whether nothing may be changed.
    expires : int or None
        When it ends, in seconds since 1970.
    role : Role
        Whether it is an operator's. A server makes its owners of clients without a grant.
    """

    prefix: str = ""
    read_only: bool = False
    expires: int | None = None
    role: Role = Role.CLIENT

    @property
    def opens_all(self) -> bool:
        """Whether all values are open, for reading and writing, if perhaps not for ever."""
        return not self.prefix and not self.read_only and self.role is not Role.OPERATOR

    def have_expired(self) -> bool:
        """Tell whether the end has come, by this machine's clock."""
        return self.expires is not None and time.time() >= self.expires

    def __str__(self) -> str:
        what = "requests of operators" if self.role is Role.OPERATOR else "everything"
        parts = [repr(self.prefix) if self.prefix else what]
        if self.read_only:
            parts.append("read-only")
        if self.expires is not None:
            parts.append(f"until {utc_text(self.expires)}")
        return ", ".join(parts)


ALL = Bounds()


def utc_text(seconds: float) -> str:
    """Write a point in time, given in seconds since 1970: ``"2026-11-27 20:03:31 UTC"``."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"


class Credentials(NamedTuple):
    """What a client proves that it has, and what it says of that in the clear.

    Parameters
    ----------
    key : bytes
        The key of its MACs: the secret itself, or the key of a grant.
    caveats : bytes
        Those of the grant; none for the secret itself.
    """

    key: bytes
    caveats: bytes = b""

    def __repr__(self) -> str:
        return f"Credentials(***, {self.caveats!r})"


def is_grant(text: bytes) -> bool:
    """Tell whether the text of a secret is a grant's."""
    return text.startswith(_MAGIC)


def credentials_of(text: bytes) -> Credentials:
    """Read the text of a secret or a grant.

    Raises
    ------
    ValueError
        If it is a grant's, and damaged.
    """
    if not is_grant(text):
        return Credentials(text)
    try:
        data = base64.b64decode(text[len(_MAGIC) :], altchars=b"-_", validate=True)
    except binascii.Error:
        raise ValueError("is a damaged grant") from None
    credentials = Credentials(data[:_KEY_BYTES], data[_KEY_BYTES:])
    if len(credentials.key) != _KEY_BYTES or not split(credentials.caveats):
        raise ValueError("is a damaged grant")
    return credentials


def text_of(credentials: Credentials) -> bytes:
    """Write a grant as text."""
    return _MAGIC + base64.urlsafe_b64encode(credentials.key + credentials.caveats)


def key_of(secret: bytes, caveats: bytes) -> bytes:
    """Return the key at the end of the chain, as a server finds it; the secret without caveats.

    Raises
    ------
    ValueError
        If these are no caveats.
    """
    each = split(caveats)
    return _extend(_first_key(secret), each) if each else secret


def narrow(text: bytes, caveats: bytes) -> bytes:
    """Return the text of the grant that has these caveats, too.

    Raises
    ------
    ValueError
        If it would have too many of them.
    """
    key, before = credentials_of(text)
    more = split(caveats)
    if not more:
        return text
    if len(before) + len(caveats) > MAX_CAVEATS_BYTES:
        raise ValueError(f"grant: its caveats would take more than {MAX_CAVEATS_BYTES} bytes")
    bounds_of(before + caveats)  # raises where the prefix is too long
    first = key if before else _first_key(key)
    return text_of(Credentials(_extend(first, more), before + caveats))


def continue_to(text: bytes, caveats: bytes) -> bytes:
    """Return the text of the grant that has just these caveats, made of one with the first of them.

    Raises
    ------
    ValueError
        If `text` has other caveats than these begin with, and so no such grant can be made of it.
    """
    before, wanted = split(credentials_of(text).caveats), split(caveats)
    if wanted[: len(before)] != before:
        raise ValueError(
            f"opens {describe(b''.join(before))}, which is not on the way to the grant"
        )
    return narrow(text, b"".join(wanted[len(before) :]))


def caveats_of(
    prefix: str | None,
    *,
    read_only: bool = False,
    expires: Expiry | None = None,
    operator: bool = False,
) -> bytes:
    """Write what a grant is to be narrowed to.

    Parameters
    ----------
    prefix : str or None
        Relative to what is open so far; ``None`` for all of that. It is taken as a folder:
        ``"run-1"`` is ``"run-1/"``, and does not open ``"run-17/"``.
    read_only : bool
    expires : str, float, timedelta, datetime or None
        A lifetime: seconds, or text such as ``"90s"``, ``"30m"``, ``"8h"``, ``"7d"``; or a point in
        time.
    operator : bool
        For an operator of the server, who opens no values.

    Raises
    ------
    ValueError, TypeError
        If one of them cannot be used, or nothing is narrowed.
    """
    caveats = _caveat(_OPERATOR) if operator else b""
    if prefix is not None:
        caveats += _caveat(_PREFIX, _as_folder(prefix).encode())
    if read_only:
        caveats += _caveat(_READ_ONLY)
    if expires is not None:
        caveats += _caveat(_EXPIRES, _TIME.pack(_end_of(expires)))
    if not caveats:
        raise ValueError(
            "grant: give a prefix, read_only, expires or operator: without them it opens all"
        )
    return caveats


def bounds_of(caveats: bytes) -> Bounds:
    """Return what a grant with these caveats opens.

    Raises
    ------
    ValueError
        If these are no caveats, or one is of an unknown kind, which may forbid anything, or does
        not go with those before it.
    """
    bounds = ALL
    for number, caveat in enumerate(split(caveats)):
        kind, body = caveat[0], caveat[_HEAD.size :]
        if bounds.role is Role.OPERATOR and kind in (_PREFIX, _READ_ONLY):
            raise ValueError("the grant is an operator's, which opens no values to be narrowed")
        if kind == _PREFIX:
            bounds = bounds._replace(prefix=bounds.prefix + _read_prefix(body))
        elif kind == _READ_ONLY and not body:
            bounds = bounds._replace(read_only=True)
        elif kind == _EXPIRES and len(body) == _TIME.size:
            (end,) = _TIME.unpack(body)
            ends = [end] if bounds.expires is None else [end, bounds.expires]
            bounds = bounds._replace(expires=min(*ends, _LAST_SECOND))
        elif kind == _OPERATOR and not body:
            if number > 0:
                raise ValueError("only the secret itself makes the grant of an operator")
            bounds = bounds._replace(role=Role.OPERATOR)
        else:
            raise ValueError(f"the grant has a caveat of an unknown kind, {kind}")
    if len(bounds.prefix.encode()) > MAX_KEY_BYTES:
        raise ValueError(f"the grant's prefix is longer than {MAX_KEY_BYTES} bytes")
    return bounds


def describe(caveats: bytes) -> str:
    """Say what a grant opens, for a message; also where that cannot be known here."""
    try:
        return str(bounds_of(caveats))
    except ValueError as error:
        return str(error)


def split(caveats: bytes) -> tuple[bytes, ...]:
    """Take caveats apart.

    Raises
    ------
    ValueError
        If they are cut, or larger than they may be.
    """
    if len(caveats) > MAX_CAVEATS_BYTES:
        raise ValueError(f"the caveats of the grant take more than {MAX_CAVEATS_BYTES} bytes")
    each = []
    rest = caveats
    while rest:
        if len(rest) < _HEAD.size:
            raise ValueError("the caveats of the grant are cut")
        _, length = _HEAD.unpack_from(rest)
        end = _HEAD.size + length
        if len(rest) < end:
            raise ValueError("the caveats of the grant are cut")
        each.append(rest[:end])
        rest = rest[end:]
    return tuple(each)


def _first_key(secret: bytes) -> bytes:
    return hmac.digest(secret, _FIRST_LABEL, "sha256")


def _extend(key: bytes, caveats: tuple[bytes, ...]) -> bytes:
    for caveat in caveats:
        key = hmac.digest(key, _CAVEAT_LABEL + caveat, "sha256")
    return key


def _caveat(kind: int, body: bytes = b"") -> bytes:
    return _HEAD.pack(kind, len(body)) + body


def _as_folder(prefix: str) -> str:
    """Return the prefix with one slash at its end."""
    if not isinstance(prefix, str):
        raise TypeError(f"prefix: text is needed, not {prefix!r}")
    folder = prefix.removesuffix("/")
    problem = find_problem(folder)  # as a key's: "a/../b", "/a", "a//b", "" lead elsewhere
    if problem is not None:
        raise ValueError(f"prefix: {prefix!r}: {problem}")
    return f"{folder}/"


def _read_prefix(body: bytes) -> str:
    """Read a prefix that somebody else may have written."""
    try:
        prefix = body.decode()
    except UnicodeDecodeError:
        raise ValueError("the grant has a prefix that is not UTF-8") from None
    if not prefix.endswith("/") or find_problem(prefix[:-1]) is not None:
        raise ValueError(f"the grant has a prefix that is not a folder, {prefix!r}")
    return prefix


def _end_of(expires: Expiry) -> int:
    now = time.time()
    if isinstance(expires, datetime):
        if expires.tzinfo is None:
            raise ValueError(f"expires: {expires} has no time zone")
        end = expires.timestamp()
    else:
        end = now + _lifetime(expires)
    if not now < end <= _LAST_SECOND:
        raise ValueError(f"expires: {expires} is in the past, or too far in the future")
    return math.ceil(end)


def _lifetime(expires: str | float | timedelta) -> float:
    if isinstance(expires, timedelta):
        return expires.total_seconds()
    if isinstance(expires, str):
        match = _LIFETIME.fullmatch(expires.strip())
        if match is None:
            raise ValueError(f"expires: {expires!r} is not a time such as '90s', '30m' or '7d'")
        return float(match[1]) * _SECONDS[match[2]]
    if isinstance(expires, bool) or not isinstance(expires, int | float):
        raise TypeError(f"expires: a time is needed, not {expires!r}")
    if not math.isfinite(expires):
        raise ValueError(f"expires: {expires} is not finite")
    return float(expires)
