"""Several servers of one directory: a change that one of them makes late undoes nothing.

What holds it up is the file system, or the server stands still. Meanwhile its client gives it up,
and another server makes a later one.
"""

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import pytest
from zarr.core.sync import sync

from tests.durability.recording import preload
from tests.eventually import eventually
from tests.stopping import stop
from tests.values import as_buffer
from ucxstore import RequestTimeoutError, Server, StorageError, UcxStore, UnknownOutcomeError

HELD = Path(__file__).with_name("held.c")
KEY = "c/0/0"

_SERVE = """
import sys
from ucxstore import Server
options = dict(zip(sys.argv[2::2], map(eval, sys.argv[3::2])))
with Server(sys.argv[1], **options) as server:
    print(server.address, flush=True)
    sys.stdin.read()
"""


class Serving:
    """A server in a process of its own."""

    def __init__(
        self, location: str | Path, environment: dict[str, str], **options: object
    ) -> None:
        arguments = [text for name, value in options.items() for text in (name, repr(value))]
        self.process = subprocess.Popen(
            [sys.executable, "-c", _SERVE, str(location), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | environment,
        )
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().strip()

    def stop(self) -> None:
        """Have it stand still."""
        stop(self.process.pid)

    def close(self) -> None:
        """End it."""
        self.process.send_signal(signal.SIGCONT)
        with suppress(BrokenPipeError):
            assert self.process.stdin is not None
            self.process.stdin.close()
        try:
            self.process.wait(60)
        finally:
            self.process.kill()
            self.process.wait()
            assert self.process.stdout is not None
            self.process.stdout.close()


type Serve = Callable[..., Serving]
type OpenStore = Callable[..., UcxStore]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return preload(HELD, tmp_path_factory.mktemp("held"))


@pytest.fixture
def held(tmp_path: Path) -> Path:
    return tmp_path / "held"


@pytest.fixture
def serve(library: Path, held: Path, tmp_path: Path) -> Iterator[Serve]:
    """Start servers; `held` says what is to be held up in the first one."""
    begun: list[bool] = []
    with ExitStack() as ends:

        def start(**options: object) -> Serving:
            environment = {"LD_PRELOAD": str(library)} | ({} if begun else {"HELD": str(held)})
            begun.append(True)
            (tmp_path / "root").mkdir(exist_ok=True)
            serving = Serving(tmp_path / "root", environment, **options)
            ends.callback(serving.close)
            return serving

        yield start
        held.unlink(missing_ok=True)


@pytest.fixture
def open_store() -> Iterator[OpenStore]:
    with ExitStack() as ends:

        def start(serving: Serving | Server, **options: object) -> UcxStore:
            return ends.enter_context(UcxStore(serving.address, **options))

        yield start


def value_of(store: UcxStore) -> bytes | None:
    value = store.get_sync(KEY)
    return None if value is None else value.to_bytes()


def change_late(store: UcxStore, call: str) -> None:
    """Begin the change that is held up at a call, and give it up."""
    late = as_buffer(b"late")
    changes: dict[str, Callable[[str], object]]
    changes = {"unlinkat": store.delete_sync, "linkat": partial(store.add_sync, value=late)}
    with pytest.raises(UnknownOutcomeError):
        changes.get(call, partial(store.set_sync, value=late))(KEY)


def set_until_taken(store: UcxStore, value: bytes, go_on: Callable[[], None]) -> None:
    """Set the key; where that is refused, as somebody else is changing it, again later."""
    refused = ""
    try:
        store.set_sync(KEY, as_buffer(value))
    except StorageError as error:
        refused = str(error)
    go_on()
    if refused:
        assert "another server has been changing it" in refused
        store.set_sync(KEY, as_buffer(value))


@pytest.mark.parametrize("durability", ["atomic", pytest.param("none", marks=pytest.mark.full)])
@pytest.mark.parametrize("call", ["renameat", "linkat", "unlinkat", "fdatasync"])
def test_a_change_that_the_file_system_holds_up(
    call: str,
    durability: str,
    serve: Serve,
    open_store: OpenStore,
    held: Path,
) -> None:
    if call == "fdatasync" and durability == "none":
        return  # nothing is flushed
    slow = serve(shared=True, durability=durability)
    first = open_store(slow, timeout=1)
    if call != "linkat":
        first.set_sync(KEY, as_buffer(b"before"))
    held.write_text(call)
    change_late(first, call)
    now = held.with_name("held.now")
    assert now.exists()
    second = open_store(serve(shared=True, durability=durability))
    set_until_taken(second, b"after", held.unlink)
    # Whatever the slow server had begun has ended once it has ended.
    slow.close()
    assert value_of(second) == b"after"


@pytest.mark.parametrize("durability", ["atomic", pytest.param("none", marks=pytest.mark.full)])
@pytest.mark.parametrize("way", [{}, {"local": "ucx", "ucx": {"TLS": "tcp"}}], ids=["local", "tcp"])
@pytest.mark.parametrize("removes", [False, True], ids=["set", "delete"])
def test_a_change_at_a_server_that_stands_still(
    removes: bool,
    way: dict[str, object],
    durability: str,
    serve: Serve,
    open_store: OpenStore,
) -> None:
    stopped = serve(shared=True, durability=durability, network="ucx")
    first = open_store(stopped, timeout=1, **way)
    first.set_sync(KEY, as_buffer(b"before"))
    second = open_store(serve(shared=True, durability=durability))
    stopped.stop()
    change_late(first, "unlinkat" if removes else "renameat")
    second.set_sync(KEY, as_buffer(b"after"))
    stopped.process.send_signal(signal.SIGCONT)

    def answers() -> bool:
        with suppress(RequestTimeoutError):
            first.ping_sync()
            return True
        return False

    eventually(answers)  # so the server has read what the client had sent before
    stopped.close()
    assert value_of(second) == b"after"


# ---- what killed servers leave ----


def test_unfinished_files_that_nobody_has_go(tmp_path: Path, open_store: OpenStore) -> None:
    folder = tmp_path / "c/0"
    folder.mkdir(parents=True)
    left = [path / f".ucxstore-{'0' * 15}{n}.partial" for n, path in enumerate((tmp_path, folder))]
    others = [folder / ".ucxstore-ucxstore-0123456789abcdef.partial", folder / "0.partial"]
    under_way = folder / f".ucxstore-{'a' * 16}.partial"
    for file in (*left, *others, under_way):
        file.write_bytes(b"half")
    with under_way.open() as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        with Server(tmp_path, read_only=True) as server:
            open_store(server).ping_sync()
        assert all(file.exists() for file in left)
        with Server(tmp_path) as server:
            eventually(lambda: not any(file.exists() for file in left))
            assert list(wait_for_list(open_store(server))) == ["c/0/0.partial"]
        assert all(file.exists() for file in (*others, under_way))
    with Server(tmp_path):
        eventually(lambda: not under_way.exists())


def wait_for_list(store: UcxStore) -> list[str]:
    async def names() -> list[str]:
        return [name async for name in store.list()]

    return sync(names())


# ---- who may write at all ----


def test_a_directory_has_one_server_unless_all_say_so(tmp_path: Path) -> None:
    alone = Server(tmp_path)
    with Server(tmp_path, read_only=True):
        for shared in (False, True):
            with pytest.raises(StorageError, match=f"{tmp_path}: another server writes to this"):
                Server(tmp_path, shared=shared)
    alone.close()
    with (
        Server(tmp_path, shared=True),
        Server(tmp_path, shared=True),
        pytest.raises(StorageError, match="another server writes to this directory"),
    ):
        Server(tmp_path)
    with Server(tmp_path):
        pass


def test_a_killed_server_leaves_the_directory_to_the_next(serve: Serve, tmp_path: Path) -> None:
    for _ in range(2):
        killed = serve()
        killed.process.kill()
    with Server(tmp_path / "root"):
        pass
