"""What several servers answer is what one would have answered that had it all."""

import hypothesis.strategies as st
from hypothesis import given

from ucxstore.cluster.answers import Page, pick

names = st.text(st.sampled_from("ab/-é0"), min_size=1, max_size=4)


@given(st.lists(st.sets(names), min_size=1, max_size=4), st.integers(1, 5))
def test_pages_of_keys_are_merged(servers: list[set[str]], most: int) -> None:
    """Each server's pages hold `most` keys; a cursor is the key that the next one begins with."""
    listed: list[str] = []
    cursor = ""
    while True:
        page = Page()
        for server in servers:
            left = sorted(name for name in server if name >= cursor)
            page.take((0,), (left[:most], left[most] if len(left) > most else ""))
        some, cursor = page.finish()
        listed += some
        if not cursor:
            break
        assert some
    assert listed == sorted(set().union(*servers))


@given(st.data(), st.integers(0, 3), st.integers(0, 6))
def test_what_belongs_to_keys_is_picked(data: st.DataObject, width: int, count: int) -> None:
    positions = sorted(data.draw(st.sets(st.sampled_from(range(count)))) if count else [])
    numbers = list(range(count * width))
    rows = [numbers[i * width : (i + 1) * width] for i in range(count)]
    assert list(pick(numbers, positions, width)) == [n for i in positions for n in rows[i]]
