"""Run one case with zarr-python 2, in the environment that ``make zarr2`` makes.

    build/zarr2/bin/python -P profiles/zarr2.py <spec.json

`Spec` describes the input. The output is one line of JSON. The script imports nothing of ucxstore,
which needs zarr 3. Without -P, modules in this folder would hide others of the same name.
"""

import contextlib
import json
import math
import platform
import sys
from contextlib import AbstractContextManager, nullcontext
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal, TypedDict

import fsspec
import memray
import numcodecs
import numpy as np
import numpy.typing as npt
import zarr as _zarr

zarr: Any = _zarr  # mypy sees zarr 3, from the main environment

_DTYPE = np.dtype(np.float32)
_PACKAGES = ("zarr", "numcodecs", "numpy", "memray", "s3fs")


class S3(TypedDict):
    """Access to an S3 server."""

    endpoint: str
    access_key: str
    secret_key: str
    region: str


class Spec(TypedDict):
    """The task.

    Attributes
    ----------
    phase : str
        ``"prepare"`` writes the array for a later read, and tracks nothing. ``"measure"`` runs the
        case.
    store : str
        ``"local"`` is zarr's DirectoryStore, ``"s3fs"`` its FSStore.
    location : str
        A folder, or ``bucket/prefix``. An array that is there is replaced.
    s3 : dict or None
        None if the store is local.
    direction, codec : str
        As in `ucxstore.copies.workload`.
    shape, chunks : list of int
        In items of float32.
    seed : int
        The seed of the random values.
    capture : str or None
        The file of memray's capture; an existing one is replaced. With None, nothing is tracked.
    """

    phase: Literal["prepare", "measure"]
    store: Literal["local", "s3fs"]
    location: str
    s3: S3 | None
    direction: Literal["write", "read"]
    codec: Literal["raw", "zstd", "blosc", "gzip"]
    shape: list[int]
    chunks: list[int]
    seed: int
    capture: str | None


def main(spec: Spec) -> dict[str, Any]:
    """Run the case, and check the values.

    Returns
    -------
    dict
        ``nbytes`` of the array and ``stored_nbytes`` of all chunk objects; ``rss_extra_bytes``, the
        growth of the peak resident set during the transfer; ``result``, the address and bytes of
        the array that was read, or None; ``versions``.

    Raises
    ------
    ValueError
        If the values that were read differ from those that were written.
    """
    filesystem = _filesystem(spec)
    store = _open_store(spec, filesystem)
    rss_extra, result_at = 0, None
    if spec["phase"] == "prepare":
        _create(store, spec)[:] = _values(spec)
    elif spec["direction"] == "write":
        values = _values(spec)
        rss_extra = _write(_create(store, spec), values, spec["capture"])
        _check(zarr.open_array(store, mode="r")[:], values)
    else:
        # Make the expected values only now, so that the resident set has not included them.
        result, rss_extra = _read(zarr.open_array(store, mode="r"), spec["capture"])
        result_at = (result.ctypes.data, result.nbytes)
        _check(result, _values(spec))
    return {
        "nbytes": math.prod(spec["shape"]) * _DTYPE.itemsize,
        "stored_nbytes": _stored_bytes(filesystem, spec["location"]),
        "rss_extra_bytes": rss_extra,
        "result": result_at,
        "versions": _versions(),
    }


def _values(spec: Spec) -> npt.NDArray[np.float32]:
    return np.random.default_rng(spec["seed"]).random(tuple(spec["shape"]), dtype=np.float32)


def _write(array: Any, values: npt.NDArray[np.float32], capture: str | None) -> int:
    with _tracker(capture):
        before = _reset_peak()
        array[:] = values
        return _status_bytes("VmHWM") - before


def _read(array: Any, capture: str | None) -> tuple[npt.NDArray[np.float32], int]:
    with _tracker(capture):
        before = _reset_peak()
        result = array[:]
        return result, _status_bytes("VmHWM") - before


def _tracker(capture: str | None) -> AbstractContextManager[object]:
    if capture is None:
        return nullcontext()
    destination = memray.FileDestination(capture, overwrite=True)
    return memray.Tracker(destination=destination, native_traces=True)


def _filesystem(spec: Spec) -> Any:
    if spec["store"] == "local":
        return fsspec.filesystem("file")
    s3 = spec["s3"]
    if s3 is None:
        raise ValueError("a case on s3fs needs s3: endpoint, access_key, secret_key, region")
    return fsspec.filesystem(
        "s3",
        key=s3["access_key"],
        secret=s3["secret_key"],
        endpoint_url=s3["endpoint"],
        client_kwargs={"region_name": s3["region"]},
    )


def _open_store(spec: Spec, filesystem: Any) -> Any:
    if spec["store"] == "local":
        return zarr.storage.DirectoryStore(spec["location"])
    # mode="w" allows writes. Existing objects are only removed when an array is created.
    return zarr.storage.FSStore(spec["location"], fs=filesystem, mode="w")


def _create(store: Any, spec: Spec) -> Any:
    return zarr.open_array(
        store,
        mode="w",
        shape=spec["shape"],
        chunks=spec["chunks"],
        dtype=_DTYPE,
        compressor=_compressor(spec["codec"]),
    )


def _compressor(codec: str) -> Any:
    match codec:
        case "raw":
            return None
        case "zstd":
            return numcodecs.Zstd(level=0)
        case "blosc":
            return numcodecs.Blosc(cname="lz4", clevel=5, shuffle=numcodecs.Blosc.SHUFFLE)
        case "gzip":
            return numcodecs.GZip(level=5)
    raise ValueError(f"no codec {codec!r}")


def _check(actual: npt.NDArray[np.float32], expected: npt.NDArray[np.float32]) -> None:
    if not np.array_equal(actual, expected):
        raise ValueError("other values came back than were written")


def _stored_bytes(filesystem: Any, location: str) -> int:
    filesystem.invalidate_cache()
    files: dict[str, dict[str, Any]] = filesystem.find(location, detail=True)
    # Metadata is in files whose names start with a dot.
    return sum(
        int(info["size"]) for name, info in files.items() if not Path(name).name.startswith(".")
    )


def _reset_peak() -> int:
    # If a sandbox forbids it, an earlier peak may count.
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return _status_bytes("VmRSS")


def _status_bytes(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"no {name} in /proc/self/status")


def _versions() -> dict[str, str]:
    found = {"Python": platform.python_version()}
    for package in _PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


if __name__ == "__main__":
    print(json.dumps(main(json.load(sys.stdin))))
