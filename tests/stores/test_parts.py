"""The core's parts: what is gathered from values, scattered into memory and joined, as by numpy."""

import math
import uuid
from collections.abc import Iterator
from typing import Any

import hypothesis.extra.numpy as npst
import hypothesis.strategies as st
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings

from tests.backdoor import TIMEOUT, MemoryBackdoor
from ucxstore import ChunkSizeError, UcxStoreError
from ucxstore.client.memory import readable_view

type Offsets = npt.NDArray[np.int64]
type Part = tuple[int, int, list[int], list[int], Offsets | None]

OK, MISSING, CHANGED = 0, 1, 2

VALUE = np.random.default_rng(1).integers(0, 256, 2_000_000, "u1")
VALUE.flags.writeable = False


@pytest.fixture(scope="module")
def transport() -> dict[str, str] | None:
    return None


@pytest.fixture(scope="module", params=["memory", "directory"])
def client(
    request: pytest.FixtureRequest, transport: dict[str, str] | None
) -> Iterator[MemoryBackdoor]:
    server = request.getfixturevalue(f"{request.param}_server")
    with MemoryBackdoor(server.address, transport) as client:
        client.set("parts/value", VALUE.tobytes())
        yield client


@pytest.fixture
def key() -> str:
    return f"parts/{uuid.uuid4().hex}"


def places(part: Part) -> Offsets:
    """Return where each byte of a part lies."""
    offset, run, counts, strides, offsets = part
    starts = offset + (np.zeros(1, "i8") if offsets is None else offsets)
    for count, stride in zip(counts, strides, strict=True):
        starts = (starts[:, None] + np.arange(count) * stride).ravel()
    return (starts[:, None] + np.arange(run)).ravel()


@st.composite
def sources(draw: st.DrawFn) -> Part:
    """Draw parts of `VALUE`, of up to 300,000 bytes; any may come many times."""
    axes = draw(st.integers(0, 3))
    counts = draw(st.lists(st.integers(1, 4), min_size=axes, max_size=axes))
    strides = draw(st.lists(st.integers(0, 20_000), min_size=axes, max_size=axes))
    run = draw(st.sampled_from([1, 3, 4, 16, 100, 4000]))
    most = 300_000 // run // math.prod(counts)
    offset = draw(st.integers(0, 100_000))
    offsets = None
    if draw(st.booleans()):
        offsets = draw(
            npst.arrays("i8", st.integers(0, min(most, 200)), elements=st.integers(0, 1_500_000))
        )
    elif draw(st.booleans()):
        offsets = np.arange(draw(st.integers(1, min(most, 5000)))) * draw(st.integers(1, 300))
    return offset, run, counts, strides, offsets


