"""``ucxstore cp`` between every two kinds of places; what it does when that cannot be."""

import asyncio
import os
import pty
import re
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import obstore
import obstore.store
import pytest
import zarr
from zarr.core.buffer import Buffer, cpu
from zarr.core.sync import sync

from tests.eventually import eventually
from tests.tools.command import COMMAND, run
from ucxstore import UcxStore
from ucxstore.copies.s3 import S3Server, s3_server
from ucxstore.server import Server
from ucxstore.tools import cp, places
from ucxstore.tools.copy_plan import Entry, plan_copy
from ucxstore.tools.options import ToolError
from ucxstore.tools.places import DirectoryPlace, ServerPlace, open_objects

pytestmark = pytest.mark.usefixtures("zarr_config")

type Named = Callable[[str, str], str]
"""Makes the name of a place of one kind."""

PLACES = ["directory", "server", "s3"]


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def s3_environment(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3.secret_key)
    monkeypatch.setenv("AWS_REGION", s3.region)


@pytest.fixture
def values() -> dict[str, bytes]:
    random = np.random.default_rng(5)
    sizes = {
        "zarr.json": 300,
        "a/zarr.json": 400,
        "a/c/0/0": 0,
        "a/c/0/1": 100_000,
        "a/c/1/0": 100_000,
        "ä b/100%": 10,
        "big": 20_000_000,  # several parts of an object, and larger than a group
    } | {f"small/c/{number}": number for number in range(60)}
    return {key: random.bytes(size) for key, size in sizes.items()}


@pytest.fixture
def named(request: pytest.FixtureRequest, tmp_path: Path, address: str, prefix: str) -> Named:
    def name(kind: str, which: str) -> str:
        if kind == "s3":
            s3 = request.getfixturevalue("s3")
            request.getfixturevalue("s3_environment")
            return f"s3://{s3.bucket}/{prefix}/{which}"
        return str(tmp_path / which) if kind == "directory" else f"{address}/{which}"

    return name


def everything(place: str) -> dict[str, bytes]:
    """Return what is at a place, not by way of the code that copies."""
    if place.startswith("ucx://"):
        return sync(_everything(UcxStore(place)))
    if place.startswith("s3://"):
        store = obstore.store.from_url(place)
        listed = [meta["path"] for batch in obstore.list(store) for meta in batch]
        return {key: bytes(obstore.get(store, key).bytes()) for key in listed}
    root = Path(place)
    files = (path for path in root.rglob("*") if path.is_file())
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


async def _everything(store: UcxStore) -> dict[str, bytes]:
    found = {}
    async for key in store.list():
        value = await store.get(key)
        assert value is not None
        found[key] = value.to_bytes()
    return found


def fill(place: str, values: dict[str, bytes]) -> None:
    if place.startswith("ucx://"):
        store = UcxStore(place)
        for key, value in values.items():
            store.set_sync(key, cpu.Buffer.from_bytes(value))
    elif place.startswith("s3://"):
        objects = obstore.store.from_url(place)
        for key, value in values.items():
            obstore.put(objects, key, value)
    else:
        for key, value in values.items():
            path = Path(place, key)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(value)


@pytest.mark.parametrize("destination", PLACES)
@pytest.mark.parametrize("source", PLACES)
def test_between_places(
    source: str, destination: str, values: dict[str, bytes], named: Named
) -> None:
    first, second = named(source, "first"), named(destination, "second")
    fill(first, values)
    done = run("cp", first, second)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"copied 67 values, 20\.\d MB in .* s \(.*/s\)\n", done.stdout)
    assert everything(second) == values
    again = run("cp", first, second)
    assert again.stdout.startswith("copied 0 values, 0 B in ")
    assert again.stdout.endswith("; 67 were there\n")


