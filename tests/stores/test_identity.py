"""What a store is: its address, options, equality, text, pickles and copies."""

import copy
import pickle
from typing import Any

import pytest
import zarr

from tests.backdoor import is_open, options_of
from ucxstore import AddressError, Secret, UcxStore
from ucxstore.pipeline.access import access_to
from ucxstore.pipeline.selection import PIPELINE

ADDRESS = "ucx://127.0.0.1:7400/run-17"
SECRET = "a very long and random text"


def test_text() -> None:
    store = UcxStore("ucx://LOCALHOST:7400/run-17/", read_only=True)
    assert str(store) == store.address == "ucx://localhost:7400/run-17"
    assert repr(store) == "<UcxStore 'ucx://localhost:7400/run-17', read_only=True, not connected>"
    assert (
        repr(UcxStore("ucx://localhost:7400")) == "<UcxStore 'ucx://localhost:7400', not connected>"
    )


def test_nothing_is_connected_before_it_is_used() -> None:
    store = UcxStore("ucx://127.0.0.1:1")  # where nobody listens
    assert store.stats()["lanes"] == []
    assert not is_open(store)


def test_equality() -> None:
    store = UcxStore(ADDRESS)
    assert store == UcxStore(ADDRESS)
    assert hash(store) == hash(UcxStore(ADDRESS))
    assert store == UcxStore(ADDRESS, timeout=3)
    assert store != UcxStore(ADDRESS, read_only=True)
    assert store != UcxStore("ucx://127.0.0.1:7400")
    assert store != UcxStore("ucx://127.0.0.1:7401/run-17")
    assert store != ADDRESS


def test_the_secret_is_neither_shown_nor_pickled() -> None:
    store = UcxStore(ADDRESS, secret=SECRET)
    for text in repr(store), str(store), repr(vars(store)), repr(store.stats()):
        assert SECRET not in text
    assert SECRET.encode() not in pickle.dumps(store)
    asked = UcxStore(ADDRESS, secret=Secret(SECRET, pickle_text=True))
    assert SECRET.encode() in pickle.dumps(asked)


@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))]
)
def test_copies_keep_all_options(duplicate: Any) -> None:
    store = UcxStore(
        ADDRESS,
        read_only=True,
        timeout=3,
        connect_timeout=2,
        integrity=True,
        progress="polling",
        strict=True,
        select_pipeline=False,
        local="off",
    )
    other = duplicate(store)
    assert other == store
    assert options_of(other) == options_of(store)
    assert (other.read_only, other.strict, options_of(other).select_pipeline) == (True, True, False)


def test_copies_by_read_only_share_the_counters() -> None:
    store = UcxStore(ADDRESS, strict=True)
    reader = store.with_read_only(True)
    assert (reader.read_only, reader.strict, store.read_only) == (True, True, False)
    access_to(store).counters.add(direct=3)
    assert reader.stats()["direct"] == 3


@pytest.mark.parametrize(
    "address", ["", "localhost:7400", "http://localhost:7400", "ucx://", "ucx://localhost"]
)
def test_addresses_that_are_none(address: str) -> None:
    with pytest.raises(AddressError, match=r"invalid address"):
        UcxStore(address)


def test_several_servers() -> None:
    store = UcxStore("ucx://b:7400,A:7400/run-17")
    assert str(store) == "ucx://b:7400,a:7400/run-17"
    assert store.stats()["servers"] == {}
    with pytest.raises(AddressError, match="a server twice"):
        UcxStore("ucx://a:7400,a:7400")


@pytest.mark.parametrize(
    "options",
    [
        {"timeout": 0},
        {"connect_timeout": -1},
        {"progress": "lazy"},
        {"local": "never"},
        {"ucx": {"no name": 1}},
    ],
)
def test_options_that_are_none(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        UcxStore(ADDRESS, **options)


# ---- which pipeline zarr uses ----

DEFAULT = "zarr.core.codec_pipeline.BatchedCodecPipeline"
FUSED = "zarr.core.codec_pipeline.FusedCodecPipeline"
PATH = "codec_pipeline.path"


@pytest.mark.parametrize(
    ("configured", "environment", "argument", "selected"),
    [
        (DEFAULT, None, None, PIPELINE),
        (DEFAULT, None, False, DEFAULT),
        (DEFAULT, None, True, PIPELINE),
        (DEFAULT, "0", None, DEFAULT),
        (DEFAULT, "off", None, DEFAULT),
        (DEFAULT, "1", None, PIPELINE),
        (DEFAULT, "0", True, PIPELINE),
        (FUSED, None, None, FUSED),
        (FUSED, None, True, PIPELINE),
        (PIPELINE, None, None, PIPELINE),
        (PIPELINE, None, False, PIPELINE),
    ],
)
@pytest.mark.usefixtures("zarr_config")
def test_selection(
    monkeypatch: pytest.MonkeyPatch,
    configured: str,
    environment: str | None,
    argument: bool | None,
    selected: str,
) -> None:
    zarr.config.set({PATH: configured})
    if environment is None:
        monkeypatch.delenv("UCXSTORE_SELECT_PIPELINE", raising=False)
    else:
        monkeypatch.setenv("UCXSTORE_SELECT_PIPELINE", environment)
    UcxStore(ADDRESS, select_pipeline=argument)
    assert zarr.config.get(PATH) == selected
