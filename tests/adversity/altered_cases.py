"""A server and a store, and a network between them that changes bits: run by `test_altered`.

It prints, as JSON, the outcome of each case: whether a bit was changed, the error, if there was
one, and whether the value is right: at once, and when it is read again.
"""

import ctypes
import json
import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import zarr
from obstore.store import MemoryStore
from zarr.buffer.cpu import NDBuffer
from zarr.codecs import GzipCodec

from tests.values import as_buffer
from ucxstore import Server, UcxStore

MARK = b"\xa5MARKED\x5a" * 2
TCP = {"TLS": "tcp"}

network = ctypes.CDLL(os.environ["LD_PRELOAD"])
network.alter.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
network.alter_some.argtypes = [ctypes.c_size_t]

# So many bytes of what is encrypted are the data of a large message.
SOME = 60_000


def marked(nbytes: int, at: int) -> bytes:
    """Return a value whose only bytes to be changed are at `at`."""
    return (b"\1" * at + MARK).ljust(nbytes, b"\2")[:nbytes]


def reads(store: UcxStore, key: str, value: bytes) -> Callable[[], bool]:
    def read() -> bool:
        found = store.get_sync(key)
        return found is not None and found.to_bytes() == value

    return read


def reads_into(store: UcxStore, key: str, value: bytes) -> Callable[[], bool]:
    out = np.empty(len(value), np.uint8)

    def read() -> bool:
        out[:] = 0
        store.get_into_sync(key, out)
        return out.tobytes() == value

    return read


def tried(call: Callable[[], bool]) -> dict[str, Any]:
    try:
        return {"right": call(), "error": None, "text": ""}
    except Exception as caught:  # some codecs have checksums of their own
        return {"right": None, "error": type(caught).__name__, "text": str(caught)}


def outcome(changes: bytes, call: Callable[[], bool], again: Callable[[], bool]) -> dict[str, Any]:
    before = network.altered()
    network.alter(changes, len(changes))
    found = tried(call)
    network.alter(b"", 0)
    return {**found, "altered": network.altered() - before, "again": tried(again)["right"]}


SIZES = {"tiny": 40, "eager": 4000, "rendezvous": 5000, "block": 200_000, "segments": 40 << 20}


def sealed_outcome(call: Callable[[], bool], again: Callable[[], bool]) -> dict[str, Any]:
    """Change a bit of what is encrypted; not all of it comes in pieces of `SOME`."""
    before = network.altered()
    for _ in range(20):
        network.alter_some(SOME)
        found = tried(call)
        network.alter_some(0)
        if network.altered() > before:
            break
    return {**found, "altered": network.altered() - before, "again": tried(again)["right"]}


