"""For how long a server believes the values in its cache."""

from zarr.core.buffer import cpu
from zarr.storage import MemoryStore

from tests.eventually import eventually
from tests.server.sources.http_objects import HttpObjects
from tests.server.sources.test_blocks import BLOCK, get_part
from tests.server.sources.test_cache import get
from tests.values import noise
from ucxstore import UcxStore
from ucxstore.server import Server


def test_for_ever(objects: HttpObjects) -> None:
    objects.objects["k"] = b"old"
    with Server(objects.store()) as server, UcxStore(server.address) as store:
        assert get(store, "k") == b"old"
        objects.objects["k"] = b"new"
        assert get(store, "k") == b"old"
    assert objects.asked("HEAD") == 0


def test_always(objects: HttpObjects) -> None:
    objects.objects["k"] = b"old"
    with Server(objects.store(), freshness="always") as server, UcxStore(server.address) as store:
        for _ in range(3):
            assert get(store, "k") == b"old"
        assert objects.requests["GET", "k"] == 1
        assert objects.requests["HEAD", "k"] == 2
        objects.objects["k"] = b"new"
        assert get(store, "k") == b"new"
        assert get(store, "k") == b"new"
        assert objects.requests["GET", "k"] == 2
        del objects.objects["k"]
        assert get(store, "k") is None


def test_for_a_time(objects: HttpObjects) -> None:
    objects.objects["k"] = b"old"
    with Server(objects.store(), freshness=0.2) as server, UcxStore(server.address) as store:
        assert get(store, "k") == b"old"
        objects.objects["k"] = b"new"
        eventually(lambda: get(store, "k") == b"new")
    assert objects.requests["GET", "k"] == 2


def test_blocks_are_kept_if_the_object_is_the_same(objects: HttpObjects) -> None:
    old, new = noise(20 * BLOCK, 1), noise(20 * BLOCK, 2)
    objects.objects["k"] = old
    with (
        Server(objects.store(), block_size=BLOCK, freshness="always") as server,
        UcxStore(server.address) as store,
    ):
        for _ in range(3):
            assert get_part(store, "k", 10, 20) == old[10:20]
        assert len(objects.ranges) == 1
        objects.objects["k"] = new
        assert get_part(store, "k", 10, 20) == new[10:20]
        assert get(store, "k") == new
        assert get(store, "k") == new
    # One for the first two blocks of the old value, one for those of the new value, and three runs
    # of its other blocks.
    assert len(objects.ranges) == 5
    assert objects.requests["GET", "k"] == 5
    assert objects.sent == 2 * BLOCK + len(new)


def test_what_has_no_tag_is_fetched_again() -> None:
    kept = {"k": cpu.Buffer.from_bytes(b"old")}
    with (
        Server(MemoryStore(kept), freshness="always") as server,
        UcxStore(server.address) as store,
    ):
        assert get(store, "k") == b"old"
        kept["k"] = cpu.Buffer.from_bytes(b"new")
        assert get(store, "k") == b"new"
