"""A large blosc value as several small ones, which can be decoded at the same time: pure, no I/O.

A value of c-blosc 1 is a header, the offsets of its blocks, and the blocks, each decoded by itself
(c-blosc's README_CHUNK_FORMAT.rst). So any run of blocks becomes a value of its own by a header and
offsets of its own. numcodecs decodes a value with one thread, unless it is in the main thread.
"""

import struct
from typing import NamedTuple

import numpy as np

from ucxstore.pipeline.compressors import Bytes

# Versions of the format and the compressor, flags, item size; sizes: decoded, of a block, encoded.
_HEADER = struct.Struct("<BBBBIII")
_OFFSET = np.dtype("<i4")

_FORMAT = 2
_COPIED = 0x02  # flag: the values as they are, without blocks

# What is fetched to look at first: the offsets of a gigabyte in blocks of the usual 256 KiB.
PREFIX_BYTES = 16384


class Frame(NamedTuple):
    """A run of blocks.

    Parameters
    ----------
    start, stop : int
        Where its bytes are in the value.
    head : bytes
        What to put before these bytes to make a value of them.
    first, last : int
        Where its values are among the chunk's, in bytes.
    """

    start: int
    stop: int
    head: bytes
    first: int
    last: int

    @property
    def limit(self) -> int:
        """Bytes of it as a value."""
        return len(self.head) + self.stop - self.start


def split(prefix: Bytes, size: int, nbytes: int, most: int) -> list[Frame]:
    """Split a blosc value.

    Parameters
    ----------
    prefix : array of uint8
        Its first `PREFIX_BYTES`.
    size : int
        Bytes of the whole value.
    nbytes : int
        Bytes that it must have decoded.
    most : int
        Bytes, decoded, of a frame; a block may have more.

    Returns
    -------
    list of Frame
        Empty where it has to be decoded as a whole, be it that it is broken.
    """
    if prefix.size < _HEADER.size:
        return []
    fields = _HEADER.unpack_from(prefix)
    version, _, flags, _, decoded, block, encoded = fields
    if version != _FORMAT or flags & _COPIED or (decoded, encoded) != (nbytes, size):
        return []
    if not 0 < block <= nbytes:
        return []
    count = -(-nbytes // block)
    offsets_end = _HEADER.size + count * _OFFSET.itemsize
    if offsets_end > prefix.size:
        return []
    bounds = np.empty(count + 1, np.int64)
    bounds[:-1] = prefix[_HEADER.size : offsets_end].view(_OFFSET)
    bounds[-1] = size
    # Several threads may have encoded it, and put blocks down in any order.
    if bounds[0] < offsets_end or not (bounds[:-1] < bounds[1:]).all():
        return []
    # blosc takes no value that is smaller than a block: what is left goes with the run before it.
    starts = list(range(0, nbytes // block, max(1, most // block)))
    return [
        _frame(fields[:4], bounds[i : j + 1], i * block, nbytes, block)
        for i, j in zip(starts, [*starts[1:], count], strict=True)
    ]


def _frame(
    versions_and_flags: tuple[int, ...],
    bounds: np.ndarray[tuple[int], np.dtype[np.int64]],
    first: int,
    nbytes: int,
    block: int,
) -> Frame:
    start, stop = int(bounds[0]), int(bounds[-1])
    offsets = bounds[:-1] - start
    length = _HEADER.size + offsets.size * _OFFSET.itemsize
    last = min(first + offsets.size * block, nbytes)
    header = _HEADER.pack(*versions_and_flags, last - first, block, length + stop - start)
    head = header + (offsets + length).astype(_OFFSET).tobytes()
    return Frame(start, stop, head, first, last)
