"""Compare two arrays or datasets bit by bit."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr


def array_differences(expected: npt.NDArray[Any], actual: npt.NDArray[Any]) -> list[str]:
    """Describe how two arrays differ; return an empty list if they have the same bits.

    Bits are compared, not numbers: NaN equals NaN with the same bits, and -0.0 differs from 0.0.
    """
    if expected.dtype != actual.dtype:
        return [f"dtype {actual.dtype} in place of {expected.dtype}"]
    if expected.shape != actual.shape:
        return [f"shape {actual.shape} in place of {expected.shape}"]
    if expected.dtype.hasobject:
        return [f"dtype {expected.dtype} holds references, which cannot be compared bit by bit"]
    differing = np.any(_item_bytes(expected) != _item_bytes(actual), axis=1)
    count = int(np.count_nonzero(differing))
    if count == 0:
        return []
    first = np.unravel_index(int(np.argmax(differing)), expected.shape)
    where = tuple(map(int, first))
    return [
        f"{count} of {expected.size} items, the first at {where}: "
        f"{actual[where]!r} in place of {expected[where]!r}"
    ]


def dataset_differences(expected: xr.Dataset, actual: xr.Dataset) -> list[str]:
    """Describe how two datasets differ in their variables, coordinates and attributes.

    Parameters
    ----------
    expected, actual : xarray.Dataset
        Their chunks and encodings are not compared.

    Returns
    -------
    list of str
        One line for each difference; empty if there are none.
    """
    return [
        *_name_differences("variables", expected.variables, actual.variables),
        *_name_differences("coordinates", expected.coords, actual.coords),
        *_attribute_differences("the dataset", expected.attrs, actual.attrs),
        *(
            difference
            for name in expected.variables
            if name in actual.variables
            for difference in _variable_differences(
                str(name), expected.variables[name], actual.variables[name]
            )
        ),
    ]


def _variable_differences(name: str, expected: xr.Variable, actual: xr.Variable) -> Iterator[str]:
    if expected.dims != actual.dims:
        yield f"{name}: dimensions {actual.dims} in place of {expected.dims}"
    for difference in array_differences(np.asarray(expected.values), np.asarray(actual.values)):
        yield f"{name}: {difference}"
    yield from _attribute_differences(name, expected.attrs, actual.attrs)


def _attribute_differences(
    name: str, expected: Mapping[Any, Any], actual: Mapping[Any, Any]
) -> Iterator[str]:
    yield from _name_differences(f"attributes of {name}", expected, actual)
    for key in expected.keys() & actual.keys():
        if not np.array_equal(expected[key], actual[key]):
            yield f"{name}: attribute {key} is {actual[key]!r} in place of {expected[key]!r}"


def _name_differences(
    what: str, expected: Mapping[Any, Any], actual: Mapping[Any, Any]
) -> Iterator[str]:
    missing = sorted(map(str, expected.keys() - actual.keys()))
    added = sorted(map(str, actual.keys() - expected.keys()))
    if missing:
        yield f"{what}: {', '.join(missing)} missing"
    if added:
        yield f"{what}: {', '.join(added)} too many"


def _item_bytes(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return each item of `array` as a row of bytes, or as one wide integer if that fits."""
    flat = np.ascontiguousarray(array).reshape(-1)
    unit = np.dtype(f"u{flat.itemsize}" if flat.itemsize in {1, 2, 4, 8} else "u1")
    return flat.view(unit).reshape(flat.size, flat.itemsize // unit.itemsize)
