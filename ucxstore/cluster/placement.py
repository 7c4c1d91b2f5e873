"""`Placement`: place keys on servers by rendezvous hashing.

Each server has a weight for each key, a hash of both. The key is placed on the server with the
greatest weight (Thaler and Ravishankar, "Using name-based mappings to increase hit rates", IEEE/ACM
Transactions on Networking 6(1), 1998). So a server that is added gets its share of the keys, the
keys of one that is lost go to the others, and no other key moves.
"""

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

# The keys whose servers are remembered, some 10 MB: a hash takes as long as ten look-ups.
_REMEMBERED = 1 << 16


class Placement:
    """Place keys on servers, in the same way in every process and for any order of the servers.

    Parameters
    ----------
    servers : sequence of str
        The ``host:port`` of each, as in the address. Every client knows it without asking, and it
        stays when a server restarts or moves to another machine behind its name.
    """

    def __init__(self, servers: Sequence[str]) -> None:
        self._seeds = _hash(servers)
        # By the servers that are left out: a lost one may be left out for long.
        self._remembered: dict[frozenset[int], dict[str, int]] = {}

    def servers_of(self, keys: Sequence[str], without: frozenset[int] = frozenset()) -> list[int]:
        """Return the index of each key's server.

        Parameters
        ----------
        keys : sequence of str
        without : frozenset of int
            Servers that are left out, but not all. Their keys go to the next server in rank.
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


def _hash(texts: Sequence[str]) -> npt.NDArray[np.uint64]:
    digests = b"".join(hashlib.blake2b(text.encode(), digest_size=8).digest() for text in texts)
    return np.frombuffer(digests, "<u8").astype(np.uint64)
