"""A new process that reads an array some times, as a user's would: no more imports than that.

``python -P benchmarks/children/epochs.py TASK``.
"""

import json
import sys
from collections.abc import Mapping
from typing import Any

import zarr


def main(task: Mapping[str, Any]) -> None:
    location = task["location"]
    if "client" in task:
        from ucxstore import UcxStore

        # It selects the pipeline by itself. Strict: fail if a chunk does not take the short path.
        store: Any = UcxStore(location, read_only=True, strict=True, **task["client"])
    else:
        from zarr.storage import LocalStore

        if task["pipeline"].startswith("zarrs"):
            import zarrs  # noqa: F401  # registers it
        zarr.config.set({"codec_pipeline.path": task["pipeline"]})
        store = LocalStore(location, read_only=True)
    array: Any = zarr.open_array(store, mode="r", zarr_format=3)
    for _ in range(task["epochs"]):
        values = array[:]
        if float(values[::100, ::100].sum(dtype="f8")) != task["sum"]:
            raise AssertionError("the data came back wrong")
        del values
    if "client" in task:
        lanes = store.stats()["lanes"]
        if (lanes == ["local"]) != (task["client"]["local"] == "auto"):
            raise AssertionError(f"it went by {lanes}")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