@st.composite
def targets(draw: st.DrawFn, size: int) -> tuple[Part, int]:
    """Draw a part of as many bytes, none of them twice, and the memory that it takes."""
    run = draw(st.sampled_from([n for n in (1, 2, 3, 4, 16, 50, size) if n and size % n == 0]))
    count = size // run if run else 0
    step = run + draw(st.integers(0, 3))
    match draw(st.sampled_from(["list", "axis", "backwards", "axes"])):
        case "list":
            order = np.random.default_rng(draw(st.integers(0, 99))).permutation(count)
            part: Part = 3, run, [], [], order.astype("i8") * step
        case "backwards" if count:
            part = (count - 1) * step, run, [count], [-step], None
        case "axes" if count % 2 == 0:  # as of a transposed array
            part = 3, run, [2, count // 2], [step, 2 * step], None
        case _:
            part = 0, run, [count], [step], None
    return part, count * step + 3


@settings(deadline=None)
@given(data=st.data())
def test_as_numpy_gathers_and_scatters(client: MemoryBackdoor, data: st.DataObject) -> None:
    wanted = data.draw(st.lists(sources(), max_size=4))
    filled: list[Part] = []
    end = 0
    for source in wanted:
        (offset, *rest), room = data.draw(targets(places(source).size))
        filled.append((end + offset, *rest))
        end += room
    out, expected = np.zeros(end, "u1"), np.zeros(end, "u1")
    for source, target in zip(wanted, filled, strict=True):
        expected[places(target)] = VALUE[places(source)]
    assert read(client, ["parts/value"] * len(wanted), wanted, filled, out) == [OK] * len(wanted)
    np.testing.assert_array_equal(out, expected)


def read(
    client: MemoryBackdoor,
    keys: list[str],
    wanted: list[Part],
    filled: list[Part],
    out: npt.NDArray[Any],
    *,
    sizes: list[int] | None = None,
    versions: list[int] | None = None,
) -> list[int]:
    address = out.__array_interface__["data"][0]
    expected = sizes or [-1] * len(keys)
    mean = versions or [0] * len(keys)
    operation = client.connection.read_parts(
        keys, wanted, filled, address, expected, mean, out, "", TIMEOUT, None
    )
    outcomes: list[int] = operation.wait()
    return outcomes


def version(client: MemoryBackdoor, key: str) -> int:
    ((_, _, number),) = client.connection.get([key], [[]], TIMEOUT, None).wait()
    assert number != 0
    return int(number)


def test_each_item_has_its_outcome(client: MemoryBackdoor, key: str) -> None:
    client.set(key, b"first")
    first = version(client, key)
    client.set(key, b"later")
    part: Part = 0, 5, [], [], None
    filled: list[Part] = [(5 * i, 5, [], [], None) for i in range(5)]
    out = np.full(25, ord("."), "u1")
    keys = [key, key, f"{key}/none", key, f"{key}/none"]
    mean = [version(client, key), first, 0, 0, first]
    outcomes = read(client, keys, [part] * 5, filled, out, versions=mean)
    assert outcomes == [OK, CHANGED, MISSING, OK, MISSING]
    assert out.tobytes() == b"later..........later....."


def test_a_changed_value_is_not_got(client: MemoryBackdoor, key: str) -> None:
    client.set(key, b"first")
    first = version(client, key)
    ((data, size, number),) = client.connection.get(
        [key], [[]], TIMEOUT, None, versions=[first]
    ).wait()
    assert (bytes(data), size, number) == (b"first", 5, first)
    client.set(key, b"another")
    now = version(client, key)
    got = client.connection.get([key] * 2, [[(1, 90, 99)], []], TIMEOUT, None, [first, now]).wait()
    assert got[0] == (None, 7, now)
    assert got[1][0].tobytes() == b"another"


def test_sizes_are_checked(client: MemoryBackdoor, key: str) -> None:
    client.set(key, bytes(100))
    out = np.zeros(10, "u1")
    part: Part = 0, 10, [], [], None
    assert read(client, [key], [part], [part], out, sizes=[100]) == [OK]
    with pytest.raises(ChunkSizeError, match=key):
        read(client, [key], [part], [part], out, sizes=[101])


@pytest.mark.parametrize(
    "source",
    [
        (91, 10, [], [], None),
        (0, 2, [5], [25], None),
        (0, 10, [], [], np.array([91])),
        (60, 5, [], [], np.array([0, 36])),
        (0, 5, [], [], np.array([0, 2**62])),
    ],
)
def test_a_source_outside_its_value(client: MemoryBackdoor, key: str, source: Part) -> None:
    client.set(key, bytes(100))
    with pytest.raises(ValueError, match=key):
        read(client, [key], [source], [(0, 10, [], [], None)], np.zeros(10, "u1"))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ((-1, 10, [], [], None), "before"),
        ((5, 5, [], [], np.array([0, -6])), "before"),
        ((20, 5, [2], [-5], None), "larger"),
        ((0, 5, [], [], np.array([0, 5, 10])), "sizes"),
        ((0, 11, [], [], None), "sizes"),
        ((0, 5, [2], [], None), "lengths"),
        ((0, 1, [10] + [1] * 64, [1] * 65, None), "axes"),
        ((0, 10, [2**32, 2**32], [0, 0], None), "larger"),
        ((2**63 - 1, 5, [], [], np.array([0, 1])), "larger"),
        ((0, 2**63, [], [], None), "larger"),
        ((0, 1, [], [], np.zeros(16_385, "i8")), "more boxes"),
    ],
)
def test_what_no_request_takes(
    client: MemoryBackdoor, key: str, source: Part, message: str
) -> None:
    with pytest.raises(ValueError, match=f"{key}.*{message}"):
        read(client, [key], [source], [(0, 10, [], [], None)], np.zeros(10, "u1"))


def test_as_many_of_each(client: MemoryBackdoor, key: str) -> None:
    part: Part = 0, 1, [], [], None
    out = np.zeros(1, "u1")
    bad: dict[str, Any]
    for bad in ({"wanted": []}, {"filled": []}, {"sizes": [1, 1]}, {"versions": [1, 1]}):
        with pytest.raises(ValueError, match="one"):
            read(client, [key], **{"wanted": [part], "filled": [part], "out": out} | bad)


@settings(deadline=None)
@given(data=st.data())
def test_values_of_many_arrays(client: MemoryBackdoor, data: st.DataObject) -> None:
    shapes = npst.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=40)
    arrays = data.draw(
        st.lists(
            st.builds(
                lambda shape, step, order: np.array(noise(shape), order=order)[..., ::step],
                shapes,
                st.sampled_from([1, 2, -1]),
                st.sampled_from("CF"),
            ),
            max_size=5,
        )
    )
    memory = [readable_view(array) for array in arrays]
    client.connection.set_parts(
        ["parts/joined", "parts/one"],
        [[m.layout for m in memory], [readable_view(VALUE).layout]],
        [arrays, VALUE],
        TIMEOUT,
        None,
    ).wait()
    assert client.get("parts/joined") == b"".join(array.tobytes() for array in arrays)
    assert client.get("parts/one") == VALUE.tobytes()


def noise(shape: tuple[int, ...]) -> npt.NDArray[np.int16]:
    return np.random.default_rng(sum(shape)).integers(-999, 999, shape, "i2")


def test_set_parts_is_told_of_failures(client: MemoryBackdoor) -> None:
    with pytest.raises(UcxStoreError, match="a//b"):
        client.connection.set_parts(["a//b"], [[]], [], TIMEOUT, None)
    with pytest.raises(ValueError, match="one value"):
        client.connection.set_parts(["a"], [], [], TIMEOUT, None)
