"""Describe the arrays and groups of a store, and which way their chunks go."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

import zarr

from ucxstore.base.keys import METADATA_NAMES
from ucxstore.base.zarr_compat import ArrayV3Metadata, sync
from ucxstore.codecs.chain import Chain
from ucxstore.codecs.classify import ChunkKind, Sharded
from ucxstore.codecs.recipe import fault_of
from ucxstore.pipeline import kind_of
from ucxstore.pipeline.access import access_to
from ucxstore.pipeline.array_chunks import spec_of
from ucxstore.stores.store import UcxStore

type Way = Literal["DIRECT", "DECODED", "DECODE", "ENCODE", "FALLBACK"]


@dataclass(frozen=True, slots=True)
class ArrayDescription:
    """An array.

    Attributes
    ----------
    name : str
        Its last part; empty for the root.
    shape, chunks : tuple of int
    shards : tuple of int or None
        The shape of shards; ``None`` without them.
    dtype : str
    codecs : tuple of str
        Their names, in the order of encoding; of shards, those of their inner chunks.
    zarr_format : int
    nbytes : int
        The bytes of all items, without codecs.
    stored_bytes, stored_values : int
        The values that are stored for its chunks or shards, and their bytes.
    most_values : int
        How many there are if none is missing.
    read, write : {"DIRECT", "DECODED", "DECODE", "ENCODE", "FALLBACK"}
        Which way whole chunks go.
    reason : str
        Why they are left to zarr's own pipeline, or are not decoded by servers that decode; empty
        unless they are.
    """

    name: str
    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    shards: tuple[int, ...] | None
    dtype: str
    codecs: tuple[str, ...]
    zarr_format: int
    nbytes: int
    stored_bytes: int
    stored_values: int
    most_values: int
    read: Way
    write: Way
    reason: str


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group.

    Attributes
    ----------
    name : str
        Its last part; empty for the root.
    zarr_format : int
    members : tuple of ArrayDescription or GroupDescription
        Sorted by name.
    """

    name: str
    zarr_format: int
    members: "tuple[ArrayDescription | GroupDescription, ...]"


type Description = ArrayDescription | GroupDescription


def describe(store: UcxStore) -> Description:
    """Describe the array or group at the root of a store, with all that is in it.

    Raises
    ------
    FileNotFoundError
        If there is neither.
    """
    try:
        found = zarr.open(store=store, mode="r")
    except (FileNotFoundError, KeyError) as error:
        raise FileNotFoundError(f"{store}: there is no array or group") from error
    return _describe(found, "", store)


def _describe(found: Any, name: str, store: UcxStore) -> Description:
    if isinstance(found, zarr.Array):
        return _describe_array(found, name, store)
    members = tuple(
        _describe(member, key, store) for key, member in sorted(found.members(max_depth=0))
    )
    return GroupDescription(name, found.metadata.zarr_format, members)


def _describe_array(array: Any, name: str, store: UcxStore) -> ArrayDescription:
    kind = kind_of(array.async_array)
    read, write, reason = _ways(kind)
    if read == "DECODE" and access_to(store).channel.decodes:
        reason = _why_undecoded(array, kind)
        read = "DECODE" if reason else "DECODED"
    values, nbytes = _measure(array.path, store)
    # Chunks that differ in size have no shape in common.
    is_old = not isinstance(array.metadata, ArrayV3Metadata)
    is_regular = is_old or hasattr(array.metadata.chunk_grid, "chunk_shape")
    chunks = tuple(array.chunks) if is_regular else ()
    shards = array.shards if is_regular else None
    stored_grid = shards or chunks
    counts = [-(-size // step) for size, step in zip(array.shape, stored_grid, strict=False)]
    return ArrayDescription(
        name=name,
        shape=tuple(array.shape),
        chunks=chunks,
        shards=None if shards is None else tuple(shards),
        dtype=str(array.dtype),
        codecs=tuple(_codecs(array, kind)),
        zarr_format=array.metadata.zarr_format,
        nbytes=array.nbytes,
        stored_bytes=nbytes,
        stored_values=values,
        most_values=prod(counts) if is_regular else array.nchunks,
        read=read,
        write=write,
        reason=reason,
    )


def _ways(kind: ChunkKind) -> tuple[Way, Way, str]:
    """Return which way whole chunks go when they are read and written, and why not a short one."""
    chain = kind.inner if isinstance(kind, Sharded) else kind
    if not isinstance(chain, Chain):
        return "FALLBACK", "FALLBACK", chain.reason
    return ("DIRECT", "DIRECT", "") if chain.raw else ("DECODE", "ENCODE", "")


def _why_undecoded(array: Any, kind: ChunkKind) -> str:
    """Return why servers do not decode the chunks of an array; empty if they do."""
    spec = spec_of(array.metadata)
    if isinstance(kind, Sharded):
        return fault_of(kind.inner, kind.codec._get_chunk_spec(spec))
    assert isinstance(kind, Chain)
    return fault_of(kind, spec)


def _codecs(array: Any, kind: ChunkKind) -> Iterator[str]:
    metadata = array.metadata
    if not isinstance(metadata, ArrayV3Metadata):
        for codec in (*(metadata.filters or ()), metadata.compressor):
            if codec is not None:
                yield codec.codec_id
        return
    codecs = kind.codec.codecs if isinstance(kind, Sharded) else metadata.codecs
    for each in codecs:
        yield str(each.to_dict()["name"])


def _measure(path: str, store: UcxStore) -> tuple[int, int]:
    """Return how many values there are for the chunks of an array, and their bytes."""
    folder = f"{path}/" if path else ""
    values, nbytes = sync(store.measure(path))
    sizes = sync(store.getsizes([f"{folder}{name}" for name in METADATA_NAMES]))
    metadata = [size for size in sizes if size is not None]
    return values - len(metadata), nbytes - sum(metadata)
