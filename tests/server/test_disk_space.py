"""How full a disk is, as the kernel tells; and where it does not."""

import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from obstore.store import MemoryStore

from tests.eventually import eventually
from ucxstore.server import Server
from ucxstore.server.disk_space import DiskSpace, Space


def test_a_directory_and_a_cache_directory_have_a_disk(tmp_path: Path) -> None:
    expected = shutil.disk_usage(tmp_path)
    cache = tmp_path / "cache"
    for storage, options in (
        (tmp_path, {}),
        (MemoryStore(), {"cache_dir": cache, "cache_dir_size": 1 << 20}),
    ):
        with Server(storage, **options) as server:
            space = server.disk_space()
            assert space is not None
            assert space.size == expected.total
            assert abs(space.free - expected.free) < expected.total / 10
        assert server.disk_space() is None  # once it is closed


@pytest.mark.parametrize("storage", ["memory://", MemoryStore()])
def test_others_have_none(storage: Any) -> None:
    with Server(storage) as server:
        assert server.disk_space() is None


def test_a_disk_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on = threading.Event()
    asked: list[object] = []
    real = os.statvfs

    def slow(where: Any) -> os.statvfs_result:
        asked.append(where)
        goes_on.wait(240)
        return real(where)

    monkeypatch.setattr(os, "statvfs", slow)
    space = DiskSpace(str(tmp_path))
    assert [space.read(0.01) for _ in range(5)] == [None] * 5
    assert len(asked) == 1  # and one thread that waits
    goes_on.set()
    eventually(lambda: isinstance(space.read(), Space))


def test_a_folder_that_has_gone(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    assert DiskSpace(str(gone)).read() is None
    gone.mkdir()
    assert DiskSpace(str(gone)).read() is not None
