"""Estimate whether moving a part of a chunk in runs is less work than fetching the whole chunk.

The figures are nanoseconds, measured on a 2-core virtual machine over shared memory. They need not
be exact: one way is often a hundred times the work of the other. Where both are about the same,
either will do.
"""

# A run at either end, beyond its bytes: a step to the next one, an entry of the scatter list, and
# the start of a copy.
RUN = 15.0

# An offset of a run, beyond that: eight bytes in the request, which are checked.
OFFSET = 6.0

# A byte on its way, at 10 GB/s.
BYTE = 0.1

# An item that numpy copies from a chunk to the array: less in slices, more by index arrays.
ITEM = 1.0

# A chunk that is fetched whole, beyond its bytes and items: codecs and numpy are called for each.
CHUNK = 10_000.0

# Offsets that a request takes for a key. More would need several requests, and each of those might
# find another value under the key.
MOST_OFFSETS = 16_384

# A run shorter than a cache line takes longer as an entry of a scatter list, on either side of a
# write, than its bytes take to copy. More than a few of them are left to numpy. The usual case is
# an array in Fortran order, whose runs are single items.
SHORT_RUN_BYTES = 64
MANY_RUNS = 64


def is_less_in_runs(
    nbytes: int, itemsize: int, chunk_nbytes: int, runs: int, offsets: int = 0
) -> bool:
    """Tell whether moving a part of a chunk in runs is less work than fetching the whole chunk.

    Parameters
    ----------
    nbytes : int
        Bytes that are wanted.
    itemsize : int
        Bytes of an item.
    chunk_nbytes : int
        Bytes of the chunk.
    runs : int
        Runs at both ends together.
    offsets : int
        Offsets that tell the server where the runs are.
    """
    if offsets > MOST_OFFSETS:
        return False
    in_runs = RUN * runs + OFFSET * offsets + BYTE * nbytes
    whole = CHUNK + BYTE * chunk_nbytes + ITEM * (nbytes // itemsize)
    return in_runs <= whole


def are_short(nbytes: int, runs: int) -> bool:
    """Tell whether bytes to write lie in so many short runs that copying them is less work."""
    return runs > MANY_RUNS and nbytes < SHORT_RUN_BYTES * runs
