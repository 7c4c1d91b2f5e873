"""Copies in this process: what is in memory, and what fails in the middle."""

import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from zarr.core.buffer import Buffer, cpu

from tests.eventually import loop_turns
from ucxstore import UcxStore
from ucxstore.cli.common.status import CommandError
from ucxstore.cli.cp import copying, locations
from ucxstore.cli.cp.locations import DirectoryLocation, ServerLocation, open_objects
from ucxstore.cli.cp.plan import Entry, plan_copy


class Watched:
    """A location in memory that counts the bytes that were read and are not yet written."""

    max_keys = 4
    unreadable = ()

    def __init__(self) -> None:
        self.now = self.peak = 0
        self.written: list[str] = []

    async def list(self) -> AsyncIterator[Entry]:
        for number in range(60):
            yield Entry(f"c/{number}", 1000 * number)
        yield Entry("zarr.json", 10)

    async def find(self, key: str) -> Entry | None:
        return None

    def check(self, key: str) -> None: ...

    async def read(self, entries: Sequence[Entry]) -> Sequence[Buffer]:
        self.now += sum(entry.size for entry in entries)
        self.peak = max(self.peak, self.now)
        await loop_turns()
        return [cpu.Buffer.from_bytes(bytes(entry.size)) for entry in entries]

    async def write(self, entries: Sequence[Entry], values: Sequence[Buffer]) -> None:
        await loop_turns()
        self.now -= sum(map(len, values))
        self.written += [entry.key for entry in entries]

    def close(self) -> None: ...


@pytest.mark.parametrize("budget", [1, 100_000, 500_000])
async def test_memory_is_bounded(budget: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "DEFAULT_BUFFER_BUDGET", budget)
    place = Watched()
    plan = plan_copy([entry async for entry in place.list()], {})
    moved: list[int] = []
    await copying.copy(plan, place, place, 16, moved.append)
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
        ServerLocation(UcxStore(address)),
        open_objects(str(tmp_path / "there"), 1, make=False),
    ):
        with pytest.raises(CommandError, match="c/0: "):
            await copying.copy(plan, place, place, 2, lambda _: None)


async def test_an_object_that_changes_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locations, "PART_BYTES", 1000)
    place = open_objects(str(tmp_path), 2, make=False)
    assert isinstance(place, DirectoryLocation)
    (tmp_path / "a").write_bytes(bytes(2500))
    [entry] = [entry async for entry in place.list()]
    [value] = await place.read([entry])
    assert value.to_bytes() == bytes(2500)
    os.utime(tmp_path / "a", (1, 1))
    with pytest.raises(CommandError, match="a: "):
        await place.read([entry])
    (tmp_path / "a").write_bytes(bytes(2200))
    untagged = Entry("a", 2500)
    with pytest.raises(CommandError, match="a: its size has changed"):
        await place.read([untagged])
