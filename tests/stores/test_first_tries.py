"""What people try first works, or says at once what is wanted."""

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest
from obstore.store import MemoryStore

import ucxstore
from tests.values import as_buffer
from ucxstore import AuthenticationError, Secret, UcxStore
from ucxstore.base.stats import ServerStats, figures
from ucxstore.obspec import ObspecStore
from ucxstore.server import Server

SECRET = "a long and random text"


# ---- a server in place of its address ----


def test_a_store_of_a_server() -> None:
    with Server("memory://") as server, UcxStore(server) as store:
        assert store.address == server.address
        assert store.secret is None
        store.at("run-17").set_sync("k", as_buffer(b"1"))
        with UcxStore(f"{server.address}/run-17") as same:
            assert same.get_sync("k").to_bytes() == b"1"
        with ObspecStore(server) as values:
            assert bytes(values.get("run-17/k").buffer()) == b"1"


@pytest.mark.parametrize("start", [Server, Server.spawn])
def test_its_secret_comes_along(start: Any) -> None:
    with start("memory://", secret=SECRET) as server:
        with UcxStore(server) as store:
            store.set_sync("k", as_buffer(b"1"))
        grant = Secret(SECRET).grant("other/")
        with UcxStore(server, secret=grant) as granted, pytest.raises(ucxstore.GrantError):
            granted.get_sync("k")
        with UcxStore(server, secret="wrong") as wrong, pytest.raises(AuthenticationError):
            wrong.get_sync("k")
        assert SECRET not in repr(vars(server))


def test_it_is_the_secret_that_the_server_has_now() -> None:
    with Server("memory://", secret=SECRET) as server:
        server.change_secret("another long and random text")
        with UcxStore(server) as store:
            store.ping_sync()


@pytest.mark.parametrize(
    "address", [7400, None, b"ucx://127.0.0.1:7400", ("127.0.0.1", 7400), Path("data"), object]
)
def test_something_else_than_an_address(address: Any) -> None:
    wanted = (
        "address: an address such as 'ucx://127.0.0.1:7400', or a Server, is needed, not "
        f"{address!r}"
    )
    for make in UcxStore, ObspecStore:
        with pytest.raises(TypeError, match=f"^{re.escape(wanted)}$"):
            make(address)


def test_a_store_is_no_address() -> None:
    with pytest.raises(TypeError, match=r"^address: .* is needed, not <UcxStore"):
        UcxStore(UcxStore("ucx://localhost:1"))


# ---- progress ----


def test_progress_of_a_store_says_what_is_counted() -> None:
    """Before anything is entered."""
    with pytest.raises(TypeError, match=r"^description: a text .* with ucxstore\.progress\(\):$"):
        ucxstore.progress(UcxStore("ucx://localhost:1"))


# ---- a server's counters ----


def test_a_servers_counters_are_a_table() -> None:
    with Server("memory://") as server, UcxStore(server) as store:
        store.set_sync("k", as_buffer(b"12345"))
        stats = server.stats()
        assert type(stats) is ServerStats
        assert (stats.sets, stats["sets"], stats.bytes_received) == (1, 1, 5)
        assert stats == {**stats} == json.loads(json.dumps(stats))
        assert re.search(r"^bytes_received +5 B$", str(stats), re.MULTILINE)
        assert "bytes_received" in stats._repr_html_()
        with pytest.raises(dataclasses.FrozenInstanceError):
            stats.sets = 3
        counted = store.server_stats_sync()
        differ = {name for name in stats if stats[name] != counted[name]}
        assert differ <= {"asked_by", "uptime_s", "clients", "origins"}
    assert server.stats().sets == 1


def test_they_have_all_that_servers_count(tmp_path: Path) -> None:
    """Of a source, too, with a directory for its cache."""
    with (
        Server("memory://") as memory,
        Server(MemoryStore(), cache_dir=tmp_path, cache_dir_size="1MB") as source,
    ):
        counted = {each.name for each in figures()}
        others = {"asked_by", "clients", "origins", "spaces"}
        assert json.loads(memory.stats_json()).keys() == counted | others
        assert json.loads(source.stats_json()).keys() == counted | others
        with UcxStore(source) as store:
            store.set_sync("k", as_buffer(b"12345"))
            store.get_sync("k")
            assert store.server_stats_sync().disk_bytes == source.stats().disk_bytes
        stats = source.stats()
        assert stats.cache_hits + stats.cache_misses == 1
        assert memory.stats().cache_hits == 0
