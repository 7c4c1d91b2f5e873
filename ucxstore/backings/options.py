"""The options of a server that reads through to another store: checked, normalised."""

import os
import re
from dataclasses import dataclass
from typing import Any, Self

from ucxstore.config import check_timeout

# Bytes. Small beside the memory of a machine that serves a cluster.
DEFAULT_CACHE = 1 << 30

# Seconds. Less than a client's default timeout, so that it is told what has failed, and where.
DEFAULT_BACKING_TIMEOUT = 20.0

# Bytes. Some 40 ms at the speed of one connection to an object store: more than its latency, so
# that blocks cost little more than the whole; and a few inner chunks of usual sizes.
DEFAULT_BLOCK_SIZE = 4 << 20

# Below this, blocks cost more in bookkeeping and requests than in bytes.
_LEAST_BLOCK = 64 << 10

# Bytes. Enough for the 64 requests that are made at once, of chunks of usual sizes.
DEFAULT_WRITE_BUDGET = 256 << 20

_UNITS = {
    "": 1,
    "B": 1,
    **{f"{prefix}B": 1000**power for power, prefix in enumerate("kMGT", 1)},
    **{f"{prefix}iB": 1024**power for power, prefix in enumerate("KMGT", 1)},
    "KB": 1000,
}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")

# Above any memory, and far from where 64-bit sums overflow.
_MOST_BYTES = 1 << 50


@dataclass(frozen=True, slots=True, kw_only=True)
class BackingOptions:
    """How a server reads through to an object store, or another store of zarr's.

    Parameters
    ----------
    cache : int
        Bytes of values that are kept in memory.
    block_size : int
        Bytes of a block; larger objects than two are fetched and kept in blocks.
    freshness : float or None
        Seconds for which a value in the cache is believed; ``None``: for ever.
    timeout : float
        Seconds that a request to the store behind the server may take.
    write_budget : int
        Bytes of values that may be on their way to that store.
    cache_dir : str or None
        A directory for values that the memory has no room for, and ``cache_dir_size`` of them.
    cache_dir_size : int
        Bytes.
    """

    cache: int = DEFAULT_CACHE
    block_size: int = DEFAULT_BLOCK_SIZE
    freshness: float | None = None
    timeout: float = DEFAULT_BACKING_TIMEOUT
    write_budget: int = DEFAULT_WRITE_BUDGET
    cache_dir: str | None = None
    cache_dir_size: int = 0

    @classmethod
    def of(
        cls,
        *,
        cache: int | str | None = None,
        block_size: int | str | None = None,
        freshness: float | str | None = None,
        backing_timeout: float | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        cache_dir_size: int | str | None = None,
        write_budget: int | str | None = None,
    ) -> Self | None:
        """Check and normalise what a user gave; ``None`` where that is nothing.

        Raises
        ------
        ValueError, TypeError
            If an option is not usable; the message starts with its name.
        """
        given: dict[str, Any] = {}
        if cache is not None:
            given["cache"] = parse_size("cache", cache)
        if block_size is not None:
            given["block_size"] = size = parse_size("block_size", block_size)
            if size < _LEAST_BLOCK:
                raise ValueError(f"block_size: {block_size!r} is less than {_LEAST_BLOCK} bytes")
        if freshness is not None:
            given["freshness"] = parse_freshness(freshness)
        if backing_timeout is not None:
            given["timeout"] = check_timeout("backing_timeout", backing_timeout)
        if write_budget is not None:
            given["write_budget"] = parse_size("write_budget", write_budget)
        if cache_dir is not None:
            if cache_dir_size is None:
                raise ValueError("cache_dir_size: how many bytes the directory may take is needed")
            given["cache_dir"] = os.fspath(cache_dir)
            given["cache_dir_size"] = parse_size("cache_dir_size", cache_dir_size)
            if not given["cache_dir"]:
                raise ValueError("cache_dir: it is empty")
        elif cache_dir_size is not None:
            raise ValueError("cache_dir: a size for it is given, but no directory")
        return cls(**given) if given else None

    def arguments(self) -> list[str]:
        """Return the options as ``ucxstore serve`` takes them."""
        return [
            *("--cache", str(self.cache)),
            *("--block-size", str(self.block_size)),
            *("--freshness", "forever" if self.freshness is None else repr(self.freshness)),
            *("--backing-timeout", repr(self.timeout)),
            *("--write-budget", str(self.write_budget)),
            *([] if self.cache_dir is None else self._directory_arguments(self.cache_dir)),
        ]

    def _directory_arguments(self, cache_dir: str) -> list[str]:
        # In one with the option, as a path may start with a dash.
        return [f"--cache-dir={cache_dir}", "--cache-dir-size", str(self.cache_dir_size)]


def parse_freshness(value: float | str) -> float | None:
    """Return for how many seconds a cached value is believed; ``None``: for ever.

    Parameters
    ----------
    value : float or str
        Seconds, ``"forever"``, or ``"always"``: every get asks whether there is another value.

    Raises
    ------
    ValueError, TypeError
        If it is none of these.
    """
    if value == "forever":
        return None
    if value == "always":
        return 0.0
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            raise ValueError(
                f"freshness: {value!r} is neither 'forever', 'always', nor a number of seconds"
            ) from None
    return 0.0 if value == 0 and value is not False else check_timeout("freshness", value)


def parse_size(name: str, value: int | str) -> int:
    """Return a number of bytes, given as one or as text.

    Parameters
    ----------
    name : str
        The option's, for messages.
    value : int or str
        Such as ``4294967296``, ``"4GiB"``, ``"512 MB"``; k, M, G and T are powers of 1000, and of
        1024 with an i behind them.

    Raises
    ------
    ValueError, TypeError
        If it is none.
    """
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise TypeError(f"{name}: a number of bytes is needed, not {value!r}")
    if isinstance(value, str):
        match = _SIZE.fullmatch(value.strip())
        if match is None or match[2] not in _UNITS:
            raise ValueError(f"{name}: {value!r} is no size such as '4GiB', '512MB' or '1000'")
        size = int(float(match[1]) * _UNITS[match[2]])
    else:
        size = value
    if not 0 <= size <= _MOST_BYTES:
        raise ValueError(f"{name}: {value!r} is not between 0 and {_MOST_BYTES} bytes")
    return size
