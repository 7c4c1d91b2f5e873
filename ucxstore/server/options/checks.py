"""Check and normalise the options of servers; each check takes an option's name and its value."""

import math
import os
from collections.abc import Mapping

from ucxstore.base.address import HostPort
from ucxstore.base.errors import AddressError
from ucxstore.base.options import (
    MOST_BYTES,
    Network,
    Progress,
    UcxValue,
    check_network,
    check_progress,
    check_timeout,
    normalize_ucx,
    parse_size,
)
from ucxstore.base.secret import Secret
from ucxstore.protocol.frames import MAX_SOCKET_BYTES
from ucxstore.server.options.when_full import WhenFull

MAX_THREADS = 256

# Of memory for values. With less, not even the pieces that it is cut into have room.
LEAST_MEMORY = 1 << 20

# Below this, bookkeeping and requests take longer than the bytes.
LEAST_BLOCK = 64 << 10

# Of a directory, from the least to the most.
DURABILITIES = ("none", "atomic", "fsync")


def parse_bind(name: str, bind: str | HostPort) -> HostPort:
    """Parse the ``host:port`` to listen at; port 0 takes any free port."""
    if isinstance(bind, HostPort):
        return bind
    try:
        return HostPort.parse(bind)
    except AddressError as error:
        raise AddressError(f"{name}: {error}") from None


def check_whole(name: str, value: int, *, least: int, most: float = math.inf) -> int:
    """Check a whole number."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name}: a number is needed, not {value!r}")
    if not least <= value <= most:
        wrong = f"less than {least}" if most == math.inf else f"not between {least} and {most}"
        raise ValueError(f"{name}: {value} is {wrong}")
    return value


def check_flag(name: str, value: bool) -> bool:
    """Check a flag."""
    if not isinstance(value, bool):
        raise TypeError(f"{name}: True or False is needed, not {value!r}")
    return value


def check_size(name: str, value: int | str, *, least: int) -> int:
    """Parse a size that must not be too small."""
    size = parse_size(name, value)
    if size < least:
        raise ValueError(f"{name}: {value!r} is less than {least} bytes")
    return size


def check_freshness(name: str, value: float | str) -> float:
    """Parse the time for which a value is believed; infinity for ever."""
    if value in {"forever", math.inf}:
        return math.inf
    if value == "always":
        return 0.0
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            raise ValueError(
                f"{name}: {value!r} is neither 'forever', 'always', nor a number of seconds"
            ) from None
    return check_grace(name, value)


def check_texts(name: str, values: Mapping[str, str]) -> dict[str, str]:
    """Check a table of texts."""
    found = dict(values)
    if not all(isinstance(each, str) for pair in found.items() for each in pair):
        raise TypeError(f"{name}: names and values must be text")  # without the values: secrets
    return found


def check_scratch_limit(name: str, value: int | str) -> int:
    """Parse the memory for scratch spaces; "unlimited" is more than any."""
    return MOST_BYTES if value == "unlimited" else parse_size(name, value)


def check_directory(name: str, value: str | os.PathLike[str]) -> str:
    """Return a directory's path as text."""
    path = os.fspath(value)
    if not path:
        raise ValueError(f"{name}: it is empty")
    return path


def check_polling(name: str, value: str) -> Progress:
    """Check whether threads sleep or poll."""
    return check_progress(value)


def check_way(name: str, value: str) -> Network:
    """Check what clients of other hosts may use."""
    return check_network(value)


def check_ucx(name: str, value: Mapping[str, UcxValue] | None) -> dict[str, str]:
    """Normalise options of UCX."""
    return dict(normalize_ucx(value))


def check_secret(name: str, value: str | bytes | Secret) -> Secret | None:
    """Return a secret."""
    return Secret.of(value)


def check_durability(name: str, value: str) -> str:
    """Check what of a directory survives a crash."""
    if value not in DURABILITIES:
        raise ValueError(f"{name}: {value!r} is none of {', '.join(map(repr, DURABILITIES))}")
    return value


def check_when_full(name: str, value: str) -> str:
    """Check what is done with values that have no room."""
    WhenFull.parse(name, value)
    return value


def check_socket(name: str, value: str | os.PathLike[str]) -> str:
    """Return the path of a Unix socket as text."""
    path = os.fspath(value)
    if not 0 < len(os.fsencode(path)) <= MAX_SOCKET_BYTES:
        raise ValueError(f"{name}: the path must have 1 to {MAX_SOCKET_BYTES} bytes")
    return path


def check_grace(name: str, value: float) -> float:
    """Check a time that may be 0."""
    return 0.0 if value == 0 and value is not False else check_timeout(name, value)


def check_ports(name: str, value: str | tuple[int, int]) -> tuple[int, int]:
    """Parse a range of ports, such as ``"7500-7599"``."""
    first, last = value if isinstance(value, tuple) else _parse_ports(name, value)
    if not 1 <= first <= last <= 65535:
        raise ValueError(f"{name}: {first}-{last} is not a range of ports such as '7500-7599'")
    return first, last


def _parse_ports(name: str, value: object) -> tuple[int, int]:
    first, dash, last = value.partition("-") if isinstance(value, str) else ("", "", "")
    last = last if dash else first
    if not (first.strip().isdecimal() and last.strip().isdecimal()):
        raise ValueError(f"{name}: {value!r} is not a range of ports such as '7500-7599'")
    return int(first), int(last)
