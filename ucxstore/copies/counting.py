"""Count copies in a memray capture: the memory that a block of code took beyond its result.

There are three figures, since each misses something. The *peak* misses copies that follow one
another, each freed before the next. The *total* of large blocks includes those, but misses copies
in blocks smaller than half a chunk. *Grown* is the part of the total that was allocated by realloc,
which copies what the block has already.
"""

import mmap
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from memray import AllocationRecord, AllocatorType, FileReader

from ucxstore.copies.process import answer
from ucxstore.copies.result import Counts, Culprit

MAX_CULPRITS = 8

_FREES = (AllocatorType.FREE, AllocatorType.PYMALLOC_FREE)
_REALLOCS = (AllocatorType.REALLOC, AllocatorType.PYMALLOC_REALLOC)

# Frames that do not tell who allocated: they start threads, or wait for calls.
_WRAPPERS = ("/threading.py", "/concurrent/futures/", "/asyncio/", "/memray/", "/contextlib.py")
_STACK_DEPTH = 40

# The native core's code that allocates memory for a value, or maps its file; or that asks for that
# last, so that compilers leave the frame of the storage out. Values of a few bytes are metadata; to
# look up their stacks would take longer than all the rest.
_STORAGES = ("native/storage/", "native/cache/", "native/sessions/arriving_value")
_SMALL_VALUE = 4096

# Its code that maps memory which the processes of a host share: where a server keeps values, what
# clients see of it, and what passes between them, or files that clients map. As all shared memory,
# that is in the resident set of whoever touches it, and none of it was allocated for a copy.
# A core without symbols does not show its folders: then what is mapped at the end is known by its
# name, and passed as `own`.
SHARED = ("native/shared/", "native/local/", "native/files/")


class Range(NamedTuple):
    """Memory from `address` on, `nbytes` long."""

    address: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class _Block:
    """A live allocation. If it was made by realloc, `new` is the bytes by which it grew."""

    record: AllocationRecord
    size: int
    new: int
    grown: bool


class Heap:
    """The live blocks while allocations are replayed one after the other."""

    def __init__(self) -> None:
        self.blocks: dict[int, _Block] = {}
        self.nbytes = 0
        # By the record of a mapping, the records of those in whose place it was made (MAP_FIXED).
        self.beneath: dict[int, set[int]] = {}
        # The size of what a thread has just freed: memray writes a realloc as a free of the old
        # block, if there was one, and the new one right after it.
        self._moving: dict[int, int] = {}

    def replay(self, record: AllocationRecord) -> _Block | None:
        """Replay one record; return the block that it allocated, if any."""
        if record.allocator in _FREES:
            self._moving[record.tid] = self._free(record.address)
            return None
        if record.allocator == AllocatorType.MUNMAP:
            self._unmap(record.address, record.size)
            return None
        if record.allocator == AllocatorType.MMAP:
            self.beneath[id(record)] = self._unmap(record.address, record.size)
        self._free(record.address)  # memray has not seen that it was freed
        moving = self._moving.pop(record.tid, 0)
        grown = record.allocator in _REALLOCS and moving > 0
        kept = min(moving, record.size) if grown else 0
        block = _Block(record, record.size, record.size - kept, grown)
        self.blocks[record.address] = block
        self.nbytes += record.size
        return block

    def _free(self, address: int) -> int:
        block = self.blocks.pop(address, None)
        if block is None:
            return 0
        self.nbytes -= block.size
        return block.size

    def _unmap(self, address: int, size: int) -> set[int]:
        """Remove a range of mappings, whole or in part; return the identities of their records."""
        end = address + size
        records = set()
        for start, block in list(self.blocks.items()):
            stop = start + block.size
            if block.record.allocator != AllocatorType.MMAP or stop <= address or end <= start:
                continue
            self._free(start)
            records.add(id(block.record))
            for left, right in ((start, min(stop, address)), (max(start, end), stop)):
                if left < right:
                    self.blocks[left] = _Block(block.record, right - left, 0, grown=False)
                    self.nbytes += right - left
        return records


def count(
    capture: Path,
    *,
    nbytes: int,
    chunk_nbytes: int,
    own: Sequence[Range] = (),
    stored_nbytes: int = 0,
    rss_extra: float = 0.0,
    fixed: int = 0,
) -> Counts:
    """Count the copies in a capture.

    Parameters
    ----------
    capture : Path
        A file of `memray.Tracker`, with every allocation.
    nbytes : int
        The size of the array that was moved, in bytes: the unit of the figures.
    chunk_nbytes : int
        The size of a chunk: blocks of at least half of it count in the total.
    own : sequence of Range
        The user's memory, and what this process shares with a server. A block with any part of
        these ranges when the capture ends is of the result, and not a copy.
    stored_nbytes : int
        For a server: the bytes of the values that it keeps or maps. That much memory of its storage
        holds those values, and is not a copy.
    rss_extra, fixed
        Put into the result as it is.

    Returns
    -------
    Counts

    Raises
    ------
    OSError
        If the file is no capture.
    """
    with FileReader(capture, report_progress=False) as reader:
        # Records can look up their stacks only while the reader is open.
        records = [one for one in reader.get_allocation_records() if not _is_shared(one)]
        counts = _count(records, nbytes, chunk_nbytes, own, stored_nbytes, rss_extra)
    return replace(counts, fixed=fixed)


