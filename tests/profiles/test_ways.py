"""The ways that a row promises: whoever goes another one has no figures."""

from typing import Any

import numpy as np
import pytest
import zarr

from profiles.moves import action_of
from profiles.stores import ROWS, Row
from profiles.ways import Ways, check_ways
from ucxstore import NotMappedError, UcxStore
from ucxstore.server import Server

SHAPE = (1500, 1500)


def row_of(store: str) -> Row:
    (row,) = (row for row in ROWS if row.store == store)
    return row


def written(store: UcxStore, chunks: tuple[int, int] = SHAPE) -> tuple[Any, Any]:
    values = np.random.default_rng(3).random(SHAPE, dtype="f4")
    return zarr.create_array(store, data=values, chunks=chunks, compressors=None), values


def test_ways_are_counted() -> None:
    with (
        Server("memory://", local=True) as server,
        UcxStore(server.address, local="auto", map=False) as store,
    ):
        ways = Ways(store)
        assert ways.since() == {}
        array, values = written(store, (750, 1500))
        assert ways.since() == {"direct": 2}
        ways = Ways(store)
        assert (array[:] == values).all()
        store.view_array_sync(array, (0, 0))
        assert ways.since() == {"direct": 2, "mapped": 1}
    assert Ways(object()).since() == {}


def test_what_goes_another_way_fails() -> None:
    row = row_of("UcxStore, memory, view")
    check_ways(row, {"mapped": 1})
    for ways in ({}, {"direct": 1}, {"mapped": 2}, {"mapped": 1, "direct": 1}):
        with pytest.raises(AssertionError, match="mapped"):
            check_ways(row, ways)
    with pytest.raises(AssertionError, match="adopted"):
        check_ways(row_of("UcxStore, memory, allocate"), {})
    check_ways(Row("LocalStore", "default", "folder"), {})


@pytest.mark.parametrize("call", ["view", "view_array", "allocate", "map_files"])
def test_calls_go_their_ways(call: str, tmp_path: Any) -> None:
    storage = "directory" if call == "map_files" else "memory"
    row = row_of(f"UcxStore, {storage}, {call}")
    location = str(tmp_path / "served") if storage == "directory" else "memory://"
    create = storage == "directory"
    with (
        Server(location, local=True, create=create) as server,
        UcxStore(server.address, local="auto") as store,
    ):
        array, values = written(store)
        make = action_of(row, store)
        assert make is not None
        action = make(array, values)
        ways = Ways(store)
        assert (action() == values).all()
        check_ways(row, ways.since())
        assert (array[:] == values).all()


@pytest.mark.parametrize("call", ["view", "view_array", "map_files"])
def test_calls_do_not_copy_instead(call: str) -> None:
    row = Row("UcxStore", "zero-copy", "server", "shared memory", "memory", call=call)
    with (
        Server("memory://", local=True, ucx_shared_memory=True) as server,
        UcxStore(server.address, local="ucx") as store,
    ):
        make = action_of(row, store)
        assert make is not None
        with pytest.raises(NotMappedError):
            make(*written(store))()