def gets_and_sets(store: UcxStore) -> dict[str, dict[str, Any]]:
    found = {}
    for name, nbytes in SIZES.items():
        key, value = f"get/{name}", marked(nbytes, nbytes - len(MARK) - 1)
        store.set_sync(key, as_buffer(value))
        for way in (reads, reads_into):
            read = way(store, key, value)
            found[f"{way.__name__} {name}"] = outcome(MARK, read, read) | {"key": key}
    for name, nbytes in SIZES.items():
        key, old, new = f"set/{name}", marked(nbytes, 3)[::-1], marked(nbytes, nbytes // 2)
        store.set_sync(key, as_buffer(old))

        def write(key: str = key, new: bytes = new) -> bool:
            store.set_sync(key, as_buffer(new))
            return reads(store, key, new)()

        found[f"set {name}"] = outcome(MARK, write, reads(store, key, old)) | {"key": key}
    batch = {f"batch/{i}": marked(3000, 100) if i == 7 else b"\3" * 3000 for i in range(20)}
    for key, value in batch.items():
        store.set_sync(key, as_buffer(value))
    outs = [np.empty(3000, np.uint8) for _ in batch]

    def read_all() -> bool:
        store.get_many_into_sync([(key, out, None) for key, out in zip(batch, outs, strict=True)])
        return [out.tobytes() for out in outs] == list(batch.values())

    found["batch"] = outcome(MARK, read_all, read_all) | {"key": "batch/7"}
    return found


def arrays(store: UcxStore) -> dict[str, dict[str, Any]]:
    found = {}
    data = np.ones((512, 4096), np.uint8)
    data[200, 1000 : 1000 + len(MARK)] = np.frombuffer(MARK, np.uint8)
    codecs: dict[str, dict[str, Any]] = {
        "raw": {"chunks": (512, 4096), "compressors": None},
        "chunks": {"chunks": (128, 512), "compressors": None},
        "gzip": {"chunks": (512, 4096), "compressors": GzipCodec(level=0)},
        "shards": {"chunks": (128, 512), "shards": (512, 4096), "compressors": None},
    }
    for name, layout in codecs.items():
        array = zarr.create_array(store, name=name, shape=data.shape, dtype=data.dtype, **layout)
        array[:] = data

        def read_all(array: Any = array) -> bool:
            return bool((array[:] == data).all())

        def read_rows(array: Any = array) -> bool:  # strided at the server, contiguous here
            return bool((array[100:300, 900:1100] == data[100:300, 900:1100]).all())

        def read_columns(array: Any = array) -> bool:  # and strided here
            out = np.zeros((512, 8192), np.uint8)
            array.get_basic_selection(slice(None), out=NDBuffer.from_numpy_array(out[:, 100:4196]))
            return bool((out[:, 100:4196] == data).all())

        for read in (read_all, read_rows, read_columns):
            found[f"{read.__name__} {name}"] = outcome(MARK, read, read) | {"key": name}

        def write(array: Any = array) -> bool:
            array[:] = data
            return bool((array[:] == data).all())

        def write_part(array: Any = array) -> bool:
            array[190:210, 990:1100] = data[190:210, 990:1100]
            return bool((array[:] == data).all())

        for change in (write, write_part):
            found[f"{change.__name__} {name}"] = outcome(
                MARK, change, lambda array=array: bool((array[:] == data).all())
            ) | {"key": name}
    return found


def names(store: UcxStore) -> dict[str, dict[str, Any]]:
    """A bit of a key in a request: of the value that is asked for, or under which one is put."""
    store.set_sync("a/name", as_buffer(b"1"))
    read = reads(store, "a/name", b"1")

    def write() -> bool:
        store.set_sync("a/name", as_buffer(b"1"))
        return read()

    return {
        "get of another key": outcome(b"a/name", read, read) | {"key": "a/name"},
        "set of another key": outcome(b"a/name", write, read) | {"key": "a/name"},
    }


def sealed(store: UcxStore) -> dict[str, dict[str, Any]]:
    """The large messages, where all of them are encrypted."""
    found = {}
    for name, nbytes in {"block": 200_000, "segments": 40 << 20}.items():
        key, value = f"get/{name}", marked(nbytes, 100)
        store.set_sync(key, as_buffer(value))
        for way in (reads, reads_into):
            read = way(store, key, value)
            found[f"{way.__name__} {name}"] = sealed_outcome(read, read) | {"key": key}
        key, old, new = f"set/{name}", marked(nbytes, 3), marked(nbytes, nbytes // 2)
        store.set_sync(key, as_buffer(old))

        def write(key: str = key, new: bytes = new) -> bool:
            store.set_sync(key, as_buffer(new))
            return True

        found[f"set {name}"] = sealed_outcome(write, reads(store, key, old)) | {"key": key}
    data = np.random.default_rng(5).integers(0, 255, (512, 4096), "u1")
    layouts: dict[str, dict[str, Any]] = {
        "raw": {"chunks": (512, 4096), "compressors": None},
        "gzip": {"chunks": (512, 4096), "compressors": GzipCodec(level=0)},
        "shards": {"chunks": (256, 4096), "shards": (512, 4096), "compressors": None},
    }
    for name, layout in layouts.items():
        array = zarr.create_array(store, name=name, shape=data.shape, dtype=data.dtype, **layout)
        array[:] = data

        def read_all(array: Any = array) -> bool:
            return bool((array[:] == data).all())

        def read_columns(array: Any = array) -> bool:  # strided at both ends
            out = np.zeros((512, 8192), np.uint8)
            into = NDBuffer.from_numpy_array(out[:, 100:4100])
            array.get_basic_selection((slice(None), slice(96, 4096)), out=into)
            return bool((out[:, 100:4100] == data[:, 96:]).all())

        def write_all(array: Any = array) -> bool:
            array[:] = data
            return True

        for change in (read_all, read_columns, write_all):
            found[f"{change.__name__} {name}"] = sealed_outcome(change, read_all) | {"key": name}
    return found


def main_sealed(location: str) -> None:
    secret = "a secret that is long enough"
    with (
        Server(
            MemoryStore() if location == "source" else location,
            secret=secret,
            encrypt=True,
        ) as server,
        UcxStore(server.address, network="tcp", local="off", secret=secret, timeout=10) as store,
    ):
        found = sealed(store)
        print(json.dumps({"checked": store.stats()["encrypted"], "cases": found}))


def main(location: str, integrity: bool | None) -> None:
    with (
        Server(MemoryStore() if location == "source" else location, ucx=TCP) as server,
        UcxStore(server.address, ucx=TCP, local="ucx", integrity=integrity, timeout=10) as store,
    ):
        found = gets_and_sets(store) | arrays(store) | names(store)
        print(json.dumps({"checked": store.stats()["integrity"], "cases": found}))


if __name__ == "__main__":
    if sys.argv[2] == "encrypted":
        main_sealed(sys.argv[1])
        sys.exit()
    main(sys.argv[1], {"None": None, "False": False, "True": True}[sys.argv[2]])
