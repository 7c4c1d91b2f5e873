"""Values that tell which operation wrote them, and whether they are whole."""

import numpy as np
import numpy.typing as npt

# Of a value, in bytes. Small ones come with their messages, large ones in segments, or mapped.
SIZES = (104, 104, 1_000, 1_000, 5_000, 5_000, 20_000, 20_000)
SIZES += (60_000, 60_000, 200_000, 200_000, 600_000, 1_000_000, 2_000_000, 4_000_000)  # type: ignore[assignment]
LARGEST = max(SIZES)

# What a read returns that is no value that anybody wrote.
TORN = -1
MISSING = 0

# A number has the process in its upper bits, so processes draw numbers without asking each other.
_SEQUENCE_BITS = 32


def number_of(process: int, sequence: int) -> int:
    """Return the number of an operation: no other one of the run has it."""
    return process << _SEQUENCE_BITS | sequence


def size_of(number: int) -> int:
    """Return the size of the value that an operation writes: so a value that is cut short shows."""
    return SIZES[(number * 0x9E3779B97F4A7C15 >> 60) % len(SIZES)]


def make(number: int) -> npt.NDArray[np.uint8]:
    """Return the value that an operation writes: its number, in each eight bytes."""
    return np.full(size_of(number) // 8, number, "<u8").view("u1")


def read_whole(value: npt.NDArray[np.uint8]) -> int:
    """Return the number of the operation that wrote a value, or `TORN`."""
    number = read_part(value)
    return number if number != TORN and value.size == size_of(number) else TORN


def read_part(value: npt.NDArray[np.uint8]) -> int:
    """Return the number of the operation that wrote bytes of a value, or `TORN`."""
    if value.size == 0 or value.size % 8:
        return TORN
    words = value.view("<u8")
    number = int(words[0])
    return number if number > 0 and bool((words == words[0]).all()) else TORN
