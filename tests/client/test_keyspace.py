"""The keys below a prefix, and the requests for them."""

import numpy as np
import pytest
from zarr.abc.store import RangeByteRequest
from zarr.core.buffer import cpu

from ucxstore.base.errors import InvalidKeyError
from ucxstore.base.keys import SCRATCH_FOLDER
from ucxstore.client.keyspace import Keyspace

RUN = Keyspace("run-17", "UcxStore")
WHOLE = Keyspace("", "UcxStore")


def test_full_keys() -> None:
    assert WHOLE.full_key("a/b") == "a/b"
    assert RUN.full_key("a/b") == "run-17/a/b"
    for key in ("", "/a", "a/", "a//b", "../a"):
        with pytest.raises(InvalidKeyError):
            RUN.full_key(key)


@pytest.mark.parametrize(
    ("prefix", "beginning", "folder"),
    [
        ("", "run-17/", "run-17/"),
        ("a", "run-17/a", "run-17/a/"),
        ("a/", "run-17/a/", "run-17/a/"),
        ("a/b", "run-17/a/b", "run-17/a/b/"),
        (".", "run-17/.", None),
        ("/a", None, None),
        ("a//b", None, None),
        ("../a", None, None),
        ("\0", None, None),
    ],
)
def test_beginnings(prefix: str, beginning: str | None, folder: str | None) -> None:
    """No key begins with what no key may have; servers are not asked for it."""
    assert RUN.beginning(prefix) == beginning
    assert RUN.folder(prefix) == folder


def test_keys_of_scratch_spaces_are_for_their_stores_alone() -> None:
    space = Keyspace(f"{SCRATCH_FOLDER}name", "UcxStore")
    assert space.in_scratch
    assert space.full_key("a") == f"{SCRATCH_FOLDER}name/a"
    assert not WHOLE.in_scratch
    with pytest.raises(InvalidKeyError, match="only the stores of a scratch space"):
        WHOLE.full_key(f"{SCRATCH_FOLDER}name/a")


def test_requests_have_full_keys() -> None:
    value = cpu.Buffer.from_bytes(b"value")
    out = np.empty(5, "u1")
    byte_range = RangeByteRequest(1, 3)
    for request in (
        RUN.get(["a", "b"], [[], []]),
        RUN.get_into([("a", out, None), ("b", out, None)]),
        RUN.set([("a", value), ("b", value)]),
        RUN.set([("a", value), ("b", value)], if_absent=True),
        RUN.delete(["a", "b"]),
    ):
        assert list(request.keys) == ["run-17/a", "run-17/b"]
    assert RUN.find("a", byte_range, None).arguments == {"ranges": [[(1, 1, 3)]]}
    assert RUN.find("a", byte_range, 7).arguments["versions"] == [7]


def test_the_caller_s_memory_is_what_is_read_into_and_sent() -> None:
    out, sent = np.zeros((4, 6), "u2")[:, ::2], np.arange(5, dtype="u1")
    (layout,) = RUN.get_into([("a", out, None)]).arguments["outs"]
    assert layout == (out.ctypes.data, (4, 3), (12, 4), 2)
    request = RUN.set([("a", cpu.Buffer.from_array_like(sent))])
    ((address, *_),) = request.arguments["values"]
    assert address == sent.ctypes.data


def test_what_is_no_buffer_is_refused_by_the_name_of_the_store() -> None:
    with pytest.raises(TypeError, match=r"UcxStore\.set\(\): `value` must be a Buffer"):
        RUN.set([("a", b"value")])  # type: ignore[list-item]
