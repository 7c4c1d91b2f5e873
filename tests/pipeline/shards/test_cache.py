import os

import numpy as np

from ucxstore import UcxStore
from ucxstore.pipeline.access import access_to
from ucxstore.pipeline.indexes.cache import ENTRY_BYTES, ShardCache
from ucxstore.pipeline.indexes.index import IndexForm, ShardIndex

FORM = IndexForm((), "end", (10,), None)


def index_of(version: int, count: int = 10) -> ShardIndex:
    return ShardIndex(np.zeros(count, "i8"), np.zeros(count, "i8"), version, True)


def test_an_index_is_found_as_what_it_was_read_as() -> None:
    cache = ShardCache()
    cache.put("a", FORM, index_of(1))
    found = cache.get("a", IndexForm((), "end", (10,), None))
    assert found is not None
    assert found.version == 1
    assert cache.get("a", FORM._replace(location="start")) is None
    assert cache.get("a", FORM._replace(raw_nbytes=100)) is None
    assert cache.get("b", FORM) is None
    cache.put("a", FORM, index_of(2))
    found = cache.get("a", FORM)
    assert found is not None
    assert found.version == 2
    assert len(cache) == 1


def test_those_used_last_are_kept() -> None:
    entry = 160 + ENTRY_BYTES
    cache = ShardCache(3 * entry)
    for key in "abc":
        cache.put(key, FORM, index_of(1))
    cache.get("a", FORM)
    cache.put("d", FORM, index_of(1))
    assert [key for key in "abcd" if cache.get(key, FORM)] == ["a", "c", "d"]
    assert cache.nbytes == 3 * entry
    cache.drop(["a", "none", "d"])
    assert [key for key in "abcd" if cache.get(key, FORM)] == ["c"]
    assert cache.nbytes == entry


def test_what_is_too_large_is_not_kept() -> None:
    cache = ShardCache(2000)
    cache.put("a", FORM, index_of(1, count=1000))
    assert (len(cache), cache.nbytes) == (0, 0)


def test_a_forked_child_starts_with_nothing() -> None:
    cache = ShardCache()
    cache.put("a", FORM, index_of(1))
    with cache._lock:  # held by a thread that the child has not
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            cache.put("b", FORM, index_of(1))
            os.write(write, b"%d %d" % (len(cache), cache.get("a", FORM) is None))
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as answer:
        assert answer.read() == b"1 1"
    os.waitpid(child, 0)
    assert cache.get("a", FORM) is not None


def test_copies_of_a_store_share_one() -> None:
    store = UcxStore("ucx://127.0.0.1:1", select_pipeline=False)
    assert access_to(store.with_read_only(True)).shard_indexes is access_to(store).shard_indexes
