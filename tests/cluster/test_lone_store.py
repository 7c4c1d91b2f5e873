"""A store of one server, opened before that became a member of a set."""

from collections.abc import Iterator

import numpy as np
import pytest
import zarr

from tests.conftest import address_of
from tests.values import as_buffer
from ucxstore import ClusterError, Server, UcxStore

CHUNKS = 4096


@pytest.fixture(params=["memory", "directory"])
def servers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Server]]:
    locations = [
        "memory://" if request.param == "memory" else tmp_path_factory.mktemp("data")
        for _ in range(3)
    ]
    started = [Server(location) for location in locations]
    yield started
    for server in started:
        server.close()


@pytest.mark.parametrize("way", ["auto", "off"])
def test_it_takes_no_chunk_of_the_others_for_missing(way: str, servers: list[Server]) -> None:
    with (
        UcxStore(servers[0].address, local=way, timeout=20) as lone,
        UcxStore(address_of(servers), timeout=20) as whole,
    ):
        lone.set_sync("first", as_buffer(b"x"))  # it is connected
        array = zarr.create_array(
            whole,
            name="a",
            shape=(CHUNKS,),
            chunks=(1,),
            dtype="i4",
            fill_value=-1,
            compressors=None,
        )
        array[...] = np.arange(CHUNKS)
        fills, written, message = 0, 0, ""
        try:
            seen = zarr.open_array(lone, path="a", mode="r+")
            fills = int((seen[...] == -1).sum())
            seen[...] = np.arange(CHUNKS) + 1
            written = int((array[...] != np.arange(CHUNKS) + 1).sum())
        except ClusterError as error:
            message = str(error)
        assert (fills, written) == (0, 0)
        assert "set" in message
        assert (array[...] == np.arange(CHUNKS)).all()
