"""Servers for all tests, one of each storage, and a prefix of its own for each test."""

import gc
import os
import signal
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import zarr
from obstore.store import MemoryStore
from zarr.core.sync import sync

from tests.backdoor import Backdoor, DirectoryBackdoor, MemoryBackdoor, ObjectBackdoor
from tests.drawing import load_profile
from tests.resident import MOST_BYTES, Kept
from tests.server.sources.http_objects import HttpObjects, http_objects
from ucxstore import UcxStore
from ucxstore.base import logs
from ucxstore.base.secret import ENVIRONMENT_FILE, ENVIRONMENT_SECRET
from ucxstore.cluster import member
from ucxstore.pipeline import selection
from ucxstore.server import Server

load_profile()

SECRET = "a secret that is long enough"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="tests marked `scales` in their full size")


def pytest_configure(config: pytest.Config) -> None:
    """Set what holds for the processes that tests start, too."""
    # A shell makes its background processes ignore SIGINT, and nohup SIGHUP. Tests send both.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    # As between hosts; tests/local has the tests of the local plane, and tests/ucx those of UCX.
    os.environ["UCXSTORE_LOCAL"] = "off"
    # As on a machine with RDMA, where UCX hooks mmap and caches registered memory.
    if config.getoption("--full"):
        os.environ.setdefault("UCX_MEM_MMAP_HOOK_MODE", "bistro")
    else:
        config.pluginmanager.register(Kept(MOST_BYTES))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how many tests have recorded each text to be counted, in whatever process."""
    reports = chain.from_iterable(terminalreporter.stats.values())
    counted = Counter(
        text
        for report in reports
        if getattr(report, "when", "") == "call"
        for name, text in report.user_properties
        if name == "counted"
    )
    for text in sorted(counted):
        terminalreporter.write_line(f"{counted[text]:5} {text}")


def pytest_collection_finish() -> None:
    """Keep thousands of tests, and all modules, out of the garbage that is looked for later.

    A sixth of the time of all tests was spent on that, most of it where tests ask for it; by itself
    Python looks less often, too.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@pytest.fixture(autouse=True)
def refusals_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no test hold back the lines of another one: they are one process."""
    monkeypatch.setattr(logs, "refusals", logs.Refusals())


@pytest.fixture(scope="session")
def full(request: pytest.FixtureRequest) -> bool:
    """Whether a test that is marked ``scales`` takes its full size."""
    return bool(request.config.getoption("--full"))


# Servers that tests of this process share, those of one store together, and the bytes that their
# values have taken after the last test.
_shared: dict[tuple[Server, ...], int] = {}

# Values of a test that are worth the milliseconds that it takes to delete them. In thousands of
# tests, those of one megabyte come to gigabytes.
WORTH_DELETING = 1 << 18


@contextmanager
def shared(*servers: Server) -> Iterator[None]:
    """Let tests delete their values from servers that live as long as the process."""
    _shared[servers] = 0
    yield
    del _shared[servers]


def bytes_in(servers: Iterable[Server]) -> int:
    """Return the bytes that values take of the memory of some servers."""
    return sum(one["value_bytes"] + one["cached_bytes"] for one in (s.stats() for s in servers))


@contextmanager
def connected(*servers: Server) -> Iterator[None]:
    """Keep connections, which all stores of a process share; also do as `shared`.

    To connect over UCX takes 45 ms of a processor, which is more than most tests.
    """
    with ExitStack() as stack:
        stack.enter_context(shared(*servers))
        for server in servers:
            stack.enter_context(UcxStore(server.address)).ping_sync()
        yield


@pytest.fixture(scope="session")
def memory_server() -> Iterator[Server]:
    with Server("memory://") as server, connected(server):
        yield server


@pytest.fixture
def ucx_address() -> Iterator[str]:
    """The address of a server that offers UCX."""
    with Server("memory://", network="ucx") as server:
        yield server.address


@pytest.fixture(scope="session")
def directory_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("served")


@pytest.fixture(scope="session")
def directory_server(directory_root: Path) -> Iterator[Server]:
    with Server(directory_root) as server, connected(server):
        yield server


@pytest.fixture(scope="session")
def three_servers() -> Iterator[list[Server]]:
    """Servers with values of their own, for one store."""
    with ExitStack() as stack:
        servers = [stack.enter_context(Server("memory://")) for _ in range(3)]
        stack.enter_context(connected(*servers))
        yield servers


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[Server]]:
    """Servers of directories, for one store."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(Server(tmp_path / str(number), create=True)) for number in range(3)
        ]


