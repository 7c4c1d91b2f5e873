"""A server, a store, and a wire between them that is recorded: run by `test_tapped`.

It prints what the wire must not have, and, as JSON, by which keys it was encrypted.
"""

import ctypes
import json
import os
import sys
from typing import Any

import numpy as np
import zarr

from tests.values import as_buffer
from ucxstore import Server, UcxStore
from ucxstore.client import connect
from ucxstore.protocol.session_keys import SessionKeys

SECRET = "a secret that is long enough"
KEY = "a-key-that-nobody-sees"
VALUE = b"a value that nobody sees" * 100
LARGE = bytes(range(251)) * 200  # by rendezvous, in one fragment


def main(path: str, encrypt: bool) -> None:
    tap = ctypes.CDLL(os.environ["LD_PRELOAD"]).tap
    agreed: list[SessionKeys] = []
    agree = connect.Greeting.agree

    def note(greeting: connect.Greeting) -> SessionKeys | None:
        keys = agree(greeting)
        if keys is not None:
            agreed.append(keys)
        return keys

    connect.Greeting.agree = note  # type: ignore[assignment, method-assign]
    assert tap(path.encode()) >= 0
    with (
        Server("memory://", secret=SECRET, encrypt=encrypt) as server,
        UcxStore(server.address, network="tcp", local="off", secret=SECRET) as store,
    ):
        store.set_sync(KEY, as_buffer(VALUE))
        store.set_sync(f"{KEY}/large", as_buffer(LARGE))
        for key, value in {KEY: VALUE, f"{KEY}/large": LARGE}.items():
            found = store.get_sync(key)
            assert found is not None
            assert found.to_bytes() == value
        data = np.frombuffer(VALUE, np.uint8).reshape(24, 100)
        for name, codecs in {"raw": None, "zstd": "auto"}.items():
            array: Any = zarr.create_array(
                store, name=f"{KEY}-{name}", data=data, chunks=(7, 13), compressors=codecs
            )
            assert (array[:] == data).all()
            assert (array[3:20:2, 5:90] == data[3:20:2, 5:90]).all()
            array[2:5, 4:50] = data[2:5, 4:50]
        assert sorted(zarr.open_group(store, mode="r")) == sorted([f"{KEY}-raw", f"{KEY}-zstd"])
        stats = store.stats()
        assert stats["encrypted"] is encrypt
        assert stats["integrity"] is encrypt
    hexes = [[key.hex() for key in keys] for keys in agreed]
    print(json.dumps({"lanes": stats["lanes"], "keys": hexes}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] == "True")