def test_what_has_changed_is_copied(named: Named, values: dict[str, bytes]) -> None:
    first, second = named("directory", "first"), named("directory", "second")
    fill(first, values)
    assert run("cp", "--quiet", first, f"file://{second}").returncode == 0
    Path(first, "a/c/0/1").write_bytes(b"shorter")
    Path(first, "a/c/1/0").write_bytes(bytes(100_000))  # and newer
    os.utime(Path(first, "big"), (1, 1))  # older
    done = run("cp", first, second)
    assert done.stdout.startswith("copied 2 values, 100 kB")
    assert everything(second) == everything(first)


def test_all_copies_what_is_there(named: Named) -> None:
    first, second = named("directory", "first"), named("server", "second")
    fill(first, {"a": b"1"})
    fill(second, {"a": b"2"})  # a server knows no times: the size is all there is to go by
    assert run("cp", first, second).stdout.startswith("copied 0 values")
    assert run("cp", "--all", first, second).stdout.startswith("copied 1 values")
    assert everything(second) == {"a": b"1"}


def test_an_array_can_be_read_where_it_was_copied_to(named: Named) -> None:
    first, second = named("directory", "first"), named("server", "second")
    wanted = np.random.default_rng(2).random((100, 100))
    zarr.create_array(first, data=wanted, chunks=(10, 10))
    assert run("cp", "--jobs", 3, first, second).returncode == 0
    np.testing.assert_array_equal(zarr.open_array(UcxStore(second), mode="r")[:], wanted)


def test_a_copy_that_was_killed_goes_on(named: Named) -> None:
    """Whole values or none: what is under a key when the process dies is what belongs there."""
    first, second = named("directory", "first"), named("directory", "second")
    values = {f"c/{number}": bytes([number]) * 8_000_000 for number in range(40)}
    fill(first, {**values, "zarr.json": b"{}"})
    with subprocess.Popen([*COMMAND, "cp", "--jobs", "2", first, second]) as process:
        eventually(lambda: len(list(Path(second).glob("c/*"))) > 3 or process.poll() is not None)
        process.kill()
    assert process.returncode == -signal.SIGKILL, "it was faster than the test"
    there = {
        key: value for key, value in everything(second).items() if not re.search(r"#\d+$", key)
    }
    assert 0 < len(there) < len(values)
    assert all(values[key] == value for key, value in there.items())
    done = run("cp", first, second)
    assert done.returncode == 0
    assert f"; {len(there)} were there" in done.stdout
    found = everything(second)
    assert {key: found[key] for key in values} == values


def test_a_read_only_server(named: Named, tmp_path: Path) -> None:
    first = named("directory", "first")
    fill(first, {"a/c/0": b"x"})
    with Server(tmp_path / "served", read_only=True) as server:
        done = run("cp", first, f"{server.address}/b")
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert line.startswith("ucxstore cp: ")
    assert "b/a/c/0" in line
    assert "read" in line


def test_a_directory_that_cannot_be_written(named: Named) -> None:
    first, second = named("directory", "first"), Path(named("directory", "second"))
    fill(first, {"a/c/0": b"x"})
    second.mkdir()
    (second / "a").write_text("a file where a folder should be")
    done = run("cp", first, second)
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert f"{second}: a/c/0: " in line


@pytest.mark.parametrize("side", ["source", "destination"])
def test_a_link_that_leads_out_of_a_directory(side: str, named: Named, tmp_path: Path) -> None:
    first, second = Path(named("directory", "first")), Path(named("directory", "second"))
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "0").write_bytes(b"old")
    if side == "source":
        first.mkdir()
        (first / "c").symlink_to(outside)
    else:
        fill(str(first), {"c/0": b"new value"})
        second.mkdir()
        (second / "c").symlink_to(outside)
    done = run("cp", first, second)
    assert done.returncode == 1
    assert "c/0: a symbolic link leads out of the directory" in done.stderr
    assert (outside / "0").read_bytes() == b"old"
    assert list(second.glob("*/*")) == ([] if side == "source" else [second / "c/0"])


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["/no/such/place", "/tmp/x"], 2, "/no/such/place: there is no such directory"),
        (["gopher://x", "/tmp/x"], 2, "gopher://x"),
        (["ucx://127.0.0.1", "/tmp/x"], 2, "names no port"),
        (["--jobs", "0", "/tmp", "/tmp/x"], 2, "--jobs: 0"),
        (["ucx://127.0.0.1:1/x", "ucx://127.0.0.1:1/y"], 1, "127.0.0.1:1"),
    ],
)
def test_what_is_no_place(arguments: list[str], status: int, message: str) -> None:
    done = run("cp", *arguments)
    assert done.returncode == status
    [line] = done.stderr.splitlines()
    assert line.startswith("ucxstore cp: ")
    assert message in line


