"""Libraries around zarr: AnnData, OME-Zarr, icechunk, pyramids, VirtualiZarr."""

import io
from typing import Any

import anndata
import h5py
import icechunk
import numpy as np
import pandas
import pytest
import scipy.sparse
import xarray
import zarr
from obspec_utils.registry import ObjectStoreRegistry
from ome_zarr.io import parse_url
from ome_zarr.reader import Reader
from ome_zarr.writer import write_image
from virtualizarr import open_virtual_dataset
from virtualizarr.parsers import HDFParser
from zarr.core.sync import sync

from ucxstore import UcxStore
from ucxstore.obspec import ObspecStore
from ucxstore.pipeline.selection import PIPELINE, PipelineWarning
from ucxstore.server import Server

pytestmark = [
    pytest.mark.usefixtures("zarr_config"),
    pytest.mark.filterwarnings("ignore:The 'future.infer_string' option"),  # anndata's own
]

VALUES = np.random.default_rng(3).random((120, 50))


# ---- AnnData ----


@pytest.fixture
def cells() -> anndata.AnnData:
    names = pandas.Index([f"cell {number}" for number in range(120)])
    kinds = pandas.DataFrame({"kind": pandas.Categorical(["a", "b"] * 60)}, index=names)
    counts = scipy.sparse.random(120, 50, 0.1, format="csr", dtype="f4", random_state=3)
    found = anndata.AnnData(X=counts, obs=kinds)
    found.layers["dense"] = VALUES
    return found


def same_cells(one: anndata.AnnData, other: anndata.AnnData) -> None:
    assert (one.X != other.X).nnz == 0
    np.testing.assert_array_equal(one.layers["dense"], other.layers["dense"])
    assert list(one.obs_names) == list(other.obs_names)
    assert list(one.obs["kind"]) == list(other.obs["kind"])


def test_anndata_reads_and_writes_by_our_pipeline(address: str, cells: anndata.AnnData) -> None:
    with UcxStore(f"{address}/cells.zarr") as store:
        cells.write_zarr(store)
        assert store.stats()["encode"] > 0
    with UcxStore(f"{address}/cells.zarr") as store:
        same_cells(anndata.read_zarr(store), cells)
        assert store.stats()["decode"] > 0


def test_anndata_by_a_url_is_warned_that_it_selects_another_pipeline(
    address: str, cells: anndata.AnnData
) -> None:
    zarr.config.set({"codec_pipeline.path": zarr.config.defaults[0]["codec_pipeline"]["path"]})
    with pytest.warns(PipelineWarning, match=r"zarrs\.ZarrsCodecPipeline.*select_pipeline=True"):
        cells.write_zarr(f"{address}/cells.zarr")
    same_cells(anndata.read_zarr(f"{address}/cells.zarr"), cells)


def test_anndata_by_a_url_with_our_pipeline(address: str, cells: anndata.AnnData) -> None:
    zarr.config.set({"codec_pipeline.path": PIPELINE})
    cells.write_zarr(f"{address}/cells.zarr")
    same_cells(anndata.read_zarr(f"{address}/cells.zarr"), cells)


# ---- OME-Zarr ----


def test_an_image_with_its_pyramid(address: str) -> None:
    image = np.random.default_rng(4).integers(0, 255, (1, 8, 128, 128), dtype="u1")
    with UcxStore(f"{address}/image.zarr") as store:
        write_image(image, zarr.open_group(store, mode="w"), axes="czyx")
        assert store.stats()["encode"] > 0
    with UcxStore(f"{address}/image.zarr", read_only=True) as store:
        (node,) = Reader(parse_url(store))()
        assert len(node.data) > 1
        assert node.data[1].shape == (1, 8, 64, 64)
        np.testing.assert_array_equal(node.data[0].compute(), image)
        assert store.stats()["decode"] > 0


# ---- pyramids, as ndpyramid makes them ----


def test_a_pyramid_of_datasets(address: str) -> None:
    coordinates = {"y": np.arange(64.0), "x": np.arange(64.0)}
    full = xarray.Dataset({"t": (("y", "x"), VALUES[:64, :50].repeat(2, 1)[:, :64])}, coordinates)
    levels = {
        str(level): full.coarsen(y=factor, x=factor).mean() if factor > 1 else full
        for level, factor in enumerate((4, 2, 1))
    }
    pyramid = xarray.DataTree.from_dict(levels)
    with UcxStore(f"{address}/pyramid.zarr") as store:
        pyramid.to_zarr(store, zarr_format=3, consolidated=False)
        assert store.stats()["fallback"] == 0
    with xarray.open_datatree(
        f"{address}/pyramid.zarr", engine="zarr", consolidated=False
    ) as found:
        for level, dataset in levels.items():
            xarray.testing.assert_identical(found[level].to_dataset().load(), dataset)


