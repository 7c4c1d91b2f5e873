import array
import mmap
from pathlib import Path

import numpy as np
import pytest

from ucxstore.client.memory import Memory, may_overlap, readable_view, writable_view


def bytes_at(memory: Memory) -> bytes:
    """Read what a layout describes, item by item in C order."""
    address, shape, strides, itemsize = memory.layout
    items = np.ndarray(
        shape,
        f"V{itemsize}",
        buffer=_window(address, shape, strides, itemsize),
        offset=-_lowest(shape, strides),
        strides=strides,
    )
    return items.tobytes()


def _lowest(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    return sum(min(0, (n - 1) * s) for n, s in zip(shape, strides, strict=True))


def _window(
    address: int, shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int
) -> object:
    import ctypes

    low = _lowest(shape, strides)
    high = sum(max(0, (n - 1) * s) for n, s in zip(shape, strides, strict=True)) + itemsize
    return (ctypes.c_char * (high - low)).from_address(address + low)


@pytest.mark.parametrize(
    "value",
    [
        np.arange(12, dtype="<f4").reshape(3, 4),
        np.asfortranarray(np.arange(12, dtype=">i8").reshape(3, 4)),
        np.arange(40).reshape(5, 8)[1:4, ::2],
        np.arange(10)[::-1],
        np.arange(4).astype("M8[ns]"),
        np.array([(1, 2.0), (3, 4.0)], dtype=[("a", "<i2"), ("b", "<f8")]),
        np.array(["ab", "c"]),
        np.array(True),
        np.float32(1.5),
        np.broadcast_to(np.arange(3), (4, 3)),
    ],
    ids=lambda value: f"{value.dtype}{value.shape}{value.strides}",
)
def test_arrays_are_described_where_they_lie(value: np.ndarray) -> None:
    memory = readable_view(value)
    assert bytes_at(memory) == value.tobytes()
    assert memory.kind == "host"


@pytest.mark.parametrize(
    "value",
    [b"abc", bytearray(b"abc"), memoryview(b"xabcx")[1:4], array.array("B", b"abc")],
    ids=lambda value: type(value).__name__,
)
def test_buffers_are_described_where_they_lie(value: object) -> None:
    assert bytes_at(readable_view(value)) == b"abc"


def test_a_mapped_file(tmp_path: Path) -> None:
    path = tmp_path / "value"
    path.write_bytes(b"mapped")
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        memory = writable_view(mapped)
        assert bytes_at(memory) == b"mapped"
        del memory  # it holds the mapping open


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the format, from Python 3.13 on
def test_an_item_format_that_numpy_lacks() -> None:
    value = memoryview(array.array("u", "ab"))
    assert bytes_at(readable_view(value)) == value.tobytes()


def test_whatever_has_an_array_interface() -> None:
    class Holder:
        inner = np.arange(6, dtype="i2").reshape(2, 3).T
        __array_interface__ = inner.__array_interface__

    assert bytes_at(readable_view(Holder())) == Holder.inner.tobytes()


def test_dlpack_on_the_host() -> None:
    class Tensor:
        inner = np.arange(6.0)

        def __dlpack__(self, **options: object) -> object:
            return self.inner.__dlpack__(**options)

        def __dlpack_device__(self) -> tuple[int, int]:
            return self.inner.__dlpack_device__()

    assert bytes_at(writable_view(Tensor())) == Tensor.inner.tobytes()


def test_nothing_is_copied() -> None:
    out = np.zeros((4, 6))[::2, 1:5]
    address, shape, strides, itemsize = writable_view(out).layout
    assert address == out.ctypes.data
    assert (shape, strides, itemsize) == (out.shape, out.strides, 8)


def test_the_owner_keeps_a_buffer_from_being_resized() -> None:
    value = bytearray(10)
    memory = writable_view(value)
    with pytest.raises(BufferError):
        value.append(0)
    del memory
    value.append(0)


@pytest.mark.parametrize(
    "out", [b"abc", np.broadcast_to(np.arange(3), (3,)), memoryview(b"abc"), np.float64(1)]
)
def test_read_only_destinations_are_refused(out: object) -> None:
    with pytest.raises(TypeError, match="read-only"):
        writable_view(out)


@pytest.mark.parametrize(
    "value",
    [
        np.array([object()]),
        np.array([None], dtype=[("a", "O")]),
        np.array(["a"], dtype=np.dtypes.StringDType()),
    ],
)
def test_references_are_refused(value: np.ndarray) -> None:
    with pytest.raises(TypeError, match="references"):
        readable_view(value)


@pytest.mark.parametrize("value", [None, 1, "text", [1, 2], object()])
def test_what_holds_no_memory_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match="neither an array nor a buffer"):
        readable_view(value)


class OnCuda:
    __cuda_array_interface__ = {"version": 3}  # noqa: RUF012


class OnDevice:
    def __dlpack__(self) -> object:
        raise AssertionError("nobody may ask for it")

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 1


@pytest.mark.parametrize(
    ("value", "says"),
    [(OnCuda(), "CUDA device.*OnCuda"), (OnDevice(), "type 2, number 1.*OnDevice")],
)
def test_device_memory_is_refused_by_name(value: object, says: str) -> None:
    for view in readable_view, writable_view:
        with pytest.raises(TypeError, match=says):
            view(value)


def strided(shape: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray:
    return np.lib.stride_tricks.as_strided(np.zeros(1000, "u1"), shape, strides)


@pytest.mark.parametrize(
    ("shape", "strides"), [((4,), (0,)), ((3, 4), (0, 1)), ((3, 4), (2, 1)), ((2, 2, 2), (1, 4, 1))]
)
def test_overlapping_destinations_are_refused(
    shape: tuple[int, ...], strides: tuple[int, ...]
) -> None:
    with pytest.raises(ValueError, match="overlaps itself"):
        writable_view(strided(shape, strides))


@pytest.mark.parametrize(
    ("shape", "strides"),
    [
        ((4,), (1,)),
        ((4,), (-1,)),
        ((1, 4), (0, 1)),
        ((3, 4), (1, 3)),
        ((3, 4), (9, -2)),
        ((0,), (0,)),
    ],
)
def test_gaps_and_turned_axes_do_not_overlap(
    shape: tuple[int, ...], strides: tuple[int, ...]
) -> None:
    assert not may_overlap(strided(shape, strides))
