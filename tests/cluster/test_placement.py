"""Keys stay where they are, whoever else comes or goes."""

from collections import Counter
from random import Random

import hypothesis.strategies as st
from hypothesis import given

from ucxstore.cluster.placement import Placement

SERVERS = [f"10.0.0.{number}:7400" for number in range(1, 9)]
KEYS = [f"run-17/temperature/c/{i}/{j}" for i in range(60) for j in range(50)]

servers = st.lists(st.sampled_from(SERVERS), min_size=2, unique=True)
keys = st.lists(st.text(max_size=20), min_size=1, max_size=50)


def homes(among: list[str], keys: list[str]) -> list[str]:
    return [among[place] for place in Placement(among).servers_of(keys)]


@given(servers, keys, st.data())
def test_a_server_that_is_lost_moves_only_its_own_keys(
    among: list[str], keys: list[str], data: st.DataObject
) -> None:
    lost = data.draw(st.sampled_from(among))
    left = [server for server in among if server != lost]
    for before, after in zip(homes(among, keys), homes(left, keys), strict=True):
        assert after == before or before == lost


@given(servers, keys, st.data())
def test_what_is_left_out_is_as_if_it_were_not_there(
    among: list[str], keys: list[str], data: st.DataObject
) -> None:
    out = data.draw(st.sets(st.sampled_from(among), max_size=len(among) - 1))
    placement = Placement(among)
    without = frozenset(among.index(server) for server in out)
    found = [among[place] for place in placement.servers_of(keys, without)]
    assert found == homes([server for server in among if server not in out], keys)
    assert found == [among[place] for place in placement.servers_of(keys, without)]
    assert [among[place] for place in placement.servers_of(keys)] == homes(among, keys)


@given(servers, keys, st.randoms())
def test_the_order_of_servers_does_not_matter(
    among: list[str], keys: list[str], random: Random
) -> None:
    shuffled = list(among)
    random.shuffle(shuffled)
    assert homes(shuffled, keys) == homes(among, keys)


def test_each_server_has_its_share_and_a_new_one_takes_as_much_of_each() -> None:
    counts = Counter(homes(SERVERS[:4], KEYS))
    assert all(600 < counts[server] < 900 for server in SERVERS[:4])
    moved = Counter(
        before
        for before, after in zip(homes(SERVERS[:4], KEYS), homes(SERVERS[:5], KEYS), strict=True)
        if after != before
    )
    assert all(100 < moved[server] < 200 for server in SERVERS[:4])


def test_places_are_the_same_in_every_release() -> None:
    """What was written once must be found again."""
    keys = ["", "c/0/0", "c/0/1", "é", "run-17/temperature/c/3/4", "zarr.json"]
    assert Placement(["a:1", "b:2", "c:3", "[::1]:4"]).servers_of(keys) == [3, 2, 0, 3, 2, 2]


def test_more_keys_than_are_remembered() -> None:
    placement = Placement(SERVERS)
    many = [str(number) for number in range(70_000)]
    first = placement.servers_of(many[:40_000])
    assert placement.servers_of(many)[:40_000] == first
    assert placement.servers_of(many[30_000:])[:10_000] == first[30_000:]