@pytest.fixture(scope="module")
def guarded() -> Iterator[Server]:
    """A server that asks for `SECRET`."""
    with Server("memory://", secret=SECRET) as server:
        yield server


@pytest.fixture(scope="session")
def memory_backdoor(memory_server: Server) -> Iterator[Backdoor]:
    with MemoryBackdoor(memory_server.address) as backdoor:
        yield backdoor


def place_of(server: Any) -> str:
    """Return where a server listens, as addresses of several servers name it."""
    place: str = server.address.removeprefix("ucx://")
    return place


def address_of(servers: Iterable[Any], prefix: str = "") -> str:
    """Return the address of a store of several servers."""
    return f"ucx://{','.join(map(place_of, servers))}/{prefix}"


@pytest.fixture(scope="module", params=["one server", "three servers"])
def any_address(request: pytest.FixtureRequest) -> str:
    """An address of one memory server, and of several."""
    if request.param == "one server":
        return f"{request.getfixturevalue('memory_server').address}/{uuid.uuid4().hex}"
    return address_of(request.getfixturevalue("three_servers"), uuid.uuid4().hex)


@pytest.fixture(scope="session")
def object_store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture(scope="session")
def object_server(object_store: MemoryStore) -> Iterator[Server]:
    with Server(object_store) as server, connected(server):
        yield server


@pytest.fixture(params=["memory", "directory"])
def storage(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def server(storage: str, request: pytest.FixtureRequest) -> Server:
    return request.getfixturevalue(f"{storage}_server")


@pytest.fixture
def backdoor(storage: str, request: pytest.FixtureRequest) -> Backdoor:
    """A way to the values that goes past the store."""
    if storage == "memory":
        return request.getfixturevalue("memory_backdoor")
    if storage == "object":
        return ObjectBackdoor(request.getfixturevalue("object_store"))
    return DirectoryBackdoor(request.getfixturevalue("directory_root"))


@pytest.fixture
def prefix() -> Iterator[str]:
    """A folder of the test's own, on servers that other tests have, too."""
    name = uuid.uuid4().hex
    yield name
    for servers, before in _shared.items():
        if bytes_in(servers) > before + WORTH_DELETING:
            with UcxStore(address_of(servers, name)) as store:
                sync(store.delete_dir(""))
            _shared[servers] = bytes_in(servers)


@pytest.fixture
def address(server: Server, prefix: str) -> str:
    return f"{server.address}/{prefix}"


@pytest.fixture
def ucx_store(address: str) -> Iterator[UcxStore]:
    with UcxStore(address) as store:
        yield store


@pytest.fixture
def zarr_config(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Take back what a test does to zarr's choice of a pipeline."""
    monkeypatch.setattr(selection, "_replaced", None)
    monkeypatch.setattr(selection, "_warned", set())
    with zarr.config.set({"codec_pipeline.path": zarr.config.get("codec_pipeline.path")}):
        yield


@pytest.fixture
def no_secret_around(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ENVIRONMENT_SECRET, raising=False)
    monkeypatch.delenv(ENVIRONMENT_FILE, raising=False)


@pytest.fixture
def retried_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let clients of several servers look again soon at one that is away."""
    monkeypatch.setattr(member, "RETRY_SECONDS", 0.05)


@pytest.fixture
def two_threads() -> Iterator[None]:
    """Use so few threads that most reads have more groups than threads."""
    with zarr.config.set({"threading.max_workers": 2}):
        yield


@pytest.fixture
def objects() -> Iterator[HttpObjects]:
    with http_objects() as state:
        yield state
