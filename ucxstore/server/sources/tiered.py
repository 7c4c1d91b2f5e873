"""`DiskTier`: values of a source that are also kept in files."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from ucxstore.base import logs
from ucxstore.base.native import core
from ucxstore.server.peers.names import Names
from ucxstore.server.sources.cache_dir import CacheDirectory
from ucxstore.server.sources.source import (
    ChangedError,
    FoundValue,
    Part,
    Source,
    UnchangedError,
)

# Enough threads to keep a fast disk busy. There are fewer writers: nobody waits for a write.
_READERS = 8
_WRITERS = 2

# Bytes that may wait to be written; they do not count in the size of any cache. If the disk is
# slower than the source, further values are not kept.
BACKLOG_BYTES = 64 << 20

# The share of a request's time that the disk may take. The rest is left for the source.
_DISK_SHARE = 0.25

# Seconds for which a disk is not used after it has failed.
_PAUSE = 30.0


class DiskTier:
    """Values of a source that are also kept in files, until the source has newer ones.

    A value is written to disk when it comes from the source, not when the cache in memory drops it:
    the cache would have to hold it, beyond its size, until it is on the disk.

    If the disk is full or fails, there are fewer hits, and no errors. Whoever changes a key lets it
    be forgotten before the change is acknowledged. The cache decides whether a value that was read
    meanwhile may be kept, since it knows all requests in flight.

    Parameters
    ----------
    source : Source
    directory : CacheDirectory
        Closed with this.
    freshness : float or None
        ``None`` if values are believed for ever. If not, the source is asked whether a value has
        changed whenever it is read from its file.
    timeout : float
        Seconds that a request may take.
    """

    def __init__(
        self, source: Source, directory: CacheDirectory, freshness: float | None, timeout: float
    ) -> None:
        self.source = source
        # Whether a value may be used without asking the source.
        self.believes: Callable[[str], bool] = lambda _: True
        self._directory = directory
        self._disk = directory.disk
        self._believed = freshness is None
        self._disk_timeout = timeout * _DISK_SHARE
        self._readers = ThreadPoolExecutor(_READERS, "ucxstore-disk-reader")
        self._writers = ThreadPoolExecutor(_WRITERS, "ucxstore-disk-writer")
        self._backlog = 0
        self._paused_until = {"reads": 0.0, "writes": 0.0}
        self._hits = core.Counter()
        self._failures = core.Counter()

    @property
    def counted(self) -> dict[str, core.Counter | core.DiskCache]:
        """The counters of the disk tier, by their names."""
        return {
            "disk_hits": self._hits,
            "disk_bytes": self._directory.disk,
            "disk_failures": self._failures,
        }

    def close(self) -> None:
        """Wait for reads and writes in progress, and remove all files."""
        self._readers.shutdown(cancel_futures=True)
        self._writers.shutdown(cancel_futures=True)
        self._directory.close()

    async def get(self, key: str, part: Part | None) -> FoundValue | None:
        """Return a value from its file, or fetch it, as `Source.get` does."""
        # Before, too: what a server has read before it joined may be older than what it has missed.
        believed = self._believed and self.believes(key)
        kept = await self._read(key, part)
        if kept is not None and ((believed and self.believes(key)) or _has_tag(part)):
            self._hits.add()
            return kept
        try:
            found = await self.source.get(key, part, "" if kept is None else kept.etag)
        except UnchangedError:
            self._hits.add()
            return kept
        except ChangedError:
            self.forget(key)
            raise
        if kept is not None or found is None:
            self.forget(key)  # the source has another value, or none
        return found

    async def _read(self, key: str, part: Part | None) -> FoundValue | None:
        loop = asyncio.get_running_loop()
        if part is None or not part.if_match:
            file = self._disk.find(key)
        else:
            file = self._disk.find_part(key, part.begin, part.end, part.if_match)
        if file is None or loop.time() < self._paused_until["reads"]:
            return None
        try:
            async with asyncio.timeout(self._disk_timeout):
                value = await loop.run_in_executor(self._readers, self._disk.read, file)
        except TimeoutError:
            value = None
        except RuntimeError:  # the interpreter is ending
            return None
        if value is None:
            self.forget(key)
            self._failed("reads")
            return None
        if part is not None and not part.if_match and value.nbytes > part.end:
            return None  # the value is larger than the requested part
        return FoundValue(value, file.etag, value.nbytes, kept=True)

    def keep(self, key: str, part: Part | None, found: FoundValue) -> None:
        """Start to write a value or a part of it to disk, and return at once.

        The caller must know that the key was not changed while the value was fetched.
        """
        if found.kept:
            return
        value, etag = found.buffer, found.etag
        loop = asyncio.get_running_loop()
        if not (etag or self._believed) or loop.time() < self._paused_until["writes"]:
            return
        size = memoryview(value).nbytes
        begin = None if part is None or size == found.size else part.begin
        if self._backlog + size > BACKLOG_BYTES:
            return
        file = self._disk.add(key, begin, size, etag)
        if file is None:
            return
        try:
            writing = loop.run_in_executor(self._writers, self._disk.write, file, value)
        except RuntimeError:  # the interpreter is ending
            return
        self._backlog += size

        def written(done: asyncio.Future[bool]) -> None:
            self._backlog -= size
            if not done.cancelled() and not done.result():
                self.forget(key)
                self._failed("writes")

        writing.add_done_callback(written)

    def forget(self, key: str) -> None:
        """Do not use what is kept of a key any more."""
        self._disk.forget(key)
        self._sweep()

    def forget_prefix(self, prefix: str) -> None:
        """Do so for all keys that begin with `prefix`."""
        self._disk.forget_prefix(prefix)
        self._sweep()

    def forget_names(self, names: Names) -> None:
        """Do so for keys, and for all that begin with prefixes."""
        for key in names.keys:
            self.forget(key)
        for prefix in names.prefixes:
            self.forget_prefix(prefix)

    def forget_below(self, name: str) -> int:
        """Do so for a key and all below it; for all, if it is "". Return the bytes of the files."""
        before = self._disk.bytes
        if name:
            self._disk.forget(name)
        self.forget_prefix(f"{name}/" if name else "")
        return max(before - self._disk.bytes, 0)

    def _sweep(self) -> None:
        try:
            asyncio.get_running_loop().run_in_executor(self._writers, self._disk.sweep)
        except RuntimeError:  # the interpreter is ending
            return

    def _failed(self, what: str) -> None:
        self._failures.add()
        self._paused_until[what] = asyncio.get_running_loop().time() + _PAUSE
        logs.server.warning("%s of the cache directory fail, and are paused for %g s", what, _PAUSE)


def _has_tag(part: Part | None) -> bool:
    """Tell whether a part is of a value with a known entity tag."""
    return part is not None and part.if_match != ""