def test_an_empty_source(named: Named, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "there is nothing" in run("cp", tmp_path / "empty", named("server", "x")).stderr
    assert "there is nothing" in run("cp", named("server", "x"), tmp_path / "y").stderr


def test_a_bar_on_a_terminal(named: Named) -> None:
    first, second = named("directory", "first"), named("directory", "second")
    fill(first, {"a": bytes(1000)})
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*COMMAND, "cp", first, second], stderr=theirs, env={**os.environ, "TERM": "xterm"}
    ) as process:
        os.close(theirs)
        shown = b""
        with suppress(OSError):  # the other end was closed
            while some := os.read(ours, 1000):
                shown += some
        os.close(ours)
        assert process.wait(60) == 0
    assert b"100%" in shown


# ---- in this process ----


class Watched:
    """A place in memory that counts what is between reading and writing."""

    max_keys = 4

    def __init__(self) -> None:
        self.now = self.peak = 0
        self.written: list[str] = []

    async def list(self) -> AsyncIterator[Entry]:
        for number in range(60):
            yield Entry(f"c/{number}", 1000 * number)
        yield Entry("zarr.json", 10)

    def check(self, key: str) -> None: ...

    async def read(self, entries: Sequence[Entry]) -> Sequence[Buffer]:
        self.now += sum(entry.size for entry in entries)
        self.peak = max(self.peak, self.now)
        await asyncio.sleep(0)
        return [cpu.Buffer.from_bytes(bytes(entry.size)) for entry in entries]

    async def write(self, entries: Sequence[Entry], values: Sequence[Buffer]) -> None:
        await asyncio.sleep(0)
        self.now -= sum(map(len, values))
        self.written += [entry.key for entry in entries]

    def close(self) -> None: ...


@pytest.mark.parametrize("budget", [1, 100_000, 500_000])
async def test_memory_is_bounded(budget: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cp, "DEFAULT_BUFFER_BUDGET", budget)
    place = Watched()
    plan = plan_copy([entry async for entry in place.list()], {})
    moved: list[int] = []
    await cp.copy(plan, place, place, 16, moved.append)
    largest_group = 1000 * (56 + 57 + 58 + 59)
    assert place.peak <= max(budget, largest_group)
    assert place.peak >= min(budget, largest_group)
    assert sorted(place.written) == sorted([f"c/{number}" for number in range(60)] + ["zarr.json"])
    assert place.written[-1] == "zarr.json"
    assert sum(moved) == plan.nbytes


async def test_a_value_that_went_away(address: str, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    plan = plan_copy([Entry("c/0", 3)], {})
    for place in (
        ServerPlace(UcxStore(address)),
        open_objects(str(tmp_path / "there"), 1, make=False),
    ):
        with pytest.raises(ToolError, match="c/0: "):
            await cp.copy(plan, place, place, 2, lambda _: None)


async def test_an_object_that_changes_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "_PART_BYTES", 1000)
    place = open_objects(str(tmp_path), 2, make=False)
    assert isinstance(place, DirectoryPlace)
    (tmp_path / "a").write_bytes(bytes(2500))
    [entry] = [entry async for entry in place.list()]
    [value] = await place.read([entry])
    assert value.to_bytes() == bytes(2500)
    os.utime(tmp_path / "a", (1, 1))
    with pytest.raises(ToolError, match="a: "):
        await place.read([entry])
    (tmp_path / "a").write_bytes(bytes(2200))
    untagged = Entry("a", 2500)
    with pytest.raises(ToolError, match="a: it is no longer of the size"):
        await place.read([untagged])
