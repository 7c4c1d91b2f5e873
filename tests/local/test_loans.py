"""Memory that a server lends, and takes back while it is read."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import zarr

from ucxstore import UcxStore
from ucxstore.pipeline.decode import Decoding
from ucxstore.server import Server

VALUES = np.arange(40_000, dtype=np.int32).reshape(4, 10_000)


@pytest.mark.parametrize("lent", ["other bytes", "the same bytes"])
@pytest.mark.parametrize("compressors", ["auto", None])
def test_what_is_taken_back_is_read_again(
    memory_server: Server, monkeypatch: pytest.MonkeyPatch, lent: str, compressors: Any
) -> None:
    """The bytes may be those of another value: they may even be no chunk."""
    taken_back = 0
    decode = Decoding._work_on

    def work_on(self: Decoding, group: Any, found: list[Any], claim: Any) -> None:
        nonlocal taken_back
        for index, (data, size, version, *loans) in enumerate(found):
            for loan in filter(None, loans):
                assert not loan.lost
                taken_back += 1
                other = data if lent == "the same bytes" else np.full_like(data, 255)
                found[index] = other, size, version, SimpleNamespace(lost=True)
        decode(self, group, found, claim)

    with UcxStore(memory_server.address) as store:
        array = zarr.create_array(
            store,
            name=f"loans-{lent}-{compressors}".replace(" ", "-"),
            data=VALUES,
            chunks=(1, 10_000),
            filters=[{"name": "numcodecs.delta", "configuration": {"dtype": "<i4"}}]
            if compressors is None
            else "auto",
            compressors=compressors,
        )
        np.testing.assert_array_equal(array[:], VALUES)
        monkeypatch.setattr(Decoding, "_work_on", work_on)
        for _ in range(2):
            np.testing.assert_array_equal(array[:], VALUES)
    assert taken_back > 0
