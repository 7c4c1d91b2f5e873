"""Values of more than 2 GiB, where 32-bit sizes and single system calls end."""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import zarr
from zarr.abc.store import RangeByteRequest, SuffixByteRequest
from zarr.core.buffer import cpu, default_buffer_prototype

from ucxstore import UcxStore
from ucxstore.server import Server

PROTOTYPE = default_buffer_prototype()
SIZE = (2 << 30) + 12_345_672
MARKS = (0, (2 << 30) - 8, 2 << 30, SIZE - 8)  # all but these bytes are 0: no disk is filled


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("large")
    with (root / "value").open("wb") as file:
        file.truncate(SIZE)
        for number, mark in enumerate(MARKS):
            os.pwrite(file.fileno(), mark_bytes(number), mark)
    return root


@pytest.fixture(scope="module")
def store(root: Path) -> Iterator[UcxStore]:
    with Server.spawn(root) as server, UcxStore(server.address) as store:
        yield store


def mark_bytes(number: int) -> bytes:
    return bytes([number + 1] * 8)


def is_right(value: np.ndarray) -> bool:
    marks = all(
        value[mark : mark + 8].tobytes() == mark_bytes(number) for number, mark in enumerate(MARKS)
    )
    return marks and np.count_nonzero(value.view("u8")) == len(MARKS)


def test_a_part(store: UcxStore) -> None:
    for number, mark in enumerate(MARKS):
        request = RangeByteRequest(mark, mark + 8)
        part = store.get_sync("value", prototype=PROTOTYPE, byte_range=request)
        assert part is not None
        assert part.to_bytes() == mark_bytes(number)
    tail = store.get_sync("value", prototype=PROTOTYPE, byte_range=SuffixByteRequest(9))
    assert tail is not None
    assert tail.to_bytes() == b"\0" + mark_bytes(3)


@pytest.mark.full
def test_the_whole(store: UcxStore) -> None:
    out = np.full(SIZE, 255, "u1")
    assert store.get_into_sync("value", out) == SIZE
    assert is_right(out)


@pytest.mark.full
def test_a_chunk(store: UcxStore, root: Path) -> None:
    group = zarr.create_group(store, path="group")
    array = group.create_array("a", shape=SIZE, chunks=SIZE, dtype="u1", compressors=None)
    (root / "group/a/c").mkdir(parents=True)
    os.link(root / "value", root / "group/a/c/0")
    assert is_right(array[:])
    assert array[SIZE - 8 :].tobytes() == mark_bytes(3)


@pytest.mark.full
def test_written() -> None:
    value = np.zeros(SIZE, "u1")
    for number, mark in enumerate(MARKS):
        value[mark : mark + 8] = np.frombuffer(mark_bytes(number), "u1")
    with Server.spawn("memory://") as server, UcxStore(server.address) as store:
        store.set_sync("value", cpu.Buffer.from_array_like(value))
        value[:] = 255
        assert store.get_into_sync("value", value) == SIZE
    assert is_right(value)
