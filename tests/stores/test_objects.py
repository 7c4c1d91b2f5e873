"""What stores, scratch spaces and servers show of themselves, and how they are closed."""

import copy
import dataclasses
import inspect
import json
import os
import pickle
import re
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fsspec
import numpy as np
import pytest
import zarr
from zarr.abc.store import Store

import ucxstore.base.counters
import ucxstore.stores.store
from tests.backdoor import is_open
from tests.eventually import nothing_happens
from tests.fixtures import memory_alone as memory_alone
from tests.values import as_buffer
from ucxstore import AddressError, Allocation, ScratchEndedError, UcxStore
from ucxstore.base.counters import Counted, Counters, Totals, keep_totals
from ucxstore.base.showing import folded_columns
from ucxstore.base.stats import (
    ChunkStats,
    ClientStats,
    MemberStats,
    OriginStats,
    ServerStats,
    StatsTable,
    StoreStats,
    names_of,
    parse_server_stats,
)
from ucxstore.obspec import ObspecStore
from ucxstore.pipeline.access import access_to
from ucxstore.server import Server

ARCHITECTURE = Path(__file__).parents[2] / "docs/architecture.md"

TAGS = set(re.findall(r"\w+", "div b code table thead tbody tr th td details summary"))

HOSTILE = "<img src=x onerror=alert(1)>&\"'\x1b[31m"


