import pytest
from hypothesis import given
from hypothesis import strategies as st

from ucxstore.base.errors import InvalidKeyError
from ucxstore.base.keys import MAX_KEY_BYTES, check_key, find_problem, is_metadata


@pytest.mark.parametrize(
    "key",
    [
        "zarr.json",
        "c/0/0",
        "a/.zarray",
        ".zgroup",
        "...",
        "a/..b",
        "a/b..",
        "a b/c?d#e",
        "temperatur/größe",
        "😀",
        "back\\slash",
        "new\nline",
        "x" * MAX_KEY_BYTES,
        "é" * (MAX_KEY_BYTES // 2),
    ],
)
def test_a_good_key_passes(key: str) -> None:
    check_key(key)


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        ("", "empty"),
        ("/", "starts with '/'"),
        ("/a", "starts with '/'"),
        ("a/", "ends with '/'"),
        ("a//b", "empty segment"),
        (".", "'.' segment"),
        ("..", "'..' segment"),
        ("../a", "'..' segment"),
        ("a/..", "'..' segment"),
        ("a/../b", "'..' segment"),
        ("a/./b", "'.' segment"),
        ("a\0b", "NUL"),
        ("a\udc80", "surrogate"),
        ("x" * (MAX_KEY_BYTES + 1), f"{MAX_KEY_BYTES + 1} bytes"),
        ("é" * (MAX_KEY_BYTES // 2) + "x", f"{MAX_KEY_BYTES + 1} bytes"),
    ],
)
def test_a_bad_key_is_refused_with_the_reason(key: str, problem: str) -> None:
    with pytest.raises(InvalidKeyError, match="invalid key") as caught:
        check_key(key)
    assert problem in str(caught.value)


def test_the_message_names_the_key_but_not_all_of_a_long_one() -> None:
    with pytest.raises(InvalidKeyError, match=r"'a/\.\./b'"):
        check_key("a/../b")
    with pytest.raises(InvalidKeyError) as caught:
        check_key("y" * 100_000)
    assert len(str(caught.value)) < 200


@given(
    st.one_of(
        st.text(),
        st.lists(st.sampled_from(["a", "é", ".", "..", "", "\0", ".a", "a."])).map("/".join),
        st.integers(MAX_KEY_BYTES - 2, MAX_KEY_BYTES + 2).map("x".__mul__),
    )
)
def test_the_short_way_agrees_with_the_close_look(key: str) -> None:
    try:
        check_key(key)
    except InvalidKeyError:
        assert find_problem(key) is not None
    else:
        assert find_problem(key) is None
        assert key.encode()


@pytest.mark.parametrize(
    ("key", "is_it"),
    [
        ("zarr.json", True),
        ("a/zarr.json", True),
        ("a/.zarray", True),
        (".zgroup", True),
        ("a/b/.zattrs", True),
        (".zmetadata", True),
        ("a/c/0/0", False),
        ("a/notzarr.json", False),
        ("zarr.json/c/0", False),
        ("a/0.zarray", False),
    ],
)
def test_metadata(key: str, is_it: bool) -> None:
    assert is_metadata(key) == is_it
