"""Values that clients send faster than an object store takes them."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from obstore.store import MemoryStore

from tests.eventually import eventually
from tests.server.sources.http_objects import HttpObjects
from tests.server.sources.test_cache import put
from tests.values import noise
from ucxstore import UcxStore
from ucxstore.server import Server

BUDGET = 1 << 20
SIZE = 160_000


@pytest.mark.parametrize("ucx", [{}, {"TLS": "tcp"}])
def test_what_is_on_its_way_is_bounded(objects: HttpObjects, ucx: dict[str, str]) -> None:
    values = {str(number): noise(SIZE, number) for number in range(24)}
    objects.gate.clear()
    with (
        Server(objects.store(), cache=0, ucx=ucx, write_budget=BUDGET) as server,
        UcxStore(server.address, ucx=ucx) as store,
        ThreadPoolExecutor(len(values)) as pool,
    ):
        writes = [pool.submit(put, store, key, value) for key, value in values.items()]
        eventually(lambda: objects.asked("PUT") == BUDGET // SIZE)
        assert server.stats()["writing_bytes"] == BUDGET // SIZE * SIZE
        objects.gate.set()
        while not all(one.done() for one in writes):
            assert server.stats()["writing_bytes"] <= BUDGET
        for one in writes:
            one.result()
        eventually(lambda: server.stats()["writing_bytes"] == 0)
    assert objects.objects == values


def test_a_budget_is_a_size() -> None:
    with pytest.raises(ValueError, match=r"^write_budget: "):
        Server(MemoryStore(), write_budget="much")