class Page(HTMLParser):
    """The tags, the attributes and the text of some HTML, which must be well-formed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def page_of(shown: Any) -> Page:
    """Return what a notebook shows, which must be the same on any page."""
    page = Page(shown._repr_html_())
    assert set(page.tags) <= TAGS
    assert {name for name, _ in page.attributes} <= {"style"}
    styles = " ".join(value or "" for _, value in page.attributes)
    assert "url(" not in styles
    # No colour of its own but a transparent grey.
    colours = re.findall(r"(?:color|background): ?([^;]+)", styles)
    assert set(colours) <= {"inherit", "transparent"}
    assert "#" not in styles
    return page


# ---- text and HTML ----


def test_a_store_says_its_state_without_connecting() -> None:
    store = UcxStore("ucx://localhost:1/run-17", read_only=True)
    assert repr(store) == "<UcxStore 'ucx://localhost:1/run-17', read_only=True, not connected>"
    page = page_of(store)
    for text in "localhost:1", "run-17", "not connected", "read-only", "bytes_read":
        assert text in page.text
    assert store._made is None
    store.close()
    assert repr(store) == "<UcxStore 'ucx://localhost:1/run-17', read_only=True, closed>"
    assert "closed" in page_of(store).text


def test_a_connected_store_says_its_lanes(ucx_store: UcxStore) -> None:
    ucx_store.ping_sync()
    lanes = ucx_store.stats()["lanes"]
    assert lanes
    assert repr(ucx_store).endswith(f", connected over {', '.join(lanes)}>")
    assert ", ".join(lanes) in page_of(ucx_store).text


def test_a_scratch_space_says_its_state_and_not_its_name(ucx_store: UcxStore) -> None:
    with ucx_store.scratch_sync("1MB") as scratch:
        assert repr(scratch) == f"<Scratch at {str(ucx_store)!r}, quota=1000000, timeout=60, open>"
        assert "1.0 MB" in page_of(scratch).text
        assert scratch.name not in page_of(scratch).text
        within = scratch.store("a")
        below = scratch.name[:8] + "…/a"
        for shown in repr(within), page_of(within).text, repr(ObspecStore(within)):
            assert scratch.name not in shown
            assert below in shown
        assert scratch.name in str(within) == within.address  # which others open
    assert repr(scratch).endswith("closed>")
    assert "closed" in page_of(scratch).text


def test_in_a_forked_child_a_scratch_space_is_the_parents(
    ucx_store: UcxStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ucx_store.scratch_sync("1MB") as scratch:
        with monkeypatch.context() as child:
            child.setattr(os, "getpid", lambda: -1)
            assert repr(scratch).endswith(", of the parent process>")
            assert "of the parent process" in page_of(scratch).text
        assert repr(scratch).endswith(", open>")


def test_a_server_says_its_state() -> None:
    with Server("memory://") as server, UcxStore(server.address) as store:
        store.set_sync("a", as_buffer(b"12"))
        assert repr(server) == f"<Server 'memory://' at {server.address!r}, serving>"
        page = page_of(server)
        for text in server.address, "serving", "bytes_received":
            assert text in page.text
    assert repr(server).endswith("closed>")
    assert "closed" in page_of(server).text


def test_a_server_process_says_its_state() -> None:
    with Server.spawn("memory://") as server:
        assert repr(server) == f"<ServerProcess at {server.address!r}, pid={server.pid}, serving>"
        assert str(server.pid) in page_of(server).text
    assert repr(server).endswith("ended with status 0>")


def test_html_is_escaped() -> None:
    texts = {"peer": HOSTILE, "origin": HOSTILE, "lanes": [HOSTILE], "held": {HOSTILE: 1}}
    counted = {field.name: 0 for field in dataclasses.fields(ClientStats)}
    client = ClientStats(**{**counted, **texts, "bytes_sent": 5_000_000})
    origin = OriginStats(HOSTILE, 1, 0.5, {HOSTILE: 1})
    numbers = {field.name: 0 for field in dataclasses.fields(ServerStats)}
    stats = ServerStats(**{**numbers, "clients": [client], "spaces": [], "origins": [origin]})
    store = UcxStore("ucx://a:1,b:1/" + HOSTILE.replace("\x1b", ""))
    access_to(store).counters.add_server(HOSTILE, requests=1)
    for shown in stats, store, store.stats():
        page = page_of(shown)
        assert "<img src=x" in page.text
        assert "\x1b" not in shown._repr_html_()
    assert "\x1b" not in str(stats)
    assert "5.0 MB" in str(stats)


def test_what_zarr_opens_from_a_url_says_host_and_stats(address: str) -> None:
    values = np.arange(100, dtype="f4")
    zarr.create_array(f"{address}/a", data=values, chunks=10, compressors=None)
    z = zarr.open_array(f"{address}/a", mode="r")
    np.testing.assert_array_equal(z[:], values)
    fs = z.store.fs  # type: ignore[attr-defined]
    servers = address.rpartition("/")[0]
    assert fs.address == servers
    assert repr(fs).startswith(f"<UcxFileSystem {servers!r}, connected over ")
    assert (fs.stats().direct, fs.stats().bytes_read) == (
        10,
        values.nbytes + fs.stats().staged_bytes,
    )
    assert fs.server_stats().gets >= 10
    assert servers in page_of(fs).text
    unused, _ = fsspec.url_to_fs("ucx://localhost:1/a")
    assert repr(unused) == "<UcxFileSystem 'ucx://localhost:1', not connected>"


# ---- counters ----


def test_counters_are_a_frozen_dataclass_and_a_mapping(ucx_store: UcxStore) -> None:
    ucx_store.set_sync("a", as_buffer(b"12345"))
    stats = ucx_store.stats()
    assert dataclasses.is_dataclass(stats)
    assert stats.bytes_written == stats["bytes_written"] == 5
    assert stats == dict(stats) == {**stats} == json.loads(json.dumps(stats))
    assert list(stats) == [field.name for field in dataclasses.fields(StoreStats)]
    for same in pickle.loads(pickle.dumps(stats)), copy.copy(stats), copy.deepcopy(stats):
        assert same == stats
        assert type(same) is StoreStats
        assert same.lanes == stats.lanes
    with pytest.raises(dataclasses.FrozenInstanceError):
        stats.direct = 3
    changes: list[Callable[[], object]] = [
        lambda: stats.__setitem__("direct", 3),
        lambda: stats.update(direct=3),
        lambda: stats.pop("direct"),
        stats.clear,
    ]
    for change in changes:
        with pytest.raises(TypeError, match="StoreStats: cannot be changed"):
            change()
    assert re.search(r"^bytes_written +5 B$", str(stats), re.MULTILINE)
    assert repr(stats).startswith("StoreStats(direct=0, ")
    assert "code" not in page_of(stats).tags  # it has no name that could stand there


@pytest.mark.parametrize("width", [60, 80, 200])
def test_counters_fit_a_terminal(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    lanes = [f"rc_mlx5/mlx5_{number}:1" for number in range(8)]
    counted = dict.fromkeys(names_of(ChunkStats), 12_345)
    servers = {f"10.0.0.{n}:7400": MemberStats(10**n, n) for n in range(3)}
    stats = StoreStats(**counted, lanes=lanes, integrity=True, encrypted=False, servers=servers)
    lines = str(stats).splitlines()
    assert max(map(len, lines)) <= width
    assert [word for line in lines for word in line.split() if word.startswith("rc_")] == lanes
    assert re.search(r"^10\.0\.0\.2:7400 +100 +2$", str(stats), re.MULTILINE)


@pytest.mark.parametrize("width", [20, 40, 80, 1000])
def test_a_wide_table_goes_on_below(width: int) -> None:
    header = ["name", *(f"column_{number}" for number in range(12))]
    rows = [header, *([f"row{n}", *(f"{n}.{m}" for m in range(12))] for n in range(3))]
    lines = folded_columns(rows, width)
    assert max(map(len, lines)) <= width
    blocks = [block.splitlines() for block in "\n".join(lines).split("\n\n")]
    assert len(blocks) == {20: 12, 40: 4, 80: 2, 1000: 1}[width]
    again = [[line.split() for line in block] for block in blocks]
    assert all([line[0] for line in block] == ["name", "row0", "row1", "row2"] for block in again)
    for number, row in enumerate(rows):
        assert [cell for block in again for cell in block[number][1:]] == row[1:]


async def test_a_servers_counters_without_a_loop() -> None:
    with Server("memory://") as server, UcxStore(server.address) as store:
        store.set_sync("a", as_buffer(b"12345"))
        with store.scratch_sync("1MB") as scratch:
            stats = store.server_stats_sync()
            later = await store.server_stats()
    assert (stats.sets, stats.bytes_received, stats.value_count) == (1, 5, 1)
    assert later.uptime_s > stats.uptime_s
    assert (later.sets, later.value_bytes) == (stats.sets, stats.value_bytes)
    (mine,) = stats.clients
    assert isinstance(mine, ClientStats)
    assert (mine.sets, mine.bytes_received) == (1, 5)
    assert scratch.name.startswith(stats.spaces[-1].name)
    assert pickle.loads(pickle.dumps(stats)) == stats
    assert parse_server_stats(json.dumps(stats).encode()) == stats
    text = str(stats)
    assert "clients:\npeer " in text
    assert "spaces:\nname " in text
    assert re.search(r"^memory_limit +\d+(\.\d)? [kMGT]B$", text, re.MULTILINE)
    with pytest.raises(AddressError, match="needs one server, and ucx://a:1,b:1 has several"):
        UcxStore("ucx://a:1,b:1").server_stats_sync()


def test_the_counters_of_chunks_are_the_same_everywhere() -> None:
    assert list(Counted.__annotations__) == names_of(ChunkStats)


def test_what_matters_most_is_shown_first() -> None:
    @dataclasses.dataclass(frozen=True, eq=False, repr=False)
    class Shown(StatsTable):
        _leading = ("last",)
        _hidden = frozenset({"second"})

        first: int
        second: int
        last: int

    shown = Shown(1, 2, 3)
    assert str(shown).split() == ["last", "3", "first", "1"]
    assert list(shown) == ["first", "second", "last"]
    make, arguments = shown.__reduce__()  # by names, so that a field may move
    assert make(*arguments) == shown


@pytest.fixture
def no_totals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody keep totals when the test begins."""
    monkeypatch.setattr(ucxstore.base.counters, "_totals", None)


