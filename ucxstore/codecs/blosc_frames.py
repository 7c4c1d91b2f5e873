"""Split a large blosc value into several small ones, which threads can decode: pure, no I/O.

A value of c-blosc 1 is a header, the offsets of its blocks, and the blocks, each decoded by itself
(c-blosc's README_CHUNK_FORMAT.rst). So any run of blocks is a value of its own, once it has its own
header and offsets. Outside the main thread, numcodecs decodes a value with one thread only.
"""

import struct
from typing import NamedTuple

import numpy as np

from ucxstore.codecs.compressors import Bytes

# Versions of the format and the compressor, flags, item size; sizes: decoded, of a block, encoded.
_HEADER = struct.Struct("<BBBBIII")
_OFFSET = np.dtype("<i4")

_FORMAT = 2
_COPIED = 0x02  # flag: values that are not compressed, without blocks

# Bytes that are fetched first: enough for the offsets of a gigabyte in the usual blocks of 256 KiB.
PREFIX_BYTES = 16384


class Frame(NamedTuple):
    """A run of blocks that is decoded as a value of its own.

    Parameters
    ----------
    start, stop : int
        Its bytes in the stored value.
    head : bytes
        The header and offsets that come before these bytes.
    first, last : int
        Its bytes among the chunk's decoded values.
    """

    start: int
    stop: int
    head: bytes
    first: int
    last: int

    @property
    def limit(self) -> int:
        """Bytes of the frame with its header and offsets."""
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
        Bytes that it must have when it is decoded.
    most : int
        Decoded bytes of a frame, at the most, unless a single block has more.

    Returns
    -------
    list of Frame
        Empty if the value has to be decoded as a whole, for example because it is broken.
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
    # If several threads have encoded it, its blocks may be in any order.
    if bounds[0] < offsets_end or not (bounds[:-1] < bounds[1:]).all():
        return []
    # blosc decodes no value that is smaller than a block. A short last block joins the run before.
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
