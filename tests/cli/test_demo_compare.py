"""The demo's comparison sees a single flipped bit."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import xarray as xr

from ucxstore.cli.demo.compare import array_differences, dataset_differences

ARRAYS = {
    "float32": np.linspace(0, 1, 24, dtype="f4").reshape(2, 3, 4),
    "with NaN": np.array([np.nan, 1.0, np.inf]),
    "big-endian": np.arange(6, dtype=">i2"),
    "strided": np.arange(20, dtype="u8")[::3],
    "Fortran": np.asfortranarray(np.arange(12, dtype="f8").reshape(3, 4)),
    "scalar": np.array(7, dtype="i4"),
    "times": np.array(["2006-04-16", "NaT"], dtype="M8[ns]"),
    "bytes": np.array([b"ab", b"cde"], dtype="S3"),
    "complex": np.array([1 + 2j, 3]),
    "structured": np.array([(1, 2.5), (3, 4.5)], dtype=[("a", "u1"), ("b", "f8")]),
    "bool": np.array([True, False]),
}


def flip_a_bit(array: npt.NDArray[Any], item: int, bit: int) -> npt.NDArray[Any]:
    flipped = array.copy()
    data = bytearray(flipped.tobytes())
    data[item * array.itemsize + bit // 8] ^= 1 << bit % 8
    return np.frombuffer(bytes(data), array.dtype).reshape(array.shape)


@pytest.mark.parametrize("name", ARRAYS)
def test_equal_arrays_have_no_differences(name: str) -> None:
    assert array_differences(ARRAYS[name], ARRAYS[name].copy()) == []


@pytest.mark.parametrize("name", ARRAYS)
def test_any_flipped_bit_is_a_difference(name: str) -> None:
    array = ARRAYS[name]
    for item in {0, array.size - 1}:
        where = tuple(map(int, np.unravel_index(item, array.shape)))
        for bit in range(8 * array.itemsize):
            [difference] = array_differences(array, flip_a_bit(array, item, bit))
            assert difference.startswith(f"1 of {array.size} items, the first at {where}: ")


def test_all_differing_items_are_counted() -> None:
    [difference] = array_differences(np.zeros(5), np.array([0.0, 1.0, 0.0, 1.0, 1.0]))
    assert difference.startswith("3 of 5 items, the first at (1,)")


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        (np.array([0.0]), np.array([-0.0])),
        (np.zeros(3), np.zeros((3, 1))),
        (np.zeros(3), np.zeros(0)),
        (np.zeros(3, "f4"), np.zeros(3, "i4")),
        (np.zeros(3, "<f4"), np.zeros(3, ">f4")),
        (np.array(["a"], object), np.array(["a"], object)),  # whose bits mean nothing
    ],
)
def test_what_else_differs(expected: npt.NDArray[Any], actual: npt.NDArray[Any]) -> None:
    assert len(array_differences(expected, actual)) == 1


def test_empty_arrays_are_equal() -> None:
    assert array_differences(np.zeros((0, 3)), np.zeros((0, 3))) == []


@pytest.fixture
def dataset() -> xr.Dataset:
    return xr.Dataset(
        {"t": (("y", "x"), np.arange(6, dtype="f4").reshape(2, 3), {"units": "K"})},
        coords={"x": np.arange(3), "height": 2.0},
        attrs={"title": "test", "levels": [1, 2]},
    )


def test_a_copy_of_a_dataset_is_equal(dataset: xr.Dataset) -> None:
    assert dataset_differences(dataset, dataset.copy(deep=True)) == []


@pytest.mark.parametrize("name", ["t", "x", "height"])
def test_a_flipped_bit_in_any_variable_of_a_dataset(dataset: xr.Dataset, name: str) -> None:
    variable = dataset[name]
    flipped = variable.copy(data=flip_a_bit(variable.values, 0, 0))
    changed = dataset.assign({name: flipped}).set_coords(list(dataset.coords))
    [difference] = dataset_differences(dataset, changed)
    assert difference.startswith(f"{name}: 1 of {variable.size} items")


def test_differences_besides_the_values(dataset: xr.Dataset) -> None:
    def one_difference(changed: xr.Dataset) -> str:
        [difference] = dataset_differences(dataset, changed)
        return difference

    assert "variables: t missing" in one_difference(dataset.drop_vars("t"))
    assert "variables: u too many" in one_difference(dataset.assign(u=1))
    assert "coordinates: height missing" in one_difference(dataset.reset_coords("height"))
    assert "attribute levels" in one_difference(dataset.assign_attrs(levels=[1, 3]))
    assert "too many" in one_difference(dataset.assign_attrs(more=1))
    changed = dataset.copy()
    changed["t"] = dataset["t"].assign_attrs(units="degC")
    assert one_difference(changed) == "t: attribute units is 'degC' in place of 'K'"
    assert (
        "t: dimensions ('b', 'a')"
        in dataset_differences(dataset.drop_vars("x"), dataset.drop_vars("x").rename(y="b", x="a"))[
            0
        ]
    )
