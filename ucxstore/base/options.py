"""Check and normalise the options of clients, and those that servers share with them."""

import operator
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, Self, cast, get_args, runtime_checkable

from ucxstore.base.environment import check_variables
from ucxstore.base.secret import Secret

type Progress = Literal["blocking", "polling"]
type Local = Literal["auto", "ucx", "off"]
type Network = Literal["auto", "tcp", "ucx"]
type Map = bool | Literal["auto"]
type UcxValue = str | int | bool
type UcxOptions = tuple[tuple[str, str], ...]

# Seconds. The longest time that a request may go without progress, and that connecting may take.
DEFAULT_TIMEOUT = 30.0
DEFAULT_CONNECT_TIMEOUT = 30.0

# Bytes. Room for some hundred chunks of usual sizes, and little of a machine's memory.
DEFAULT_BUFFER_BUDGET = 256 << 20

# Seconds in a year: deadlines stay far from where 64-bit nanoseconds overflow.
MAX_TIMEOUT = 366 * 24 * 3600.0

_UCX_NAME = re.compile(r"[A-Z][A-Z0-9_]*")


_UNITS = {
    "": 1,
    "B": 1,
    **{f"{prefix}B": 1000**power for power, prefix in enumerate("kMGT", 1)},
    **{f"{prefix}iB": 1024**power for power, prefix in enumerate("KMGT", 1)},
    "KB": 1000,
}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")

# Nobody means so few bytes who writes a number alone.
_LEAST_BARE_BYTES = 64 << 10

# Above any memory, and far from where 64-bit sums overflow.
MOST_BYTES = 1 << 50


@runtime_checkable
class Reachable(Protocol):
    """A server that this process has started: a `Server` or a `ServerProcess`."""

    def _reached_by(self) -> tuple[str, Secret | None]: ...


def reached_by(server: Reachable) -> tuple[str, Secret | None]:
    """Return the address that clients reach a server by, and the secret that it has now."""
    return server._reached_by()


@dataclass(frozen=True, slots=True, kw_only=True)
class UcxConfig:
    """The settings of UCX. Equal ones can share a context and its progress thread.

    Parameters
    ----------
    progress : {"blocking", "polling"}
        Whether the progress thread sleeps when nothing happens, or polls (for machines with cores
        to spare).
    options : tuple of (str, str)
        UCX options by name without ``UCX_``, sorted. `of` makes it from a mapping.
    """

    progress: Progress = "blocking"
    options: UcxOptions = ()

    @classmethod
    def of(cls, progress: str = "blocking", options: Mapping[str, UcxValue] | None = None) -> Self:
        """Check and normalise what a user gave as ``progress=`` and ``ucx=``."""
        return cls(progress=check_progress(progress), options=normalize_ucx(options))

    @property
    def polling(self) -> bool:
        """Whether the progress thread polls."""
        return self.progress == "polling"


