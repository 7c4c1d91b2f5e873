"""`Caches`: the caches in front of a source, and whether their values are believed."""

from ucxstore.base.native import core
from ucxstore.server.peers.names import Names
from ucxstore.server.sources.tiered import TieredSource


class Caches:
    """The cache of a source in memory, and the one on disk if there is one.

    Parameters
    ----------
    memory : core.CachedSource
        It decides for both what is believed.
    disk : TieredSource or None
    """

    def __init__(self, memory: core.CachedSource, disk: TieredSource | None) -> None:
        self._memory = memory
        self._disk = disk
        if disk is not None:
            disk.believes = memory.believes

    def believe_until(self, seconds: float) -> None:
        """Believe values until then, on the clock of leases; then ask the source for each."""
        self._memory.set_lease_end(int(seconds * 1e9))

    def ask_for(self, names: Names) -> None:
        """Ask the source for these from now on, and forget them."""
        self._memory.begin_asking(list(names.keys), list(names.prefixes))
        if self._disk is not None:
            for key in names.keys:
                self._disk.forget(key)
            for prefix in names.prefixes:
                self._disk.forget_prefix(prefix)

    def trust(self, names: Names) -> None:
        """Answer for these from the caches again, but not with what is on its way."""
        self._memory.end_asking(list(names.keys), list(names.prefixes))

    def forget_all(self) -> None:
        """Drop all values, and keep none that is on its way."""
        self._memory.forget_all()
        if self._disk is not None:
            self._disk.forget_prefix("")
