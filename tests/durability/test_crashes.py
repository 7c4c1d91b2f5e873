"""After a crash of the host, each key has what its server's `durability` promises."""

import asyncio
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.durability.crash_model import TORN, Disk, Event, digest, read_record
from tests.durability.recording import RECORDER, Recorded, preload
from tests.values import as_buffer
from ucxstore import UcxStore

WRITERS = 4
SIZES = (0, 20, 40_000, 600_000, 2_500_000)


@pytest.fixture(scope="module")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return preload(RECORDER, tmp_path_factory.mktemp("recorder"))


@dataclass(slots=True)
class _Key:
    """What has been done to a key, one after the other."""

    begun: list[str | None] = field(default_factory=lambda: [None])
    acknowledged: int = 0  # the last of these that was


class History:
    """What clients have begun, and what they were told, noted between the server's events."""

    def __init__(self, server: Recorded) -> None:
        self._server = server

    def begin(self, key: str, value: bytes | None) -> None:
        self._server.note(f"begin {key} {'-' if value is None else digest(value)}")

    def acknowledged(self, key: str) -> None:
        self._server.note(f"acknowledged {key}")


def write_all(server: Recorded, writer: int) -> None:
    """Do to keys of one's own all that a client can do to them."""
    history = History(server)
    folder = f"writer{writer}/deep"
    with UcxStore(server.address) as store:

        def put(key: str, value: bytes) -> None:
            history.begin(key, value)
            store.set_sync(key, as_buffer(value))
            history.acknowledged(key)

        async def several() -> None:
            keys = [f"together/{writer}-{i}" for i in range(8)]
            for key in keys:
                history.begin(key, key.encode() * 1000)

            async def one(key: str) -> None:
                await store.set(key, as_buffer(key.encode() * 1000))
                history.acknowledged(key)

            await asyncio.gather(*map(one, keys))

        async def add(key: str, value: bytes) -> None:
            history.begin(key, value)
            await store.set_if_not_exists(key, as_buffer(value))
            history.acknowledged(key)

        async def remove(key: str) -> None:
            history.begin(key, None)
            await store.delete(key)
            history.acknowledged(key)

        async def remove_folder(keys: list[str]) -> None:
            for key in keys:
                history.begin(key, None)
            await store.delete_dir(folder)
            for key in keys:
                history.acknowledged(key)

        for _ in range(2):
            for size in SIZES:
                put(f"{folder}/{size}", os.urandom(size))
        asyncio.run(several())
        asyncio.run(add(f"added/{writer}/k", os.urandom(50_000)))
        asyncio.run(remove(f"added/{writer}/k"))
        put(f"added/{writer}/k", os.urandom(50_000))
        asyncio.run(remove_folder([f"{folder}/{size}" for size in SIZES]))
        put(f"{folder}/{SIZES[-1]}", os.urandom(SIZES[-1]))


def states(server: Recorded) -> Iterator[tuple[str, _Key, set[str | None]]]:
    """Yield what each key may have after a crash at each moment, beside what was done to it."""
    disk = Disk(server.root_inode)
    keys: dict[str, _Key] = {}
    for event in read_record(server.record):
        _note(keys, event)
        disk.apply(event)
        for name, key in keys.items():
            yield name, key, disk.values(name)


def _note(keys: dict[str, _Key], event: Event) -> None:
    match event.fields:
        case ["begin", key, value]:
            keys.setdefault(key, _Key()).begun.append(None if value == "-" else value)
        case ["acknowledged", key]:
            keys[key].acknowledged = len(keys[key].begun) - 1


def run(root: Path, durability: str, recorder: Path, folder: Path) -> Recorded:
    with Recorded(root, durability, recorder, folder) as server:
        writers = [threading.Thread(target=write_all, args=(server, i)) for i in range(WRITERS)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join(120)
        assert server.lives
    return server


@pytest.fixture(params=["auto", "off"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UCXSTORE_LOCAL", request.param)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("durability", ["atomic", "fsync"])
def test_a_key_has_its_old_value_or_its_new_one(
    durability: str, recorder: Path, tmp_path: Path
) -> None:
    server = run(tmp_path / "root", durability, recorder, tmp_path)
    seen = 0
    for name, key, values in states(server):
        seen += 1
        assert TORN not in values, name
        assert values <= set(key.begun), name
        if durability == "fsync":
            assert values <= set(key.begun[key.acknowledged :]), name
    assert seen > 10_000


def test_without_durability_values_may_be_torn(recorder: Path, tmp_path: Path) -> None:
    server = run(tmp_path / "root", "none", recorder, tmp_path)
    assert any(TORN in values for _, _, values in states(server))


def test_many_writers_share_a_flush(recorder: Path, tmp_path: Path) -> None:
    count = 200
    # On a quick disk few are written while another flush is under way.
    slow = {"SLOW_FLUSH_US": "5000"}
    with Recorded(tmp_path / "root", "fsync", recorder, tmp_path, **slow) as server:

        async def write() -> None:
            async with asyncio.TaskGroup() as group:
                for i in range(count):
                    group.create_task(store.set(f"folder/{i}", as_buffer(b"x" * 5000)))

        with UcxStore(server.address) as store:
            asyncio.run(write())
    folder = str((tmp_path / "root" / "folder").stat().st_ino)
    flushes = [
        event for event in read_record(server.record) if event.fields[:2] == ["sync-ends", folder]
    ]
    assert 0 < len(flushes) < count / 4