def without_tcp(config: UcxConfig) -> UcxConfig:
    """Return a configuration with which UCX listens at no TCP port."""
    return UcxConfig.of(config.progress, {**dict(config.options), "TLS": "^tcp"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """The options of a store, beside its address: see `UcxStore`.

    The constructor checks and normalises them; `of` also takes what it takes in another form.
    """

    timeout: float = DEFAULT_TIMEOUT
    connect_timeout: float = DEFAULT_CONNECT_TIMEOUT
    ucx: UcxConfig = UcxConfig()
    secret: Secret | None = None
    select_pipeline: bool | None = None
    strict: bool = False
    buffer_budget: int = DEFAULT_BUFFER_BUDGET
    local: Local = "auto"
    network: Network = "auto"
    map: Map = "auto"
    integrity: bool | None = None
    encrypt: bool | None = None

    def __post_init__(self) -> None:
        normal = {
            "timeout": check_timeout("timeout", self.timeout),
            "connect_timeout": check_timeout("connect_timeout", self.connect_timeout),
            "buffer_budget": parse_positive("buffer_budget", self.buffer_budget),
            "map": check_map(self.map),
            "integrity": _check_decision("integrity", self.integrity),
            "encrypt": _check_decision("encrypt", self.encrypt),
        }
        for name, value in normal.items():
            object.__setattr__(self, name, value)
        if self.encrypt and self.secret is None:
            raise ValueError("encrypt: it needs a secret, which the keys are made from")
        if self.encrypt and self.network == "ucx":
            raise ValueError(
                "network: 'ucx' and encrypt=True exclude one another, as UCX encrypts nothing; "
                "take network='tcp'"
            )

    @classmethod
    def of(
        cls,
        *,
        progress: str = "blocking",
        ucx: Mapping[str, UcxValue] | None = None,
        secret: str | bytes | Secret | None = None,
        local: str | None = None,
        network: str | None = None,
        **options: Any,
    ) -> Self:
        """Check and normalise what a user gave.

        Raises
        ------
        ValueError, TypeError
            If an option is not usable; the message starts with its name. Also if the environment
            has a variable that begins with ``UCXSTORE_``, and is none of ours.
        """
        check_variables(os.environ)
        return cls(
            ucx=UcxConfig.of(progress, ucx),
            secret=Secret.of(secret),
            local=check_local(local),
            network=check_network(network),
            **options,
        )


def check_timeout(name: str, value: float) -> float:
    """Return `value` as a float if it is a time to wait, in seconds."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name}: a number of seconds is needed, not {value!r}")
    if not 0 < value <= MAX_TIMEOUT:  # which NaN fails, too
        raise ValueError(f"{name}: {value!r} is not between 0 and {MAX_TIMEOUT:.0f} seconds")
    return float(value)


def check_nbytes(value: int | str) -> int:
    """Return `value` as the size of a value: any, since whether there is memory for it tells."""
    if isinstance(value, str):
        return parse_size("nbytes", value)
    size = _whole("nbytes", value)
    if size < 0:
        raise ValueError(f"nbytes: {value!r} is not a size of a value")
    return size


def parse_size(name: str, value: int | str) -> int:
    """Parse a number of bytes, given as a number or as text.

    Parameters
    ----------
    name : str
        The option's, for messages.
    value : int or str
        Such as ``4294967296``, ``"4GiB"``, ``"512 MB"``; kB, MB, GB and TB are powers of 1000, KiB,
        MiB, GiB and TiB of 1024. Text without a unit that is less than 64 KiB is refused, unless it
        is 0: the unit was forgotten.

    Raises
    ------
    ValueError, TypeError
        If it is not a size.
    """
    if isinstance(value, str):
        match = _SIZE.fullmatch(value.strip())
        if match is None or match[2] not in _UNITS:
            raise ValueError(f"{name}: {value!r} is not a size such as '4GiB' or '512MB'")
        size = int(float(match[1]) * _UNITS[match[2]])
        if not match[2] and 0 < size < _LEAST_BARE_BYTES:
            raise ValueError(
                f"{name}: {value!r} has no unit, and so is {size} bytes; did you mean "
                f"'{match[1]}GiB'? (Else write '{match[1]}B'.)"
            )
    else:
        size = _whole(name, value)
    if not 0 <= size <= MOST_BYTES:
        raise ValueError(f"{name}: {value!r} is not between 0 and {MOST_BYTES} bytes")
    return size


def parse_positive(name: str, value: int | str) -> int:
    """Do as `parse_size`, and refuse 0."""
    size = parse_size(name, value)
    if size < 1:
        raise ValueError(f"{name}: {value!r} is less than a byte")
    return size


def _whole(name: str, value: object) -> int:
    """Return `value` as an integer; numpy has some of its own."""
    try:
        if not isinstance(value, bool):
            return operator.index(value)  # type: ignore[arg-type]  # it tells
    except TypeError:
        pass
    raise TypeError(
        f"{name}: a number of bytes is needed, or a text such as '256MiB', not {value!r}"
    )


def check_local(value: str | None) -> Local:
    """Return `value` if it is a way to reach servers of the same host; ``None`` is the default.

    The default is that of ``UCXSTORE_LOCAL`` in the environment, else ``"auto"``.
    """
    return cast(Local, _check_way("local", value, "auto", get_args(Local.__value__)))


def check_network(value: str | None) -> Network:
    """Return `value` if it is a way between servers and clients; ``None`` is the default.

    The default is ``UCXSTORE_NETWORK`` in the environment, else ``"auto"``.
    """
    return cast(Network, _check_way("network", value, "auto", get_args(Network.__value__)))


def _check_way(option: str, value: str | None, default: str, choices: tuple[str, ...]) -> str:
    if value is not None:
        return _check_choice(option, value, choices)
    variable = f"UCXSTORE_{option.upper()}"
    return _check_choice(variable, os.environ.get(variable) or default, choices)


def check_map(value: object) -> Map:
    """Return `value` if it says whether values are mapped in place of being copied."""
    if value is True or value is False or value == "auto":
        return value
    raise ValueError(f"map: {value!r} is neither True, nor False, nor 'auto'")


def _check_decision(name: str, value: object) -> bool | None:
    """Return `value` if it is yes, no, or left open."""
    if value is None or isinstance(value, bool):
        return value
    raise ValueError(f"{name}: {value!r} is neither True, nor False, nor None")


def check_map_files(value: object) -> bool:
    """Return `value` if it says whether files may be mapped."""
    if isinstance(value, bool):
        return value
    raise ValueError(f"map_files: {value!r} is neither True nor False")


def check_progress(value: str) -> Progress:
    """Return `value` if it is a mode of the progress thread."""
    return cast(Progress, _check_choice("progress", value, get_args(Progress.__value__)))


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise ValueError(f"{name}: {value!r} is neither {' nor '.join(map(repr, choices))}")
    return value


def normalize_ucx(options: Mapping[str, UcxValue] | None) -> UcxOptions:
    """Normalise UCX options to sorted pairs of strings.

    Parameters
    ----------
    options : mapping or None
        By UCX's names, with ``UCX_`` or without; booleans become ``y`` and ``n``.

    Raises
    ------
    ValueError, TypeError
        If a name or a value is not valid, or an option is given twice.
    """
    if options is None:
        return ()
    if not isinstance(options, Mapping):
        raise TypeError(f"ucx: a mapping of UCX options is needed, not {options!r}")
    normal: dict[str, str] = {}
    for given, value in options.items():
        name = str(given).upper().removeprefix("UCX_")
        if not _UCX_NAME.fullmatch(name):
            raise ValueError(f"ucx: {given!r} is not the name of a UCX option")
        if name in normal:
            raise ValueError(f"ucx: {name} is given twice")
        normal[name] = _ucx_value(name, value)
    return tuple(sorted(normal.items()))


def _ucx_value(name: str, value: UcxValue) -> str:
    if isinstance(value, bool):
        return "y" if value else "n"
    if isinstance(value, int):
        return str(value)
    if not isinstance(value, str):
        raise TypeError(f"ucx: {name} takes a str, int or bool, not {value!r}")
    if not value.isprintable():
        raise ValueError(f"ucx: {name} has unprintable characters in its value, {value!r}")
    return value
