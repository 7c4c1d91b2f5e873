"""The tests of this folder run over UCX: over its TCP, and over its shared memory."""

from ucxstore import UcxStore
from ucxstore.server import Server


def lanes_of(server: Server) -> list[str]:
    with UcxStore(server.address) as store:
        store.ping_sync()
        lanes: list[str] = store.stats()["lanes"]
        return lanes


def test_the_ways(memory_server: Server, directory_server: Server, object_server: Server) -> None:
    assert lanes_of(memory_server) == ["tcp/lo"]
    assert lanes_of(object_server) == ["tcp/lo"]
    assert "posix/memory" in lanes_of(directory_server)
