"""`DataPorts`: the ports at which UCX may listen, and whether any is left.

UCX takes a port of its range at random, and tries another one for as long as they are in use: for
ever, if all are. So it is not asked where none is free.
"""

import random
import socket
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DataPorts:
    """A range of ports.

    Parameters
    ----------
    first, last : int
    """

    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"

    def __len__(self) -> int:
        return self.last - self.first + 1

    def count_free(self) -> int:
        """Return how many are free on all addresses of this host."""
        return sum(map(_is_free, range(self.first, self.last + 1)))

    def shortage(self) -> str | None:
        """Return what is short if none is free; ``None`` if one is."""
        start = random.randrange(len(self))
        for step in range(len(self)):
            if _is_free(self.first + (start + step) % len(self)):
                return None
        return f"no port of {self} is free (data_ports): each client over UCX takes one"


def _is_free(port: int) -> bool:
    """Tell whether UCX could listen at a port; it does not reuse one that was closed just now."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
            sock.bind(("", port))
    except OSError:
        return False
    return True
