"""Find the one raw chunk that a selection lies in, and view it as an array: no I/O."""

from itertools import islice
from typing import Any, Literal, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import zarr

from ucxstore.errors import ChunkSizeError, NotMappedError
from ucxstore.pipeline.access import ChunkAccess, find_access
from ucxstore.pipeline.chain import Chain
from ucxstore.pipeline.classify import ChunkKind, Sharded
from ucxstore.pipeline.compressors import Bytes
from ucxstore.pipeline.zero_copy import kind_of
from ucxstore.zarr_compat import ArrayV3Metadata, AsyncArray, BasicIndexer, ChunkGrid


class ChunkPart(NamedTuple):
    """A part of a raw chunk.

    Parameters
    ----------
    key : str
        The chunk's, as the servers have it.
    dtype : numpy.dtype
    shape : tuple of int
        The chunk's.
    order : {"C", "F"}
        In which the chunk's values lie.
    selection : tuple
        Integers and slices: of the chunk, the part that is wanted.
    """

    key: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    order: Literal["C", "F"]
    selection: tuple[Any, ...]

    def of(self, value: Bytes) -> npt.NDArray[Any]:
        """Return the part as an array over the chunk's value.

        Raises
        ------
        ChunkSizeError
            If the value does not have the size of the chunk.
        """
        expected = self.dtype.itemsize * int(np.prod(self.shape, dtype=object))
        if value.size != expected:
            raise ChunkSizeError(
                f"{self.key!r} has {value.size} bytes, which is not the size of its chunk "
                f"({expected} bytes)"
            )
        # Not np.ndarray(), which takes the unit from times without one.
        chunk = value.view(self.dtype).reshape(self.shape, order=self.order)
        part: npt.NDArray[Any] = chunk[(*self.selection, ...)]
        return part


def async_array_of(array: object) -> AsyncArray[Any]:
    """Return the asynchronous array of zarr's that `array` is, or is a front of."""
    found = array.async_array if isinstance(array, zarr.Array) else array
    if not isinstance(found, AsyncArray):
        kind = type(array)
        raise TypeError(f"an array of zarr's is needed, not {kind.__module__}.{kind.__qualname__}")
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
    """Find the chunk that a selection lies in.

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
        If no view can be made of it: it spans several chunks, or these are not raw.
    IndexError
        If it is out of bounds, or of other kinds.
    """
    metadata = array.metadata
    kind = kind_of(array)
    if not isinstance(kind, Chain) or not kind.raw:
        raise NotMappedError(f"{array.store_path} cannot be mapped: {_why_not_raw(kind)}")
    grid = ChunkGrid.from_metadata(metadata)
    found = list(islice(BasicIndexer(selection, metadata.shape, grid), 2))
    if not found:
        return None
    if len(found) > 1:
        raise NotMappedError(
            f"{array.store_path} cannot be mapped: the selection spans several chunks, which do "
            f"not lie together (a chunk has the shape {_chunk_shape(grid, found[0].chunk_coords)})"
        )
    ((coordinates, chunk_selection, _, _),) = found
    is_v3 = isinstance(metadata, ArrayV3Metadata)
    path = array.store_path.path
    chunk = metadata.encode_chunk_key(coordinates)
    return ChunkPart(
        key=access_of(array).key_prefix + (f"{path}/{chunk}" if path else chunk),
        dtype=kind.dtype,
        shape=_chunk_shape(grid, coordinates),
        order="C" if is_v3 else metadata.order,
        selection=cast(tuple[Any, ...], chunk_selection),  # of a basic selection, it is a tuple
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


def _why_not_raw(kind: ChunkKind) -> str:
    match kind:
        case Chain():
            names = ", ".join(type(codec).__name__ for codec in kind.codecs)
            return f"its chunks are stored encoded ({names})"
        case Sharded():
            return "its chunks are parts of shards"
        case _:
            return kind.reason
