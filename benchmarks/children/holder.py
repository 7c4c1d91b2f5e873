"""A process that holds all values of an array, and touches each page of them.

``python -P benchmarks/children/holder.py TASK``. It connects and says that it is ready. For a line
that it is given it reads the array and answers. It holds the values until its input ends.
"""

import json
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import zarr
from zarr.storage import MemoryStore


def main(task: Mapping[str, Any]) -> None:
    store = _open(task)
    # Only values are to be counted, and no imports.
    zarr.create_array(MemoryStore(), data=np.ones(1))[:]
    _say("ready")
    held: list[Any] = []
    for _ in sys.stdin:
        array: Any = zarr.open_array(store, mode="r", zarr_format=3)
        if task["how"] == "view":
            keys = [f"c/{number}/0" for number in range(array.nchunks)]
            held += [np.asarray(store.view_sync(key, map=True)).view(array.dtype) for key in keys]
        else:
            held.append(array[:])
        _say(float(sum(one.sum(dtype="f8") for one in held)))


def _open(task: Mapping[str, Any]) -> Any:
    if "client" not in task:
        from zarr.storage import LocalStore

        zarr.config.set({"codec_pipeline.path": task["pipeline"]})
        return LocalStore(task["location"], read_only=True)
    from ucxstore import UcxStore

    store = UcxStore(task["location"], read_only=True, strict=True, **task["client"])
    if store.get_sync("missing") is not None:  # connects
        raise AssertionError("there is a value under the key 'missing'")
    lanes = store.stats()["lanes"]
    if (lanes == ["local"]) != (task["client"]["local"] == "auto"):
        raise AssertionError(f"it went by {lanes}")
    return store


def _say(answer: object) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
