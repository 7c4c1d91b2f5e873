"""A pytest plugin for zarr's own tests: what they take for `MemoryStore` is a `UcxStore`.

``make test-zarr`` runs them from zarr's source distribution. Every store that a test makes in
memory, by name, by fixture, from a dictionary or by default, is one of ours, with a prefix of its
own on one server; and every test runs with our pipeline selected, as it is in any process that has
made a `UcxStore`. Tests that hold for `MemoryStore` alone are listed in `differences`: they are run
too, must fail, and are reported with their reasons.
"""

import importlib
import uuid
from collections import Counter
from collections.abc import Iterator, MutableMapping
from typing import Any

import pytest
from differences import DIFFERENCES
from zarr.core.buffer import Buffer
from zarr.core.sync import sync

from ucxstore import UcxStore
from ucxstore.base.counters import Counters
from ucxstore.pipeline.selection import select_pipeline
from ucxstore.server import Server

SHORT = ("direct", "decode")
CHUNKS = (*SHORT, "fallback")
COUNTED = "ucxstore counted"
OTHER_STORES = {"local", "zip", "fsspec"}

server = Server("memory://")
keeper = UcxStore(server.address)
keeper.get_sync("key")  # connects, and so keeps the connection between tests
counters: list[Counters] = []
counted: Counter[str] = Counter()  # in the end, of all workers
served_dicts: dict[int, tuple[object, str]] = {}


class Values(MutableMapping[str, Buffer]):
    """Stands for the dictionary inside of a `MemoryStore`."""

    def __init__(self, store: UcxStore) -> None:
        self.store = store

    def __getitem__(self, key: str) -> Buffer:
        value = self.store.get_sync(key)
        if value is None:
            raise KeyError(key)
        return value

    def __setitem__(self, key: str, value: Buffer) -> None:
        self.store.set_sync(key, value)

    def __delitem__(self, key: str) -> None:
        self.store.delete_sync(key)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys())

    def __len__(self) -> int:
        return len(self._keys())

    def _keys(self) -> list[str]:
        async def collect() -> list[str]:
            return [key async for key in self.store.list()]

        return sync(collect())


class MemoryStore(UcxStore):
    """zarr's `MemoryStore`, to look at."""

    def __init__(
        self, store_dict: MutableMapping[str, Buffer] | None = None, *, read_only: bool = False
    ) -> None:
        if isinstance(store_dict, Values):
            given: Any = {}
            address = store_dict.store.address
        elif store_dict is None:
            address, given = _new_address(), {}
        elif id(store_dict) in served_dicts:  # the same dictionary is the same store
            address, given = served_dicts[id(store_dict)][1], {}
        else:
            address, given = _new_address(), store_dict
            served_dicts[id(store_dict)] = store_dict, address
        super().__init__(address, read_only=read_only)
        self._store_dict.update(given)
        counters.append(self._counters)

    # zarr's takes a range, which it ignores, and tests hand it on.
    async def set(self, key: str, value: Buffer, byte_range: object = None) -> None:
        await super().set(key, value)

    @property
    def _store_dict(self) -> Values:
        return Values(self.with_read_only(False))


def _new_address() -> str:
    return f"{server.address}/{uuid.uuid4().hex}"


# Before any test module or conftest imports it. Not in `zarr.core.array`, which asks whether two
# stores share a dictionary: ours are compared by their addresses, as any other stores.
for _name in (
    "zarr.storage",
    "zarr.storage._memory",
    "zarr.storage._common",
    "zarr.testing.buffer",
    "zarr.testing.strategies",
):
    importlib.import_module(_name).MemoryStore = MemoryStore  # type: ignore[attr-defined]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--served-only",
        action="store_true",
        help="leave out what is parametrised with stores that are not ours",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        for difference in DIFFERENCES:
            if difference.concerns(item.nodeid):
                item.add_marker(pytest.mark.xfail(strict=True, reason=difference.reason))
    files = {item.nodeid.partition("::")[0] for item in items}
    stale = [
        difference.test
        for difference in DIFFERENCES
        if difference.file in files and not any(difference.concerns(i.nodeid) for i in items)
    ]
    if stale and not any("::" in argument for argument in config.args):
        raise pytest.UsageError(f"zarr has no such tests: {stale}")
    if config.getoption("served_only"):
        others = [item for item in items if _has_other_store(item)]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item not in others]


def _has_other_store(item: pytest.Item) -> bool:
    callspec = getattr(item, "callspec", None)
    parameters: dict[str, Any] = callspec.params if callspec is not None else {}
    return any(parameters.get(name) in OTHER_STORES for name in ("store", "store2", "sync_store"))


def pytest_configure(config: pytest.Config) -> None:
    # zarr's tests choose pipelines of their own, and take warnings for errors.
    config.addinivalue_line("filterwarnings", "ignore:zarr reads arrays of ucx:UserWarning")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call() -> None:
    select_pipeline(None)  # zarr's fixtures reset the configuration before each test


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail where nothing of ours was tested, unless only some tests were asked for."""
    counted.update(_counted_here())
    if hasattr(session.config, "workeroutput"):  # a worker of pytest-xdist's: it tells, and is done
        session.config.workeroutput[COUNTED] = dict(counted)
        return
    some = session.config.option.collectonly or session.config.option.keyword
    if not some and not all(counted[way] for way in SHORT):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Add what a worker of pytest-xdist's has counted."""
    counted.update(getattr(node, "workeroutput", {}).get(COUNTED, {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    chunks = ", ".join(f"{counted[way]} {way}" for way in CHUNKS)
    terminalreporter.write_line(
        f"{counted['stores']} stores of ours; chunks that went each way: {chunks}"
    )


def pytest_unconfigure() -> None:
    keeper.close()
    server.close()


def _counted_here() -> Counter[str]:
    total = Counter(stores=len(counters))
    for one in counters:
        total.update({way: one.snapshot([])[way] for way in CHUNKS})
    return total
