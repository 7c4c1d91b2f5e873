"""Which pipeline reads the arrays of a store, and the warning where it is not ours."""

import warnings
from collections.abc import Iterator

import fsspec
import numpy as np
import pytest
import xarray
import zarr

from tests.fixtures import memory_alone as memory_alone
from ucxstore import UcxStore
from ucxstore.pipeline.selection import (
    ENVIRONMENT,
    PIPELINE,
    PipelineWarning,
    advise_on_pipeline,
    other_pipeline,
)

DEFAULT = "zarr.core.codec_pipeline.BatchedCodecPipeline"
FUSED = "zarr.core.codec_pipeline.FusedCodecPipeline"
PATH = "codec_pipeline.path"

pytestmark = pytest.mark.usefixtures("zarr_config")


@pytest.fixture
def array(address: str) -> Iterator[zarr.Array]:
    zarr.config.set({PATH: DEFAULT})
    with UcxStore(address) as store:
        array = zarr.create_array(store, name="a", shape=(100,), chunks=(10,), dtype="f4")
        array[:] = 1
        zarr.config.set({PATH: DEFAULT})
        yield array


def raised(store: UcxStore | str, pipeline: str = FUSED, path: str | None = "a") -> list[str]:
    """The warnings while another pipeline reads."""
    with warnings.catch_warnings(record=True) as found, zarr.config.set({PATH: pipeline}):
        warnings.simplefilter("always", PipelineWarning)
        group = zarr.open_group(store, mode="r")
        if path is not None:
            np.testing.assert_array_equal(group[path][:], 1)
    return [str(one.message) for one in found if one.category is PipelineWarning]


@pytest.mark.parametrize("pipeline", [FUSED, DEFAULT, "zarrs.ZarrsCodecPipeline"])
@pytest.mark.filterwarnings("ignore:Array is unsupported by ZarrsCodecPipeline:UserWarning")
def test_another_pipeline_around_a_read_is_warned_of_once(
    array: zarr.Array, address: str, pipeline: str
) -> None:
    with UcxStore(address) as store:
        (message,) = raised(store, pipeline)
        assert message.startswith(
            f"zarr reads arrays of {address} by {pipeline}, not by ucxstore's"
        )
        assert "select_pipeline=True" in message
        assert PIPELINE in message
        assert store.stats()["decode"] == 0
        assert raised(store, pipeline) == []


def test_a_url_is_warned_of_too(array: zarr.Array, address: str) -> None:
    (message,) = raised(address)
    assert FUSED in message


def test_files_that_somebody_looks_at_are_no_arrays(array: zarr.Array, address: str) -> None:
    """Nobody opens an array, whatever zarr is configured to read one by."""
    fs, path = fsspec.url_to_fs(address)
    with warnings.catch_warnings(), zarr.config.set({PATH: FUSED}):
        warnings.simplefilter("error", PipelineWarning)
        text = fs.cat(f"{path}/a/zarr.json")
        assert b'"array"' in text
        assert fs.cat([f"{path}/a/zarr.json"]) == {f"{path}/a/zarr.json": text}
        assert fs.cat_file(f"{path}/a/zarr.json", 0, 5) == text[:5]
        fs.cp(f"{path}/a/zarr.json", f"{path}/copy/myzarr.json")
        with UcxStore(address) as store:
            assert store.get_sync("copy/myzarr.json").to_bytes() == text
        with pytest.raises(FileNotFoundError):
            fs.cat_file(f"{path}/missing")


@pytest.mark.filterwarnings("ignore:Consolidated metadata is currently not part:UserWarning")
def test_consolidated_metadata_has_arrays_too(array: zarr.Array, address: str) -> None:
    zarr.config.set({PATH: PIPELINE})
    xarray.Dataset({"v": ("x", np.ones(10))}).to_zarr(f"{address}/d", consolidated=True)
    assert len(raised(f"{address}/d", path="v")) == 1


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_formats(address: str, zarr_format: int) -> None:
    with UcxStore(address, select_pipeline=True) as store:
        group = zarr.create_group(store, zarr_format=zarr_format)
        group.create_array("a", shape=(10,), chunks=(5,), dtype="f4")[:] = 1
        assert len(raised(store)) == 1


def test_what_was_asked_for_is_not_warned_of(
    array: zarr.Array, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with UcxStore(address, select_pipeline=False) as store:
        assert raised(store) == []
    with UcxStore(address) as store:
        assert raised(store, PIPELINE) == []
        monkeypatch.setenv(ENVIRONMENT, "0")
        assert raised(store) == []


def test_a_group_alone_is_not_warned_of(array: zarr.Array, address: str) -> None:
    with UcxStore(address) as store:
        assert raised(store, path=None) == []


@pytest.mark.parametrize(
    ("configured", "environment", "choice", "other", "advice"),
    [
        (DEFAULT, "1", None, None, None),
        (DEFAULT, "0", None, DEFAULT, f"{ENVIRONMENT} is off"),
        (DEFAULT, "0", True, None, ...),
        (DEFAULT, "1", False, DEFAULT, ...),
        (FUSED, "1", None, FUSED, "select_pipeline=True"),
        (PIPELINE, "1", None, None, None),
    ],
)
def test_what_a_new_store_is_read_by(
    configured: str,
    environment: str,
    choice: bool | None,
    other: str | None,
    advice: object,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(ENVIRONMENT, environment)
    zarr.config.set({PATH: configured})
    assert other_pipeline(choice) == other
    if advice is not ...:
        said = advise_on_pipeline()
        assert said is None if advice is None else str(advice) in str(said)
