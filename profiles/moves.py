"""What the rows call that do not read or write a zarr array, but see the values where they lie."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from profiles.stores import Row
from ucxstore import UcxStore

type Values = npt.NDArray[Any]
type Action = Callable[[], Any]

# Of an array of one chunk.
_KEY = "c/0/0"

# In which a server makes huge pages of a value of 100 MB.
_COLLAPSE_SECONDS = 20.0


def action_of(row: Row, store: Any) -> Callable[[Any, Values], Action] | None:
    """Return what makes the call that moves the whole array; ``None`` for that of zarr's array.

    It is given the array and its values, and makes what the call needs beforehand.
    """
    match row.call:
        case "":
            return None
        case "view":
            return lambda array, values: lambda: _view(store, values)
        case "view_array" | "map_files":
            files = row.call == "map_files"
            return lambda array, values: (
                lambda: store.view_array_sync(array, map=True, map_files=files).array
            )
        case "mapped":
            return lambda array, values: _mapped(store, array)
        case "allocate":
            return lambda array, values: _allocated(store, values)
        case unknown:
            raise ValueError(f"no row calls {unknown!r}")


def _view(store: UcxStore, values: Values) -> Values:
    view = store.view_sync(_KEY, map=True)
    assert view is not None, "the chunk is missing"
    return view.array.view(values.dtype).reshape(values.shape)


def _mapped(store: UcxStore, array: Any) -> Action:
    """Wait until the server has huge pages, which alone are mapped into results."""
    deadline = time.monotonic() + _COLLAPSE_SECONDS
    while store.stats()["mapped"] == 0:
        if time.monotonic() > deadline:
            raise AssertionError("the kernel makes no huge pages of shared memory")
        array[:]
        time.sleep(0.1)
    return lambda: array[:]


def _allocated(store: UcxStore, values: Values) -> Action:
    """Compute a value where it is to be stored; storing it is what is counted."""
    memory = store.allocate_sync(_KEY, values.nbytes)
    computed = memory.view(values.dtype, values.shape)
    np.copyto(computed, values)

    def commit() -> Values:
        memory.commit_sync()
        return computed  # which is the user's own, also from now on

    return commit
