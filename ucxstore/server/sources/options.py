"""The options of a server that reads through to another store: checked, normalised."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from ucxstore.options import check_timeout, parse_size

# Bytes. Small beside the memory of a machine that serves a cluster.
DEFAULT_CACHE = 1 << 30

# Seconds. Less than a client's default timeout, so that it is told what has failed, and where.
DEFAULT_SOURCE_TIMEOUT = 20.0

# Bytes. Some 40 ms at the speed of one connection to an object store: more than its latency, so
# that blocks cost little more than the whole; and a few inner chunks of usual sizes.
DEFAULT_BLOCK_SIZE = 4 << 20

# Below this, blocks cost more in bookkeeping and requests than in bytes.
_LEAST_BLOCK = 64 << 10


# Bytes. Enough for the 64 requests that are made at once, of chunks of usual sizes.
DEFAULT_WRITE_BUDGET = 256 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageOptions:
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
    storage_options : mapping
        How obstore opens a URL, beside what the environment says; may have credentials.
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
    timeout: float = DEFAULT_SOURCE_TIMEOUT
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
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
        source_timeout: float | None = None,
        storage_options: Mapping[str, str] | None = None,
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
        if source_timeout is not None:
            given["timeout"] = check_timeout("source_timeout", source_timeout)
        if storage_options is not None:
            given["storage_options"] = _check_texts("storage_options", storage_options)
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
        """Return the options as ``ucxstore serve`` takes them, but for `storage_options`."""
        return [
            *("--cache", str(self.cache)),
            *("--block-size", str(self.block_size)),
            *("--freshness", "forever" if self.freshness is None else repr(self.freshness)),
            *("--source-timeout", repr(self.timeout)),
            *("--write-budget", str(self.write_budget)),
            *([] if self.cache_dir is None else self._directory_arguments(self.cache_dir)),
        ]

    def _directory_arguments(self, cache_dir: str) -> list[str]:
        # In one with the option, as a path may start with a dash.
        return [f"--cache-dir={cache_dir}", "--cache-dir-size", str(self.cache_dir_size)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScratchOptions:
    """The scratch space that a server offers beside what it serves.

    Parameters
    ----------
    limit : int or None
        Bytes that all of it may take of memory; ``None``: any.
    """

    limit: int | None = None

    @classmethod
    def of(cls, scratch: str | None, scratch_limit: int | str | None) -> Self | None:
        """Check and normalise what a user gave; ``None`` where that is nothing.

        Raises
        ------
        ValueError, TypeError
            If an option is not usable; the message starts with its name.
        """
        if scratch not in {None, "memory://"}:
            raise ValueError(f"scratch: {scratch!r} is not 'memory://', which is where it can be")
        if scratch_limit is not None:
            return cls(limit=parse_size("scratch_limit", scratch_limit))
        return None if scratch is None else cls()

    def arguments(self) -> list[str]:
        """Return the options as ``ucxstore serve`` takes them."""
        limit = [] if self.limit is None else ["--scratch-limit", str(self.limit)]
        return ["--scratch", "memory://", *limit]


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


def _check_texts(name: str, values: Mapping[str, str]) -> dict[str, str]:
    found = dict(values)
    if not all(isinstance(each, str) for pair in found.items() for each in pair):
        raise TypeError(f"{name}: names and values must be text")  # values are not shown
    return found
