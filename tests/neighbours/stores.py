"""A pytest plugin for the tests of other projects: zarr's stores in them are `UcxStore`s.

Every store that a test makes in memory has a prefix of its own at one server of memory. Every store
that it makes of a path below the folder for temporary files has that path as its prefix, at a
server of this folder, so that the files are where the test looks for them. The servers run in the
process of ``python -m tests.neighbours``, which says in the environment where they are. Without
that, zarr's own stores stay.
"""

import importlib
import os
import threading
import uuid
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any, Self

import pytest
import zarr.storage
from zarr.core.buffer import Buffer
from zarr.core.common import AccessModeLiteral

from tests.neighbours.outcomes import Outcomes
from ucxstore import UcxStore
from ucxstore.pipeline.selection import select_pipeline
from ucxstore.pipeline.workers import codec_threads

REPLACED = "NEIGHBOURS_FOLDER" in os.environ

_local_store = zarr.storage.LocalStore
_outcomes = Outcomes()
_dicts: dict[int, tuple[object, str]] = {}


class MemoryStore(UcxStore):
    """In place of zarr's: a prefix of its own, the same one for the same dictionary."""

    def __init__(
        self, store_dict: MutableMapping[str, Buffer] | None = None, *, read_only: bool = False
    ) -> None:
        new = f"{os.environ['NEIGHBOURS_MEMORY']}/{uuid.uuid4().hex}"
        _, address = (None, new) if store_dict is None else _dicts.get(id(store_dict), (None, new))
        super().__init__(address, read_only=read_only)
        if store_dict is not None and id(store_dict) not in _dicts:
            _dicts[id(store_dict)] = store_dict, address
            for key, value in store_dict.items():
                self.set_sync(key, value)


class LocalStore(UcxStore):
    """In place of zarr's: the path is the prefix at a server of the folder that it is in."""

    def __new__(cls, root: Path | str | None = None, **options: Any) -> Any:
        if root is None or _prefix_of(root) is not None:
            return super().__new__(cls)
        return _local_store(root, **options)  # where no server of ours is

    def __init__(self, root: Path | str, *, read_only: bool = False) -> None:
        address = f"{os.environ['NEIGHBOURS_DIRECTORY']}/{_prefix_of(root)}"
        super().__init__(address, read_only=read_only)

    @property
    def root(self) -> Path:
        return Path(os.environ["NEIGHBOURS_FOLDER"], self._address.prefix)

    @classmethod
    async def open(
        cls, root: Path | str, *, read_only: bool = False, mode: AccessModeLiteral | None = None
    ) -> Self:
        """Do as zarr's: the folder is there, or is made, before there is a value."""
        if mode in ("r", "r+") or (mode is None and read_only):
            if not Path(root).exists():
                raise FileNotFoundError(f"{root} does not exist")
        else:
            Path(root).mkdir(parents=True, exist_ok=True)
        store = cls(root, read_only=read_only)
        await store._open()
        return store


def _prefix_of(root: Path | str) -> str | None:
    """Return a path below the served folder, as a prefix."""
    path, folder = Path(root).absolute(), Path(os.environ["NEIGHBOURS_FOLDER"])
    return path.relative_to(folder).as_posix() if path.is_relative_to(folder) else None


if REPLACED:
    # Before any test module imports them.
    for _name in "zarr.storage", "zarr.storage._memory", "zarr.storage._common":
        importlib.import_module(_name).MemoryStore = MemoryStore  # type: ignore[attr-defined]
    for _name in "zarr.storage", "zarr.storage._local", "zarr.storage._common":
        importlib.import_module(_name).LocalStore = LocalStore  # type: ignore[attr-defined]
    # Dask's tests count the threads that one of them leaves. Ours stay for the next read, as the
    # one of zarr's event loop does, and so begin here.
    _pool, _size = codec_threads()
    _all = threading.Barrier(_size)
    list(_pool.map(lambda _: _all.wait(), range(_size)))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call() -> None:
    if REPLACED:
        select_pipeline(None)  # as in any process that has made a `UcxStore`


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _outcomes.add(report.nodeid, report.outcome, report.when or "")


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        _outcomes.add(report.nodeid, report.outcome, "collect")


def pytest_sessionfinish(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):  # a worker of pytest-xdist's tells the other
        _outcomes.write(Path(os.environ["NEIGHBOURS_OUTCOMES"]))
