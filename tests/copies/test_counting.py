"""The counting itself: code with a known number of copies."""

import mmap
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import memray
import numpy as np
import pytest
from memray import AllocatorType

from ucxstore import UcxStore
from ucxstore.copies import Counts, count_copies, counting
from ucxstore.copies.counting import Heap
from ucxstore.copies.tracking import shared_memory
from ucxstore.copies.workload import Workload, count_workload
from ucxstore.server import Server

NBYTES = 16_000_000
NEAR = 0.03


@pytest.fixture
def source() -> np.ndarray:
    return np.arange(NBYTES // 4, dtype="f4")


def check(counts: Counts, peak: float, total: float, grown: float = 0.0) -> None:
    assert counts.peak_extra == pytest.approx(peak, abs=NEAR)
    assert counts.total == pytest.approx(total, abs=NEAR)
    assert counts.grown == pytest.approx(grown, abs=NEAR)


def test_no_copy(source: np.ndarray) -> None:
    out = np.empty_like(source)
    check(count_copies(lambda: np.copyto(out, source), NBYTES), 0, 0)


@pytest.mark.parametrize(
    "result",
    [
        lambda x: x.copy(),
        lambda x: x.copy()[::-1],
        lambda x: x.copy()[5:],
        lambda x: [x[: x.size // 2].copy(), x[x.size // 2 :].copy()],
        lambda x: {"a": (x.copy(),)},
    ],
)
def test_the_result_is_no_copy(source: np.ndarray, result: Callable[[Any], Any]) -> None:
    check(count_copies(lambda: result(source), NBYTES), 0, 0)


def test_one_copy_beyond_the_result(source: np.ndarray) -> None:
    check(count_copies(lambda: np.frombuffer(source.tobytes(), "f4").copy(), NBYTES), 1, 1)


def test_what_is_not_returned_is_a_copy(source: np.ndarray) -> None:
    kept = []
    check(count_copies(lambda: kept.append(source.copy()), NBYTES), 1, 1)


def test_two_copies_at_once(source: np.ndarray) -> None:
    def two() -> int:
        one = source.copy()
        other = one.copy()
        return len(other)

    check(count_copies(two, NBYTES), 2, 2)


def test_copies_that_follow_one_another_do_not_show_at_the_peak(source: np.ndarray) -> None:
    def sequential() -> None:
        for _ in range(3):
            source.copy()

    check(count_copies(sequential, NBYTES), 1, 3)


def test_chunks_count_from_half_a_chunk_on(source: np.ndarray) -> None:
    parts = np.split(source, 20)

    def in_parts() -> None:
        for part in parts:
            part.copy()

    check(count_copies(in_parts, NBYTES, chunk_nbytes=NBYTES // 10), 1 / 20, 1)
    check(count_copies(in_parts, NBYTES, chunk_nbytes=NBYTES // 5), 1 / 20, 0)


def test_a_growing_bytearray(source: np.ndarray) -> None:
    piece = b"x" * (NBYTES // 100)

    def grow() -> bytearray:
        buffer = bytearray()
        for _ in range(100):
            buffer += piece
        return buffer

    counts = count_copies(grow, NBYTES)
    # It is allocated with some room to spare, and counts in the total from half an array on.
    assert 1 <= counts.peak_extra < 1.2
    assert 0.45 < counts.total < 0.7
    assert counts.grown == counts.total


def test_a_block_that_realloc_shrinks_is_not_counted_twice(source: np.ndarray) -> None:
    def shrink() -> bytearray:
        buffer = bytearray(NBYTES)
        del buffer[NBYTES * 3 // 4 :]  # which reallocates
        del buffer[NBYTES // 3 :]
        return buffer

    check(count_copies(shrink, NBYTES), 1, 1)


def test_mappings(source: np.ndarray) -> None:
    def map_and_unmap() -> None:
        for _ in range(2):
            with mmap.mmap(-1, NBYTES) as memory:
                memory[0] = 1

    check(count_copies(map_and_unmap, NBYTES), 1, 2)


def test_mappings_that_are_cut() -> None:
    heap = Heap()

    def tell(allocator: AllocatorType, address: int, size: int) -> None:
        heap.replay(SimpleNamespace(allocator=allocator, address=address, size=size, tid=1))

    tell(AllocatorType.MMAP, 1000, 100)
    tell(AllocatorType.MMAP, 1100, 100)
    tell(AllocatorType.MUNMAP, 1050, 100)  # half of each
    assert {address: block.size for address, block in heap.blocks.items()} == {1000: 50, 1150: 50}
    tell(AllocatorType.MUNMAP, 1010, 10)  # out of the middle
    assert {address: block.size for address, block in heap.blocks.items()} == {
        1000: 10,
        1020: 30,
        1150: 50,
    }
    assert heap.nbytes == 90
    tell(AllocatorType.MMAP, 1025, 10)  # in place of a part of another
    assert {address: block.size for address, block in heap.blocks.items()} == {
        1000: 10,
        1020: 5,
        1025: 10,
        1035: 15,
        1150: 50,
    }
    assert heap.nbytes == 90
    tell(AllocatorType.MUNMAP, 0, 5000)
    assert (heap.blocks, heap.nbytes) == ({}, 0)


def test_other_threads_count(source: np.ndarray) -> None:
    with ThreadPoolExecutor() as pool:
        pool.submit(int).result()
        check(count_copies(lambda: len(pool.submit(source.copy).result()), NBYTES), 1, 1)


def test_a_culprit_for_every_copy(source: np.ndarray) -> None:
    def culprit() -> int:
        one = source.copy()
        return len(one)

    counts = count_copies(culprit, NBYTES)
    for at in ("peak", "total"):
        (found,) = [one for one in counts.culprits if one.at == at]
        assert found.bytes == pytest.approx(NBYTES, rel=NEAR)
        assert found.blocks == 1
        assert found.python.startswith("culprit (tests/copies/test_counting.py:")
        assert "alloc" in found.native.lower() or "PyData" in found.native


def test_the_peak_is_memrays(source: np.ndarray, tmp_path: Path) -> None:
    capture = tmp_path / "capture.bin"
    counts = count_copies(lambda: len(bytes(source)), NBYTES, capture=capture)
    with memray.FileReader(capture) as reader:
        assert counts.peak == reader.metadata.peak_memory


def test_the_resident_set_sees_shared_memory(source: np.ndarray) -> None:
    from multiprocessing.shared_memory import SharedMemory

    shared = []

    def touch() -> None:
        memory = SharedMemory(create=True, size=NBYTES)
        memory.buf[:] = source.view("u1").data
        shared.append(memory)

    counts = count_copies(touch, NBYTES)
    shared[0].close()
    shared[0].unlink()
    assert counts.rss_extra == pytest.approx(1, abs=0.25)


@pytest.mark.parametrize("sizes", [{"nbytes": 0}, {"nbytes": 8, "chunk_nbytes": 0}])
def test_sizes_that_make_no_sense(sizes: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="nbytes=0"):
        count_copies(lambda: None, **sizes)


def test_a_failure_of_the_action_is_passed_on(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        count_copies(lambda: 1 / 0, NBYTES)
    check(count_copies(lambda: None, NBYTES), 0, 0)


def test_what_a_mapping_replaced_is_known() -> None:
    """A result whose pages were all replaced by those of its values is no copy."""
    heap = Heap()

    def tell(allocator: AllocatorType, address: int, size: int) -> SimpleNamespace:
        record = SimpleNamespace(allocator=allocator, address=address, size=size, tid=1)
        heap.replay(record)
        return record

    first = tell(AllocatorType.MMAP, 1000, 100)
    second = tell(AllocatorType.MMAP, 1000, 60)
    third = tell(AllocatorType.MMAP, 1050, 50)
    assert heap.nbytes == 100
    assert heap.beneath == {
        id(first): set(),
        id(second): {id(first)},
        id(third): {id(first), id(second)},
    }
    tell(AllocatorType.MUNMAP, 1000, 100)
    assert heap.beneath[id(tell(AllocatorType.MMAP, 1000, 100))] == set()


def test_memory_that_is_shared_with_a_server_is_no_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a wheel has it: no symbols tell that the core has mapped it to send values through."""
    monkeypatch.setattr(counting, "SHARED", ())
    workload = Workload("write", "raw", "one", 2000)
    options: Any = {"local": "auto", "select_pipeline": False}
    with (
        Server.spawn("memory://", local=True) as server,
        UcxStore(server.address, **options) as store,
    ):
        first = count_workload(store, workload, "zero-copy")
        assert store.stats().lanes == ["local"]
        check(first, 0, 0)
        assert first.fixed == 16 << 20
        assert first.rss_extra > 0.3  # as much of it as the server has not taken meanwhile
        second = count_workload(store, workload, "zero-copy")
        check(second, 0, 0)
        assert second.fixed == 0


def test_only_memory_of_our_own_name_is_shared() -> None:
    """A mapping that somebody else shares may be a copy."""
    with mmap.mmap(-1, NBYTES) as anonymous:
        anonymous[0] = 1
        kept = []
        check(count_copies(lambda: kept.append(mmap.mmap(-1, NBYTES)), NBYTES), 1, 1)
        assert all(one.nbytes != NBYTES for one in shared_memory())
    kept[0].close()
