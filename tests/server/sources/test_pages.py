import pytest

from ucxstore.server.sources.source import Page, paged, parent_of

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


def test_a_page_has_one_name_at_the_least() -> None:
    assert paged(["a" * 100, "b"], "", 1) == Page(["a" * 100], "b")


def test_names_that_can_be_no_keys_are_left_out() -> None:
    assert paged(["", "/a", "a", "a/", "a//b", "b/../c"], "", 100) == Page(["a"], "")


@pytest.mark.parametrize(("prefix", "parent"), [("", ""), ("a", ""), ("a/", "a"), ("a/b/c", "a/b")])
def test_parents(prefix: str, parent: str) -> None:
    assert parent_of(prefix) == parent
