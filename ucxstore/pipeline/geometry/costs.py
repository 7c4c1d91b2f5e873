"""Whether moving a part of a chunk, run by run, is less work than moving all of it.

The figures are nanoseconds, measured on a 2-core virtual machine over shared memory. They are
orders of magnitude, and a rule by them is right where it matters: one way is often a hundred times
the work of the other, and where they are near one another either will do.
"""

# What a run costs at either end, beyond its bytes: a step to the next one, an entry of the scatter
# list, a copy that is too short for its bytes to count.
RUN = 15.0

# What an offset of a run costs beyond that: eight bytes in the request, looked at one by one.
OFFSET = 6.0

# What a byte costs on its way, at 10 GB/s.
BYTE = 0.1

# What an item costs that numpy takes from a chunk in memory to the array: less in slices, more by
# index arrays.
ITEM = 1.0

# What a chunk costs that is fetched whole, however small: codecs and numpy are called for each.
CHUNK = 10_000.0

# Offsets that a request takes for a key. More of them would be several requests, each of which
# might find another value under the key.
MOST_OFFSETS = 16_384

# A run below a cache line costs more as an entry of a scatter list, on either side of a write, than
# its bytes cost to copy; more than a few of them are left to numpy. Arrays in Fortran order, whose
# runs are single items, are the usual case.
SHORT_RUN_BYTES = 64
MANY_RUNS = 64


def is_less_in_runs(
    nbytes: int, itemsize: int, chunk_nbytes: int, runs: int, offsets: int = 0
) -> bool:
    """Tell whether a part of a chunk is better moved in runs than taken from the whole chunk.

    Parameters
    ----------
    nbytes : int
        Bytes that are wanted.
    itemsize : int
        Bytes an item.
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
    """Tell whether bytes that are written lie in so many short runs that they are better copied."""
    return runs > MANY_RUNS and nbytes < SHORT_RUN_BYTES * runs
