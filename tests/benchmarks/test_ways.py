"""The ways of `make bench`: each is what it says, and a store that came by another is noticed."""

import json
from pathlib import Path

import pytest

from benchmarks.ways import LOCAL, SHARED_MEMORY, TCP, WAYS, Way


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_a_store_comes_by_its_way(way: Way) -> None:
    assert json.loads(json.dumps(way.of_client)) == way.of_client  # children get it so
    with way.serve("memory://") as server, way.open(server.address) as store:
        assert store.get_sync("missing") is None
        assert way.check(store).startswith(f"lanes, {way.name}: ")
        for other in set(WAYS) - {way}:
            with pytest.raises(RuntimeError, match=other.name):
                other.check(store)


def test_a_server_without_a_plane_is_noticed() -> None:
    with SHARED_MEMORY.serve("memory://") as server, LOCAL.open(server.address) as store:
        assert store.get_sync("missing") is None
        with pytest.raises(RuntimeError, match="local has the lanes"):
            LOCAL.check(store)


def test_a_store_that_has_not_connected() -> None:
    with (
        TCP.serve("memory://") as server,
        TCP.open(server.address) as store,
        pytest.raises(RuntimeError, match="has the lanes"),
    ):
        TCP.check(store)


def test_a_server_of_a_directory_that_is_new(tmp_path: Path) -> None:
    with LOCAL.serve(tmp_path / "new") as server, LOCAL.open(server.address) as store:
        assert store.get_sync("missing") is None
    assert (tmp_path / "new").is_dir()
