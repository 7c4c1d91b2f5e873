import pytest

from ucxstore.cli.cp.plan import GROUP_BYTES, Entry, groups, is_same, plan_copy, plan_one


@pytest.mark.parametrize(
    ("source", "found", "same"),
    [
        (Entry("a", 3), Entry("a", 3), True),
        (Entry("a", 3), Entry("a", 4), False),
        (Entry("a", 3, 10.0), Entry("a", 3), True),
        (Entry("a", 3), Entry("a", 3, 10.0), True),
        (Entry("a", 3, 10.0), Entry("a", 3, 11.0), True),
        (Entry("a", 3, 10.0), Entry("a", 3, 10.0), True),
        (Entry("a", 3, 10.7), Entry("a", 3, 10.0), True),
        (Entry("a", 3, 10.7), Entry("a", 3, 10.6), False),
        (Entry("a", 3, 11.0), Entry("a", 3, 10.0), False),
        (Entry("a", 3, 11.0, "x"), Entry("a", 3, 10.0, "y"), False),
        (Entry("a", 3, 11.0, "x"), Entry("a", 3, 10.0, "x"), True),
        (Entry("a", 3, 11.0, "x"), Entry("a", 4, 10.0, "x"), False),
    ],
)
def test_what_is_a_copy(source: Entry, found: Entry, same: bool) -> None:
    assert is_same(source, found) is same


def test_metadata_comes_last_and_copies_are_left_out() -> None:
    source = [
        Entry("zarr.json", 5),
        Entry("a/.zarray", 5),
        Entry("a/0.0", 7),
        Entry("a/0.1", 7),
        Entry("zarr.json/x", 7),
    ]
    plan = plan_copy(source, {"a/0.0": Entry("a/0.0", 7), "a/0.1": Entry("a/0.1", 6)})
    assert [entry.key for entry in plan.chunks] == ["a/0.1", "zarr.json/x"]
    assert [entry.key for entry in plan.metadata] == ["zarr.json", "a/.zarray"]
    assert (plan.present, plan.keys, plan.nbytes) == (1, 4, 24)


@pytest.mark.parametrize("key", ["../a", "a/../../b", "/etc/passwd", "a//b", "a/", "", "a\0b"])
def test_keys_outside_the_tree_are_refused(key: str) -> None:
    for plan in (
        lambda: plan_copy([Entry("fine", 1), Entry(key, 1)], {}),
        lambda: plan_one(Entry("fine", 1), key),
    ):
        with pytest.raises(ValueError, match="refused") as caught:
            plan()
        assert repr(key) in str(caught.value)


def test_one_value_gets_a_name_of_its_own() -> None:
    plan = plan_one(Entry("zarr.json", 5, 10.0), "b")
    assert (plan.present, plan.keys, plan.nbytes) == (0, 1, 5)
    assert [plan.target_of(entry) for entry in plan.chunks] == [Entry("b", 5, 10.0)]
    whole = plan_copy([Entry("a", 1)], {})
    assert [whole.target_of(entry) for entry in whole.chunks] == [Entry("a", 1)]


def test_groups() -> None:
    sizes = [GROUP_BYTES // 2, GROUP_BYTES // 2, 1, 3 * GROUP_BYTES, 0, 0, 0]
    entries = [Entry(str(number), size) for number, size in enumerate(sizes)]
    found = [[entry.key for entry in group] for group in groups(entries, 2)]
    assert found == [["0", "1"], ["2"], ["3"], ["4", "5"], ["6"]]
    assert [len(group) for group in groups(entries, 1)] == [1] * 7
    assert list(groups([], 5)) == []
