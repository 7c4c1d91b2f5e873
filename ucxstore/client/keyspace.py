"""`Keyspace`: the keys of a store at its servers, and requests for them, checked: no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ucxstore.base.keys import SCRATCH_FOLDER, check_key, check_reserved, is_scratch
from ucxstore.client import requests
from ucxstore.client.byte_ranges import NativeRange, to_native
from ucxstore.client.memory import readable_view, writable_view
from ucxstore.client.requests import Found, Request

if TYPE_CHECKING:
    from zarr.abc.store import ByteRequest

    from ucxstore._core import Buffer as PlainBuffer
    from ucxstore.base.zarr_compat import Buffer

type Into = tuple[str, object, ByteRequest | None]
"""A key, where its value goes, and the part of it that is wanted."""


class Keyspace:
    """The keys below a prefix.

    Parameters
    ----------
    prefix : str
        As in the store's address.
    store : str
        What the store's class is called, for errors.

    Attributes
    ----------
    prefix : str
        The prefix of every key at the servers: empty, or with a ``/`` at its end.
    in_scratch : bool
        Whether these are keys of a scratch space.
    """

    def __init__(self, prefix: str, store: str) -> None:
        self.prefix = f"{prefix}/" if prefix else ""
        self.in_scratch = is_scratch(prefix)
        self._store = store

    def full_key(self, key: str) -> str:
        """Return the key as the server knows it.

        Raises
        ------
        InvalidKeyError
            If no store takes the key, or this one does not.
        """
        full = self.prefix + key
        check_key(full)
        if full.startswith(SCRATCH_FOLDER):
            check_reserved(full, in_scratch=self.in_scratch)
        return full

    def beginning(self, prefix: str) -> str | None:
        """Return how keys begin at the servers that begin with `prefix`; ``None`` if none can.

        None starts with "/", which zarr asks for.
        """
        *folders, _ = prefix.split("/")
        if "\0" in prefix or any(part in {"", ".", ".."} for part in folders):
            return None
        return self.prefix + prefix

    def folder(self, path: str) -> str | None:
        """Do as `beginning` for the keys in a folder."""
        return self.beginning(path if not path or path.endswith("/") else f"{path}/")

    # ---- requests ----

    def get(
        self, keys: Sequence[str], ranges: Sequence[Sequence[NativeRange]]
    ) -> Request[list[Found | None]]:
        """Read values, or ranges of them: see `requests.get`."""
        return requests.get([self.full_key(key) for key in keys], ranges)

    def find(
        self, key: str, byte_range: ByteRequest, version: int | None
    ) -> Request[list[Found | None]]:
        """Read a part of a value, if that has a version; ``None`` for any."""
        versions = None if version is None else [version]
        return requests.get([self.full_key(key)], [to_native(byte_range)], versions)

    def get_into(self, wanted: Iterable[Into]) -> Request[list[int | None]]:
        """Read values into memory of the caller's.

        Raises
        ------
        TypeError, ValueError
            If an out is read-only, no memory, on a device, or overlaps itself.
        """
        keys, outs, ranges = [], [], []
        for key, out, byte_range in wanted:
            keys.append(self.full_key(key))
            outs.append(out)
            ranges.append(byte_range)
        if not any(ranges):
            buffers = _plain(outs)
            if buffers is not None:
                return requests.get_into_buffers(keys, buffers)
        return requests.get_into(
            keys, [to_native(one) for one in ranges], [writable_view(out) for out in outs]
        )

    def set(
        self, pairs: Sequence[tuple[str, Buffer]], *, if_absent: bool = False
    ) -> Request[list[bool]]:
        """Write values; with `if_absent`, those whose keys are missing.

        Raises
        ------
        TypeError
            If one of them is no buffer of zarr's.
        """
        from ucxstore.base.zarr_compat import Buffer  # who has one has imported zarr

        full = [self.full_key(key) for key, _ in pairs]
        for _, value in pairs:
            if not isinstance(value, Buffer):
                raise TypeError(
                    f"{self._store}.set(): `value` must be a Buffer instance. "
                    f"Got an instance of {type(value)} instead."
                )
        values = [readable_view(value.as_numpy_array()) for _, value in pairs]
        return requests.add(full, values) if if_absent else requests.set(full, values)

    def delete(self, keys: Sequence[str]) -> Request[None]:
        """Delete keys, missing ones too."""
        return requests.delete([self.full_key(key) for key in keys])


def _plain(outs: Sequence[object]) -> list[PlainBuffer] | None:
    """Return memory of plain bytes; ``None`` where one is more than that, or none at all."""
    from ucxstore.base.native import core  # loaded once something is asked

    buffers = []
    for out in outs:
        buffer = core.Buffer.of(out)
        if buffer is None:
            return None
        buffers.append(buffer)
    return buffers
