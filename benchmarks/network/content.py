"""The values that all ways serve: keys, and the byte of which each value consists."""

# No processor's cache has all of them.
_POOL_BYTES = 16 << 20
_MOST = 250

SMALL = 4 << 10
MIDDLE = 64 << 10
LARGE = 100_000_000


def keys(nbytes: int) -> dict[str, int]:
    """Return the keys of the values of a size, each with its byte."""
    count = max(1, min(_MOST, _POOL_BYTES // nbytes))
    return {f"{nbytes}/{number}": number for number in range(count)}


def values(sizes: list[int]) -> dict[str, bytes]:
    """Return all values of these sizes."""
    return {key: bytes([byte]) * size for size in sizes for key, byte in keys(size).items()}