# ---- icechunk ----


@pytest.fixture
def repository() -> icechunk.Repository:
    return icechunk.Repository.create(icechunk.in_memory_storage())


def test_a_session_that_reads(repository: icechunk.Repository) -> None:
    session = repository.writable_session("main")
    array = zarr.create_array(
        session.store, name="a", shape=VALUES.shape, chunks=(10, 10), dtype="f8"
    )
    array[:] = VALUES
    session.commit("values")
    source = repository.readonly_session("main").store
    with Server(source) as server, UcxStore(server.address, read_only=True) as store:
        array = zarr.open_array(store, path="a", mode="r")
        np.testing.assert_array_equal(array[:], VALUES)
        assert store.stats()["decode"] == 60
        # From the server's cache: a session that reads never changes.
        np.testing.assert_array_equal(array[:], VALUES)


def test_a_session_that_writes(
    repository: icechunk.Repository, caplog: pytest.LogCaptureFixture
) -> None:
    session = repository.writable_session("main")
    with Server(session.store) as server, UcxStore(server.address) as store:
        array = zarr.create_array(store, name="a", shape=VALUES.shape, chunks=(10, 10), dtype="f8")
        array[:] = VALUES
        array[5] = 7
        np.testing.assert_array_equal(array[5], np.full(50, 7.0))
    session.commit("written through a server")
    found = zarr.open_array(repository.readonly_session("main").store, path="a", mode="r")
    np.testing.assert_array_equal(found[6:], VALUES[6:])
    np.testing.assert_array_equal(found[5], np.full(50, 7.0))
    # Nobody else writes to a session, so there are no other servers to be found.
    assert "other servers" not in caplog.text


def test_what_icechunk_does_not_list(repository: icechunk.Repository) -> None:
    """A prefix of neither a group nor an array, which zarr deletes before it makes an array."""
    session = repository.writable_session("main")
    with Server(session.store) as server, UcxStore(server.address) as store:
        for value in (1, 2):
            array = zarr.create_array(
                store, name="g/a", shape=(20,), chunks=(10,), dtype="f8", overwrite=True
            )
            array[:] = value
        assert sorted(zarr.open_group(store, mode="r").group_keys()) == ["g"]
        assert sync(store.is_empty("none"))
        assert sync(store.is_empty("g/a/c/7"))
        assert [key for key in sync(keys(store, "g/a/")) if "/c/" in key] == [
            "g/a/c/0",
            "g/a/c/1",
        ]
        sync(store.delete_dir("none"))
        sync(store.delete_dir("g/a"))
        assert sync(keys(store, "g/a/")) == []


async def keys(store: UcxStore, prefix: str) -> list[str]:
    return sorted([key async for key in store.list_prefix(prefix)])


# ---- VirtualiZarr ----


@pytest.fixture
def hdf5() -> bytes:
    file = io.BytesIO()
    with h5py.File(file, "w") as opened:
        opened.create_dataset("t", data=VALUES, chunks=(10, 50), compression="gzip")
    return file.getvalue()


@pytest.mark.parametrize("prefix", ["", "/run"])
def test_a_virtual_reference_to_a_value(memory_server: Server, hdf5: bytes, prefix: str) -> None:
    with ObspecStore(f"{memory_server.address}{prefix}") as store:
        store.put("file.h5", hdf5)
        registry: Any = ObjectStoreRegistry({store.url: store})
        before = store.store.stats()["bytes_read"]
        virtual = open_virtual_dataset(
            f"{store.url}/file.h5", registry=registry, parser=HDFParser()
        )
        assert virtual["t"].shape == VALUES.shape
        manifests = HDFParser()(url=f"{store.url}/file.h5", registry=registry)
        with xarray.open_zarr(manifests, consolidated=False, zarr_format=3) as found:
            np.testing.assert_array_equal(found["t"][25:35].values, VALUES[25:35])
        assert store.store.stats()["bytes_read"] > before
        store.delete("file.h5")
