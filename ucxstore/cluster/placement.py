"""Which of several servers each key is placed on, by rendezvous hashing.

Each server has a weight for each key, which nobody but the two decides, and the key is the
heaviest one's (Thaler and Ravishankar, "Using name-based mappings to increase hit rates", IEEE/ACM
Transactions on Networking 6(1), 1998). So a server that is added takes its share, one that is lost
leaves its share to the others, and no other key moves.
"""

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

# Keys whose servers are remembered, since a hash takes as long as ten look-ups: some 10 MB.
_REMEMBERED = 1 << 16

# Values that say what an array or a group is, in all formats and consolidated.
_METADATA = ("zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata")


class Placement:
    """Place keys on servers: the same in every process, in whatever order the servers are.

    Parameters
    ----------
    servers : sequence of str
        What each is called: its ``host:port`` as it stands in the address. That is all that every
        client knows without asking, and it stays when a server restarts or moves to another
        machine behind its name.
    """

    def __init__(self, servers: Sequence[str]) -> None:
        self._seeds = _hash(servers)
        # By the servers that are left out, since a lost one may be so for long.
        self._remembered: dict[frozenset[int], dict[str, int]] = {}

    def servers_of(self, keys: Sequence[str], without: frozenset[int] = frozenset()) -> list[int]:
        """Return the index of each key's server.

        Parameters
        ----------
        keys : sequence of str
        without : frozenset of int
            Servers that are left out, not all: their keys go to the next in rank.
        """
        remembered = self._remembered.get(without, {})
        try:
            return [remembered[key] for key in keys]
        except KeyError:
            pass
        weights = self._weights(keys)
        weights[:, list(without)] = 0
        found: list[int] = weights.argmax(axis=1).tolist()
        if sum(map(len, self._remembered.values())) + len(keys) > _REMEMBERED:
            self._remembered = {}
        if len(keys) <= _REMEMBERED:
            new = dict(zip(keys, found, strict=True))
            self._remembered.setdefault(without, {}).update(new)
        return found

    def _weights(self, keys: Sequence[str]) -> npt.NDArray[np.uint64]:
        """Mix the hashes of keys and servers, a row for each key."""
        mixed = _hash(keys)[:, None] ^ self._seeds
        # MurmurHash3's finalizer: one to one, so no two servers weigh the same for a key.
        for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
            mixed ^= mixed >> np.uint64(33)
            mixed *= np.uint64(factor)
        mixed ^= mixed >> np.uint64(33)
        return mixed


def is_metadata(key: str) -> bool:
    """Tell whether a key's value says what an array or a group is."""
    return key.endswith(_METADATA) and key.rpartition("/")[2] in _METADATA


def _hash(texts: Sequence[str]) -> npt.NDArray[np.uint64]:
    digests = b"".join(hashlib.blake2b(text.encode(), digest_size=8).digest() for text in texts)
    return np.frombuffer(digests, "<u8").astype(np.uint64)
