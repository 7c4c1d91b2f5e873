"""Find the raw chunks that a selection lies in, and view them as an array: no I/O."""

import mmap
from collections.abc import Sequence
from itertools import islice
from typing import Any, Literal, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import zarr

from ucxstore.base.errors import ChunkSizeError, NotMappedError
from ucxstore.base.zarr_compat import ArrayV3Metadata, AsyncArray, BasicIndexer, ChunkGrid
from ucxstore.codecs.chain import Chain
from ucxstore.codecs.classify import ChunkKind, Sharded
from ucxstore.codecs.compressors import Bytes
from ucxstore.pipeline import kind_of
from ucxstore.pipeline.access import ChunkAccess, find_access

# Of one view: each takes a pin and a mapping, of which a process has some thousands.
_MOST_CHUNKS = 1024


class ChunkPart(NamedTuple):
    """A part of a raw chunk, or of several that follow one another along the first axis.

    Parameters
    ----------
    keys : sequence of str
        The chunks', as the servers have them.
    dtype : numpy.dtype
    shape : tuple of int
        A chunk's.
    order : {"C", "F"}
        In which a chunk's values lie; "C" for several.
    selection : tuple
        Integers and slices: of the chunks, joined to one, the part that is wanted.
    """

    keys: Sequence[str]
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    order: Literal["C", "F"]
    selection: tuple[Any, ...]

    def of(self, values: Sequence[Bytes]) -> npt.NDArray[Any] | None:
        """Return the part as an array over the chunks' values.

        ``None`` where several cannot be mapped one after the other: they are no whole pages of
        their memory, or the process has no room for so many mappings.

        Raises
        ------
        ChunkSizeError
            If a value does not have the size of a chunk.
        """
        expected = _nbytes(self.shape, self.dtype)
        for key, value in zip(self.keys, values, strict=True):
            if value.size != expected:
                raise ChunkSizeError(
                    f"{key!r} has {value.size} bytes, which is not the size of its chunk "
                    f"({expected} bytes)"
                )
        shape, joined = self.shape, values[0]
        if len(values) > 1:
            from ucxstore.base.native import core  # not before it is needed

            found = core.join(values)
            if found is None:
                return None
            shape, joined = (len(values) * shape[0], *shape[1:]), found
        # Not np.ndarray(), which takes the unit from times without one.
        chunk = joined.view(self.dtype).reshape(shape, order=self.order)
        part: npt.NDArray[Any] = chunk[(*self.selection, ...)]
        return part


def async_array_of(array: object) -> AsyncArray[Any]:
    """Return the asynchronous array of zarr's that `array` is, or is a front of."""
    found = array.async_array if isinstance(array, zarr.Array) else array
    if not isinstance(found, AsyncArray):
        kind = type(array)
        raise TypeError(f"a zarr array is needed, not {kind.__module__}.{kind.__qualname__}")
    return found


def access_of(array: AsyncArray[Any]) -> ChunkAccess:
    """Return the access to the chunks of an array.

    Raises
    ------
    ValueError
        If it is not in a store of ours.
    """
    access = find_access(array.store)
    if access is None:
        raise ValueError(f"{array.store_path} is not in a UcxStore")
    return access


def locate(array: AsyncArray[Any], selection: Any) -> ChunkPart | None:
    """Find the chunks that a selection lies in: one, or several that can be mapped as one.

    Parameters
    ----------
    array : AsyncArray
        In a store of ours.
    selection : object
        Integers, slices and an ellipsis, as zarr takes them.

    Returns
    -------
    ChunkPart or None
        ``None`` for a selection of no items.

    Raises
    ------
    NotMappedError
        If no view can be made of it: chunks are not raw, or it spans several that do not follow
        one another along the first axis, or are not whole pages.
    IndexError
        If it is out of bounds, or of other kinds.
    """
    metadata = array.metadata
    kind = kind_of(array)
    if not isinstance(kind, Chain) or not kind.raw:
        raise NotMappedError(f"{array.store_path} cannot be mapped: {_why_not_raw(kind)}")
    grid = ChunkGrid.from_metadata(metadata)
    found = list(islice(BasicIndexer(selection, metadata.shape, grid), _MOST_CHUNKS + 1))
    if not found:
        return None
    places = [one.chunk_coords for one in found]
    shape = _chunk_shape(grid, places[0])
    order: Literal["C", "F"] = "C" if isinstance(metadata, ArrayV3Metadata) else metadata.order
    # Of a basic selection, they are tuples.
    first, last = (cast(tuple[Any, ...], found[at].chunk_selection) for at in (0, -1))
    if len(found) > 1:
        whole_pages = _nbytes(shape, kind.dtype) % mmap.PAGESIZE == 0
        if order != "C" or not whole_pages or not _are_in_a_row(grid, places):
            raise NotMappedError(
                f"{array.store_path} cannot be mapped: the selection spans several chunks, which "
                f"do not lie together (a chunk has the shape {shape})"
            )
        rows = last[0].stop + (len(found) - 1) * shape[0]
        first = (slice(first[0].start, rows, first[0].step), *first[1:])
    path = array.store_path.path
    folder = access_of(array).key_prefix + (f"{path}/" if path else "")
    return ChunkPart(
        keys=[folder + metadata.encode_chunk_key(place) for place in places],
        dtype=kind.dtype,
        shape=shape,
        order=order,
        selection=first,
    )


def empty_of(array: AsyncArray[Any], selection: Any) -> npt.NDArray[Any]:
    """Return the array that a selection of no items is."""
    metadata = array.metadata
    shape = BasicIndexer(selection, metadata.shape, ChunkGrid.from_metadata(metadata)).shape
    return np.empty(shape, metadata.dtype.to_native_dtype())


def _chunk_shape(grid: ChunkGrid, coordinates: tuple[int, ...]) -> tuple[int, ...]:
    spec = grid[coordinates]
    assert spec is not None
    return spec.codec_shape


def _nbytes(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    return dtype.itemsize * int(np.prod(shape, dtype=object))


def _are_in_a_row(grid: ChunkGrid, places: Sequence[tuple[int, ...]]) -> bool:
    """Tell whether chunks of one shape follow one another along the first axis, not too many."""
    row, *others = places[0]
    return len(places) <= _MOST_CHUNKS and all(
        place == (row + number, *others)
        and _chunk_shape(grid, place) == _chunk_shape(grid, places[0])
        for number, place in enumerate(places)
    )


def _why_not_raw(kind: ChunkKind) -> str:
    match kind:
        case Chain():
            names = ", ".join(type(codec).__name__ for codec in kind.codecs)
            return f"its chunks are stored encoded ({names})"
        case Sharded():
            return "its chunks are parts of shards"
        case _:
            return kind.reason
