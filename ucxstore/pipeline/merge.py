"""Merge written values into chunks and encode them, as zarr's own pipelines do."""

from ucxstore.base.zarr_compat import ArraySpec, NDBuffer
from ucxstore.codecs.buffers import filled_chunk
from ucxstore.codecs.chain import Chain
from ucxstore.codecs.compressors import Bytes
from ucxstore.pipeline.batch import Chunk
from ucxstore.pipeline.fill import FillTest


class Merger:
    """Makes the bytes to store of chunks. Methods may be called by many threads at once.

    Parameters
    ----------
    chain : Chain
        The codecs of the chunks.
    spec : ArraySpec
        The spec of any chunk.
    drop_axes : tuple of int
        As zarr gives them.
    """

    def __init__(self, chain: Chain, spec: ArraySpec, drop_axes: tuple[int, ...] = ()) -> None:
        self._chain = chain
        self._drop_axes = drop_axes
        self.fill = None if spec.config.write_empty_chunks else FillTest(spec)

    def make(self, value: NDBuffer, chunk: Chunk, stored: Bytes | None) -> Bytes | None:
        """Make the bytes to store of a chunk; ``None`` if it is to be deleted.

        Parameters
        ----------
        value : NDBuffer
            The array that the whole batch writes.
        chunk : Chunk
        stored : Bytes or None
            The chunk as it is stored now, if some of it stays.
        """
        _, spec, *_ = chunk
        existing = None if stored is None else self._chain.load(stored, spec)
        made = merged(value, chunk, self._drop_axes, existing)
        if self.fill is not None:  # as zarr, delete the chunk rather than store it
            array = made.as_numpy_array()
            if self.fill.holds(array, [0] * array.ndim, array.shape):
                return None
        return self._chain.encode(made, spec)


def merged(
    value: NDBuffer, chunk: Chunk, drop_axes: tuple[int, ...], existing: NDBuffer | None
) -> NDBuffer:
    """Return a chunk as it is after a write.

    The same as zarr's ``_merge_chunk_array``, which would copy `existing` before it writes to it.

    Parameters
    ----------
    value : NDBuffer
        The array that the whole batch writes.
    chunk : Chunk
    drop_axes : tuple of int
        As zarr gives them.
    existing : NDBuffer or None
        The chunk as it is stored now, which is written to. ``None`` if it is missing, or if
        everything of it that lies in the array is written.

    Returns
    -------
    NDBuffer
        A view of `value` if that is all of the chunk. It must not be written to.
    """
    _, spec, chunk_selection, out_selection, is_complete = chunk
    if is_complete and value.shape != ():
        selected = value[out_selection]
        if selected.shape == spec.shape:  # not so at the array's edge
            return selected
    made = filled_chunk(spec) if existing is None else existing
    if chunk_selection == () or value.shape == ():
        written = value
    else:
        written = value[out_selection]
        if drop_axes:
            axes = range(spec.ndim)
            written = written[tuple(None if axis in drop_axes else slice(None) for axis in axes)]
    made[chunk_selection] = written
    return made
