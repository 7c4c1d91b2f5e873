"""The requests of the cases: what a client asks for, its memory, and whether the answer is right.

The oracle is a pattern that says for each byte of a value where it belongs.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import zarr
from zarr.buffer.cpu import NDBuffer
from zarr.codecs import ZstdCodec

from tests.adversity.deaths.cases import CHANGES, SETS, Kind
from tests.values import as_buffer
from ucxstore import UcxStore

type Bytes = npt.NDArray[np.uint8]

# The value that a server has before a case, and the one that a case writes.
OLD, NEW = 1, 2

COLUMNS = 500
MANY = 20
GAP = 4096  # bytes around what a call may write to
UNTOUCHED = 0xC5  # there before the call,
AFTER = 0x3A  # and what the caller has put there once the call has ended


def pattern(size: int, version: int) -> Bytes:
    """Return a value whose bytes are the same nowhere else, and in no other version."""
    words = np.arange(size // 8 + 1, dtype="<u8")
    words *= np.uint64(0x9E3779B97F4A7C15)
    words += np.uint64(version * 0xD1B54A32D192ED03 % 2**64)
    return words.view("u1")[:size].copy()


def name_of(kind: Kind, size: int) -> str:
    """Return the key, or the array's name, or the folder."""
    return f"{kind}-{size}"


def many_keys(kind: Kind, size: int) -> list[str]:
    return [f"{name_of(kind, size)}/{number}" for number in range(MANY)]


def first_key(kind: Kind, size: int) -> str:
    """Return the key of the first value that a set writes."""
    name = name_of(kind, size)
    return {Kind.SET_STRIDED: f"{name}/c/0/0", Kind.SET_MANY: f"{name}/0"}.get(kind, name)


def shape_of(size: int) -> tuple[int, int]:
    return size // COLUMNS, COLUMNS


