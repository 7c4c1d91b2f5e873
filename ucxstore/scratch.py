"""Memory of our own that chunks are received in, decoded in or put together in."""

from ucxstore.compressors import Bytes


def allocate(nbytes: int) -> Bytes:
    """Return memory, not initialised, whose pages may be there already."""
    from ucxstore._native import core  # not before it is needed

    memory: Bytes = core.allocate(nbytes)
    return memory