def _count(
    records: list[AllocationRecord],
    nbytes: int,
    chunk_nbytes: int,
    own: Sequence[Range],
    stored_nbytes: int,
    rss_extra: float,
) -> Counts:
    heap = Heap()
    peak = length = 0
    made: list[_Block] = []
    for number, record in enumerate(records):
        block = heap.replay(record)
        if heap.nbytes > peak:
            peak, length = heap.nbytes, number + 1
        if block is not None and block.size >= min(chunk_nbytes / 2, _SMALL_VALUE):
            made.append(block)
    results = {id(block.record) for block in _holding(heap.blocks, own)}
    # The result's own memory, where all of it was replaced by what was mapped over it.
    found = results
    while found := {old for new in found for old in heap.beneath.get(new, ())} - results:
        results |= found
    results |= _stored(made, stored_nbytes)
    copies = [
        block
        for block in made
        if block.size >= chunk_nbytes / 2 and id(block.record) not in results
    ]

    at_peak = Heap()
    for record in islice(records, length):
        at_peak.replay(record)
    extra = [block for block in at_peak.blocks.values() if id(block.record) not in results]
    return Counts(
        peak=peak,
        peak_extra=sum(block.size for block in extra) / nbytes,
        total=sum(block.new for block in copies) / nbytes,
        grown=sum(block.new for block in copies if block.grown) / nbytes,
        rss_extra=rss_extra,
        culprits=(
            *_culprits("peak", ((block.record, block.size) for block in extra), nbytes),
            *_culprits("total", ((block.record, block.new) for block in copies), nbytes),
        ),
    )


def _stored(blocks: Iterable[_Block], nbytes: int) -> set[int]:
    """Return the records of stored values, up to the bytes that are stored."""
    records: set[int] = set()
    left = nbytes
    for block in blocks:
        # A mapping has whole pages, so the value may be up to a page smaller.
        whole_pages = block.size % mmap.PAGESIZE == 0
        size = block.size - mmap.PAGESIZE + 1 if whole_pages else block.size
        if block.size > _SMALL_VALUE and size <= left and _comes_from(block.record, _STORAGES):
            records.add(id(block.record))
            left -= size
    return records


def _is_shared(record: AllocationRecord) -> bool:
    return record.allocator == AllocatorType.MMAP and _comes_from(record, SHARED)


def _comes_from(record: AllocationRecord, folders: Sequence[str]) -> bool:
    stack = record.native_stack_trace(max_stacks=_STACK_DEPTH)
    return any(folder in file for _, file, _ in stack for folder in folders)


def _holding(blocks: dict[int, _Block], own: Sequence[Range]) -> list[_Block]:
    """Return the blocks with any part of these ranges: a result may be mapped piece by piece."""
    return [
        block
        for start, block in blocks.items()
        if any(
            start < one.address + one.nbytes and one.address < start + block.size
            for one in own
            if one.nbytes > 0
        )
    ]


def _culprits(
    at: str, allocations: Iterable[tuple[AllocationRecord, int]], nbytes: int
) -> list[Culprit]:
    """Return the frames that allocated most, down to a hundredth of the array."""
    sizes: dict[int, tuple[AllocationRecord, int, int]] = {}
    for record, size in allocations:
        # Add up by stack first: to look up a stack takes long, and most have many allocations.
        key = hash((record.stack_id, record.native_stack_id))
        _, before, blocks = sizes.get(key, (record, 0, 0))
        sizes[key] = (record, before + size, blocks + 1)
    merged: dict[tuple[str, str], tuple[int, int]] = {}
    for record, size, blocks in sizes.values():
        if size * 1000 < nbytes:
            continue
        names = (_python_frame(record), _native_frame(record))
        before, count = merged.get(names, (0, 0))
        merged[names] = (before + size, count + blocks)
    largest = sorted(merged.items(), key=lambda item: -item[1][0])[: MAX_CULPRITS // 2]
    return [
        Culprit(bytes=size, blocks=blocks, at=at, python=python, native=native)
        for (python, native), (size, blocks) in largest
        if size * 100 >= nbytes
    ]


def _python_frame(record: AllocationRecord) -> str:
    """Return the innermost frame that is not of a wrapper, as "function (file:line)"."""
    for function, file, line in record.stack_trace(max_stacks=_STACK_DEPTH):
        if not any(part in file for part in _WRAPPERS):
            return f"{function} ({_short(file)}:{line})"
    return "(no Python frame)"


def _native_frame(record: AllocationRecord) -> str:
    """Return the innermost native frame that has a name."""
    for function, _, _ in record.native_stack_trace(max_stacks=_STACK_DEPTH):
        if function and not function.startswith("0x"):
            return function
    return "(unknown)"


def _short(file: str) -> str:
    """Cut a path down to the package and what is in it."""
    return "/".join(Path(file.rpartition("site-packages/")[2]).parts[-3:])


def _main(capture: str, own: Sequence[Sequence[int]] = (), **options: Any) -> dict[str, Any]:
    return asdict(count(Path(capture), own=[Range(*one) for one in own], **options))


if __name__ == "__main__":
    answer(_main)