class Memory:
    """Memory of a caller: what a call reads from or writes to, with gaps around and between."""

    def __init__(self, kind: Kind, size: int) -> None:
        self._whole: Bytes
        if kind in (Kind.GET_STRIDED, Kind.GET_ZSTD, Kind.SET_STRIDED):
            rows, columns = shape_of(size)
            self._whole = np.full((rows + 2, 2 * columns), UNTOUCHED, "u1")
            self.views = [self._whole[1:-1, columns // 2 : columns // 2 + columns]]
        else:
            count = MANY if kind in (Kind.GET_MANY, Kind.SET_MANY) else 1
            each = size // count
            self._whole = np.full(count * (each + GAP) + GAP, UNTOUCHED, "u1")
            begins = [GAP + number * (each + GAP) for number in range(count)]
            self.views = [self._whole[begin : begin + each] for begin in begins]
        self._gaps = np.ones(self._whole.shape, bool)
        inside = self._gaps.reshape(-1)
        for view in self.views:
            at = view.__array_interface__["data"][0] - self._whole.__array_interface__["data"][0]
            if view.ndim == 1:
                inside[at : at + view.size] = False
        if self.views[0].ndim == 2:
            columns = self.views[0].shape[1]
            self._gaps[1:-1, columns // 2 : columns // 2 + columns] = False

    def put(self, version: int) -> None:
        """Let the views have a value."""
        for number, view in enumerate(self.views):
            view[...] = pattern(view.size, version + 10 * number).reshape(view.shape)

    def has(self, version: int) -> bool:
        """Whether the views have it."""
        return all(
            np.array_equal(view, pattern(view.size, version + 10 * number).reshape(view.shape))
            for number, view in enumerate(self.views)
        )

    def gaps_are(self, byte: int) -> bool:
        return bool((self._whole[self._gaps] == byte).all())

    def fill(self, byte: int) -> None:
        self._whole[...] = byte

    def is_all(self, byte: int) -> bool:
        return bool((self._whole == byte).all())


def create(store: UcxStore, kind: Kind, size: int) -> None:
    """Give a server what a request needs, all of the old version."""
    name = name_of(kind, size)
    if kind in (Kind.GET_STRIDED, Kind.GET_ZSTD, Kind.SET_STRIDED):
        shape = shape_of(size)
        codec = ZstdCodec(level=0) if kind is Kind.GET_ZSTD else None
        array: Any = zarr.create_array(
            store, name=name, shape=shape, chunks=shape, dtype="u1", compressors=codec,
            overwrite=True,
        )  # fmt: skip
        array[...] = pattern(size, OLD)[: array.size].reshape(shape)
    elif kind in (Kind.GET_MANY, Kind.SET_MANY):
        for number, key in enumerate(many_keys(kind, size)):
            store.set_sync(key, as_buffer(pattern(size // MANY, OLD + 10 * number)))
    elif kind is Kind.LIST:
        for key in many_keys(kind, size):
            store.set_sync(key, as_buffer(b"listed"))
    else:
        store.set_sync(name, as_buffer(pattern(size, OLD)))


@dataclass
class Request:
    """A request that is ready to be made.

    Parameters
    ----------
    store : UcxStore
    kind : Kind
    size : int
    """

    store: UcxStore
    kind: Kind
    size: int
    memory: Memory = field(init=False)

    def __post_init__(self) -> None:
        self.memory = Memory(self.kind, self.size)
        self._name = name_of(self.kind, self.size)
        self._array: Any = None
        if self.kind in SETS:
            self.memory.put(NEW)

    def open(self) -> None:
        """Connect, and do all that comes before the request itself."""
        self.store.ping_sync()
        if self.kind in (Kind.GET_STRIDED, Kind.GET_ZSTD, Kind.SET_STRIDED):
            self._array = zarr.open_array(self.store, path=self._name)

    def make(self) -> bool:
        """Make the request; return whether its answer is right."""
        call: Callable[[], bool] = getattr(self, f"_{self.kind.replace('-', '_')}")
        return call()

    def _get(self) -> bool:
        [out] = self.memory.views
        return self.store.get_into_sync(self._name, out) == out.size and self.memory.has(OLD)

    def _get_many(self) -> bool:
        views = self.memory.views
        keys = many_keys(self.kind, self.size)
        sizes = self.store.get_many_into_sync(
            [(key, out, None) for key, out in zip(keys, views, strict=True)]
        )
        return sizes == [out.size for out in views] and self.memory.has(OLD)

    def _get_strided(self) -> bool:
        if self._array is None:
            self._array = zarr.open_array(self.store, path=self._name)
        into = NDBuffer.from_numpy_array(self.memory.views[0])
        self._array.get_basic_selection(slice(None), out=into)
        return self.memory.has(OLD)

    _get_zstd = _get_strided

    def _set(self) -> bool:
        self.store.set_sync(self._name, as_buffer(self.memory.views[0]))
        return True

    def _set_many(self) -> bool:
        keys = many_keys(self.kind, self.size)
        values = zip(keys, map(as_buffer, self.memory.views), strict=True)
        asyncio.run(self.store.set_many(values))
        return True

    def _set_strided(self) -> bool:
        if self._array is None:
            self._array = zarr.open_array(self.store, path=self._name)
        self._array[...] = self.memory.views[0]
        return True

    def _list(self) -> bool:
        async def listed() -> list[str]:
            return [key async for key in self.store.list_prefix(f"{self._name}/")]

        return sorted(asyncio.run(listed())) == sorted(many_keys(self.kind, self.size))

    def _delete(self) -> bool:
        self.store.delete_sync(self._name)
        return True

    def _size(self) -> bool:
        return asyncio.run(self.store.getsize(self._name)) == self.size


def what_is_wrong(store: UcxStore, kind: Kind, size: int, versions: Iterable[int]) -> str:
    """Read, by a fresh client, what a request was about; nothing is said if all is right.

    Parameters
    ----------
    versions : iterable of int
        Those that values may have: the new one only if a change was acknowledged, both if nobody
        knows. Zero stands for no value.
    """
    allowed = set(versions)
    problems = []
    for key, each, base in _values_of(kind, size):
        if key.endswith("/zarr-array"):
            found: Bytes | None = _array_values(store, key.removesuffix("/zarr-array"))
        else:
            value = store.get_sync(key)
            found = None if value is None else value.as_numpy_array()
        version = _version_of(found, each, base)
        if version not in allowed:
            problems.append(f"{key} has version {version}, not one of {sorted(allowed)}")
    return "; ".join(problems)


def _values_of(kind: Kind, size: int) -> Iterable[tuple[str, int, int]]:
    """Yield each key, its size, and what is added to its version."""
    name = name_of(kind, size)
    if kind in (Kind.GET_STRIDED, Kind.GET_ZSTD, Kind.SET_STRIDED):
        yield f"{name}/zarr-array", size - size % COLUMNS, 0
    elif kind in (Kind.GET_MANY, Kind.SET_MANY):
        for number, key in enumerate(many_keys(kind, size)):
            yield key, size // MANY, 10 * number
    elif kind is not Kind.LIST:
        yield name, size, 0


def _array_values(store: UcxStore, name: str) -> Bytes:
    return np.asarray(zarr.open_array(store, path=name)[...]).reshape(-1)


def _version_of(found: Bytes | None, size: int, base: int) -> int | None:
    """Return the version of a value: 0 for none, None for bytes that nobody wrote."""
    if found is None:
        return 0
    versions = (OLD, NEW)
    return next((v for v in versions if np.array_equal(found, pattern(size, v + base))), None)


def versions_after(kind: Kind, *, acknowledged: bool) -> set[int]:
    """Return the versions that values may have after a request."""
    if kind not in CHANGES:
        return {OLD}
    made = 0 if kind is Kind.DELETE else NEW
    return {made} if acknowledged else {OLD, made}


def restore(store: UcxStore, kind: Kind, size: int) -> None:
    """Write the old version again."""
    if kind not in CHANGES:
        return
    create(store, kind, size)