def kept_by(totals: Totals) -> int:
    """Count the counters whose sums are not known for good."""
    return len(totals._live)


def test_counters_that_are_gone_are_summed_and_not_kept(no_totals: None) -> None:
    totals = keep_totals()
    kept = Counters()
    kept.add(direct=1)
    for _ in range(1000):
        Counters().add(direct=1, bytes_read=10)
        assert kept_by(totals) <= 66
    many = [Counters() for _ in range(300)]
    for one in many:
        one.add(decode=1)
    found = totals.read()
    assert (found["direct"], found["bytes_read"], found["decode"]) == (1001, 10_000, 300)
    assert kept_by(totals) == 301
    del many, one
    assert totals.read() == found
    assert kept_by(totals) == 1


def test_threads_keep_the_same_totals(no_totals: None, monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(Totals):
        def __init__(self) -> None:
            nothing_happens(0.05)
            super().__init__()

    monkeypatch.setattr(ucxstore.base.counters, "Totals", Slow)
    with ThreadPoolExecutor(4) as threads:
        assert len({id(one.result()) for one in [threads.submit(keep_totals) for _ in "1234"]}) == 1


# ---- ends ----


def test_a_forked_child_closes_stores_whatever_other_threads_did() -> None:
    store = UcxStore("ucx://a:1")
    with ucxstore.stores.store._lock:
        child = os.fork()
        if child == 0:
            signal.alarm(10)  # in place of a child that waits for the lock
            store.close()
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def test_a_store_is_shown_while_another_thread_closes_it() -> None:
    class Closing(UcxStore):
        """Its channel is gone once somebody has looked."""

        @property
        def _made(self) -> Any:
            found, self._channel_of_before = self._channel_of_before, None  # type: ignore[has-type]
            return found

        @_made.setter
        def _made(self, channel: Any) -> None:
            self._channel_of_before = channel

    store = Closing("ucx://a:1")
    for show in repr, UcxStore._repr_html_, UcxStore.stats:
        store._made = SimpleNamespace(lanes=["tcp"], checked=True, encrypted=False)
        show(store)


def test_a_closed_scratch_space_says_so(ucx_store: UcxStore) -> None:
    scratch = ucx_store.scratch_sync("1MB")
    scratch.close()
    assert scratch.closed
    for use in scratch.store, scratch.grant:
        with pytest.raises(ScratchEndedError, match=f"{scratch.name[:8]}…: it was closed"):
            use()


async def test_async_with() -> None:
    async with Server("memory://") as server:
        async with UcxStore(server.address) as store:
            assert is_open(store)
            await store.set("a", as_buffer(b"12"))
            async with await store.scratch("1MB") as scratch:
                await scratch.store().set("b", as_buffer(b"3"))
            assert scratch.closed
        assert store.closed
    assert repr(server).endswith("closed>")


# ---- names ----


def test_the_public_names_of_a_store_are_documented() -> None:
    _, _, section = ARCHITECTURE.read_text().partition("A `UcxStore` has the names of zarr's")
    table = section.partition("\n## ")[0]
    documented = set(re.findall(r"`(\w+)`", table.partition("\n|---|---|\n")[2]))
    public = {name for name in dir(UcxStore("ucx://a:1")) if not name.startswith("_")}
    assert public - set(dir(Store)) == documented


def test_plain_names_wait_and_names_with_sync_block() -> None:
    """As zarr's own. What asks no server has one form."""
    asks_nothing = {"at", "close", "drop", "rely_on", "stats", "with_read_only"}
    for cls in UcxStore, Allocation:
        for name, method in inspect.getmembers(cls, inspect.isfunction):
            if name.startswith("_") or (cls is Allocation and name == "view"):  # as numpy's
                continue
            waits = inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method)
            assert waits != name.endswith("_sync") or name in asks_nothing, name
            assert hasattr(cls, name.removesuffix("_sync")), name


def test_a_store_is_connected_by_the_copy_that_zarr_reads_through(address: str) -> None:
    with UcxStore(address) as writer:
        zarr.create_array(writer, name="copied", data=np.arange(4), chunks=2)
    with UcxStore(address) as store:
        z = zarr.open_array(store, path="copied", mode="r")
        assert z[:].sum() == 6
        assert z.store is not store
        (lane,) = store.stats().lanes
        assert repr(store).endswith(f", connected over {lane}>")
    assert store.stats().lanes == []
