import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from zarr.abc.store import OffsetByteRequest, RangeByteRequest, SuffixByteRequest

from ucxstore.client.byte_ranges import bounds, many_to_native, to_native

sizes = st.integers(0, 20)
requests = st.one_of(
    st.none(),
    st.builds(RangeByteRequest, sizes, sizes),
    st.builds(OffsetByteRequest, sizes),
    st.builds(SuffixByteRequest, sizes),
)


def cut(value: bytes, request: object) -> bytes:
    match request:
        case None:
            return value
        case RangeByteRequest(start, end):
            return value[start:end]
        case OffsetByteRequest(offset):
            return value[offset:]
        case SuffixByteRequest(suffix):
            return value[max(0, len(value) - suffix) :]
    raise AssertionError(request)


@given(st.binary(max_size=12), st.lists(requests))
def test_bounds_are_those_of_slices(value: bytes, wanted: list) -> None:
    found = [value[a:b] for a, b in bounds(many_to_native(wanted), len(value))]
    assert found == [cut(value, request) for request in wanted]


def test_the_kinds() -> None:
    assert to_native(None) == []
    assert to_native(RangeByteRequest(2, 5)) == [(1, 2, 5)]
    assert to_native(OffsetByteRequest(3)) == [(2, 3, 0)]
    assert to_native(SuffixByteRequest(4)) == [(3, 4, 0)]
    assert many_to_native([None]) == [(2, 0, 0)]


def test_numbers_of_numpy_become_pythons() -> None:
    (native,) = to_native(RangeByteRequest(np.uint64(2), np.int32(5)))
    assert [type(number) for number in native] == [int, int, int]


@pytest.mark.parametrize("wrong", [(0, 2), 5, "0-2", slice(0, 2), {"start": 0}])
def test_other_types_are_refused(wrong: object) -> None:
    with pytest.raises(TypeError, match=r"Unexpected byte_range, got "):
        to_native(wrong)
    with pytest.raises(TypeError, match=r"Unexpected byte_range, got "):
        many_to_native([None, wrong])  # type: ignore[list-item]


@pytest.mark.parametrize(
    "wrong", [RangeByteRequest(-1, 2), RangeByteRequest(0, -2), OffsetByteRequest(-1)]
)
def test_negative_numbers_are_refused(wrong: object) -> None:
    with pytest.raises(ValueError, match="negative"):
        to_native(wrong)
