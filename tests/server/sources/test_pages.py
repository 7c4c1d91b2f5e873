import asyncio
import random
from collections.abc import Sequence

import obstore
import pytest
from obstore.store import MemoryStore

from ucxstore.server.sources.object_store import ObjectSource
from ucxstore.server.sources.source import ListedPage, Smallest, paged, parent_of

NAMES = ["a", "a/b", "a/c", "b", "ü"]


def test_pages_follow_one_another() -> None:
    found: list[str] = []
    cursor = ""
    while True:
        page = paged(NAMES, cursor, 6)
        assert page.names
        found += page.names
        cursor = page.cursor
        if not cursor:
            break
    assert found == NAMES


def test_pages_out_of_names_in_any_order() -> None:
    names = [f"{number}/{number % 7}" for number in range(3000)]
    random.Random(1).shuffle(names)
    found: list[str] = []
    cursor = ""
    while True:
        smallest = Smallest(cursor, 300)
        for name in names:
            smallest.add(name)
            assert len(smallest._names) <= 4 * 300  # far fewer than there are
        page = smallest.page()
        assert page.names
        found += page.names
        cursor = page.cursor
        if not cursor:
            break
    assert found == sorted(names)


@pytest.mark.parametrize("length", [1, 100])
def test_a_page_of_any_names_has_one_at_the_least(length: int) -> None:
    smallest = Smallest("", 1)
    for letter in "edcbafgh":
        smallest.add(letter * length)
    assert smallest.page() == ListedPage(["a" * length], "b" * length)


def test_a_page_has_one_name_at_the_least() -> None:
    assert paged(["a" * 100, "b"], "", 1) == ListedPage(["a" * 100], "b")


def test_names_that_can_be_no_keys_are_left_out() -> None:
    assert paged(["", "/a", "a", "a/", "a//b", "b/../c"], "", 100) == ListedPage(["a"], "")


def list_page(keys: Sequence[str], cursor: str) -> ListedPage:
    store = MemoryStore()
    for key in keys:
        obstore.put(store, key, b"")
    source = ObjectSource(store, "memory")
    return asyncio.run(source.list_page("", delimited=False, cursor=cursor, room=10))


def test_keys_before_the_cursor_take_no_room_in_a_page_of_objects() -> None:
    """They are listed again: the offset "x" stands before them and before the cursor "x/1"."""
    before = [f"x.{number:04}" for number in range(1500)]
    assert list_page([*before, "x/1", "x/2"], "x/1") == ListedPage(["x/1", "x/2"], "")


def test_names_that_can_be_no_keys_take_no_room_in_a_page_of_objects() -> None:
    too_long = [f"{'a' * 1100}{number:04}" for number in range(1000)]
    assert list_page([*too_long, "b", "c"], "") == ListedPage(["b", "c"], "")


@pytest.mark.parametrize(("prefix", "parent"), [("", ""), ("a", ""), ("a/", "a"), ("a/b/c", "a/b")])
def test_parents(prefix: str, parent: str) -> None:
    assert parent_of(prefix) == parent
