"""xarray writes the same bytes to a `UcxStore` as to zarr's `LocalStore`, and reads the same."""

from collections.abc import Callable
from pathlib import Path

import dask
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from zarr.abc.store import Store
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync
from zarr.storage import LocalStore

from ucxstore import UcxStore

pytestmark = [
    pytest.mark.usefixtures("zarr_config"),
    pytest.mark.filterwarnings("ignore:Consolidated metadata"),
    pytest.mark.filterwarnings("ignore:The data type .* does not have a Zarr V3 specification"),
]

type Job = Callable[[Store], None]

FORMATS = pytest.mark.parametrize("zarr_format", [2, 3])
CONSOLIDATED = pytest.mark.parametrize("consolidated", [True, False])
DASK = pytest.mark.parametrize("chunked", [False, True], ids=["numpy", "dask"])


def weather(days: int = 12, start: str = "2026-01-01") -> xr.Dataset:
    """Return a dataset with what usual data has: gaps, packed integers, times, flags, a scalar."""
    random = np.random.default_rng(days)
    time = pd.date_range(start, periods=days)
    shape = (days, 18, 25)
    temperature = random.normal(280, 10, shape).astype("f4")
    temperature[random.random(shape) < 0.1] = np.nan
    found = xr.Dataset(
        {
            "temperature": (("time", "y", "x"), temperature, {"units": "K"}),
            "rain": (("time", "y", "x"), random.integers(0, 900, shape) / 4),
            "land": (("y", "x"), random.random(shape[1:]) < 0.5),
            "height": ((), 2.0),
        },
        {
            "time": time,
            "x": np.linspace(0, 1, 25),
            "station": ("y", [f"s{i:02}" for i in range(18)]),
        },
        {"title": "weather"},
    )
    found["rain"].encoding = {"dtype": "i2", "scale_factor": 0.25, "_FillValue": -1}
    found["temperature"].encoding = {"chunks": (5, 10, 10)}
    found["time"].encoding = {"units": "days since 2026-01-01", "dtype": "i4"}
    return found


def raw(data: xr.Dataset) -> dict[str, dict[str, object]]:
    """Return encodings that leave the chunks as they are, so that they go without a copy."""
    return {str(name): {"compressors": None} for name in data.data_vars}


def values(store: Store) -> dict[str, bytes]:
    async def read() -> dict[str, bytes]:
        found = {}
        async for key in store.list():
            value = await store.get(key, prototype=default_buffer_prototype())
            assert value is not None
            found[key] = value.to_bytes()
        return found

    return sync(read())


@pytest.fixture
def same(tmp_path: Path, ucx_store: UcxStore) -> Callable[[Job], UcxStore]:
    """Do a job in both stores; return ours once they hold the same bytes under the same keys."""
    local = LocalStore(tmp_path / "local")

    def both(job: Job) -> UcxStore:
        with dask.config.set(scheduler="threads"):
            job(local)
            job(ucx_store)
        expected, found = values(local), values(ucx_store)
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            assert found[key] == value, key
        return ucx_store

    return both


@FORMATS
@CONSOLIDATED
@DASK
def test_write_and_open(
    same: Callable[[Job], UcxStore], zarr_format: int, consolidated: bool, chunked: bool
) -> None:
    wanted = weather()

    def job(store: Store) -> None:
        data = wanted.chunk({"time": 5, "y": 10, "x": 10}) if chunked else wanted
        data.to_zarr(store, zarr_format=zarr_format, consolidated=consolidated)

    store = same(job)
    options = {"consolidated": consolidated, "zarr_format": zarr_format}
    with xr.open_zarr(store, chunks="auto" if chunked else None, **options) as found:
        xr.testing.assert_identical(found.compute(scheduler="threads"), wanted)
        part = found.isel(time=slice(3, 9), x=[2, 20, 5])
        xr.testing.assert_identical(
            part.compute(scheduler="threads"), wanted.isel(time=slice(3, 9), x=[2, 20, 5])
        )


@DASK
def test_raw_chunks(same: Callable[[Job], UcxStore], chunked: bool) -> None:
    wanted = weather()

    def job(store: Store) -> None:
        data = wanted.chunk({"time": 5, "y": 10, "x": 10}) if chunked else wanted
        data.to_zarr(store, encoding=raw(data), consolidated=False)

    store = same(job)
    with xr.open_zarr(store, chunks=None, consolidated=False) as found:
        xr.testing.assert_identical(found.load(), wanted)
    assert store.stats()["direct"] > 0


@CONSOLIDATED
@DASK
def test_append(same: Callable[[Job], UcxStore], consolidated: bool, chunked: bool) -> None:
    first, second = weather(10), weather(7, "2026-01-11")
    per_day = ["temperature", "rain"]

    def job(store: Store) -> None:
        # Chunks of dask's that are whole chunks of zarr's, also after 10 days of 5 each.
        one, two = (
            data.chunk({"time": 5, "y": 10, "x": 10}) if chunked else data
            for data in (first, second[per_day].drop_vars(["x", "station"]))
        )
        one.to_zarr(store, consolidated=consolidated)
        two.to_zarr(store, append_dim="time", consolidated=consolidated)

    with xr.open_zarr(same(job), chunks=None, consolidated=consolidated) as found:
        expected = xr.concat([first[per_day], second[per_day]], "time", join="exact")
        xr.testing.assert_equal(found[per_day].load(), expected)


@CONSOLIDATED
@pytest.mark.parametrize("region", ["slices", "auto"])
@DASK
def test_regions(
    same: Callable[[Job], UcxStore], consolidated: bool, region: str, chunked: bool
) -> None:
    wanted = weather()
    static = ["land", "height", "station"]

    def job(store: Store) -> None:
        template = xr.zeros_like(wanted.chunk({"time": 5, "y": 10, "x": 10}))
        template.to_zarr(store, compute=False, consolidated=consolidated)
        wanted[static].to_zarr(store, mode="a", consolidated=consolidated)
        for start in range(0, 12, 5):
            days = slice(start, start + 5)
            part = wanted.isel(time=days).drop_vars([*static, "x"])
            if chunked:
                part = part.chunk({"time": 5, "y": 10, "x": 10})
            where = {"time": days} if region == "slices" else "auto"
            part.to_zarr(store, region=where, consolidated=consolidated)

    with xr.open_zarr(same(job), chunks=None, consolidated=consolidated) as found:
        xr.testing.assert_equal(found.load(), wanted)


def test_parts_of_chunks_as_regions(same: Callable[[Job], UcxStore]) -> None:
    wanted = weather()[["temperature"]].drop_vars(["station", "x"])

    def job(store: Store) -> None:
        xr.zeros_like(wanted).to_zarr(store, consolidated=False, encoding=raw(wanted))
        for start in range(0, 12, 3):  # chunks are 5 days, so most are written in two parts
            region = {"time": slice(start, start + 3)}
            wanted.isel(time=region["time"]).to_zarr(store, region=region, consolidated=False)

    with xr.open_zarr(same(job), chunks=None, consolidated=False) as found:
        xr.testing.assert_equal(found.load(), wanted)


def test_overwrite(same: Callable[[Job], UcxStore]) -> None:
    wanted = weather(4)

    def job(store: Store) -> None:
        weather(12).to_zarr(store, consolidated=False)
        wanted.to_zarr(store, mode="w", consolidated=False)

    with xr.open_zarr(same(job), chunks=None, consolidated=False) as found:
        xr.testing.assert_identical(found.load(), wanted)


@CONSOLIDATED
@DASK
def test_trees(same: Callable[[Job], UcxStore], consolidated: bool, chunked: bool) -> None:
    wanted = xr.DataTree.from_dict(
        {
            "/": weather()[["height"]].drop_vars(["time", "x", "station"], errors="ignore"),
            "/coarse": weather(4),
            "/fine/best": weather(6),
        }
    )

    def job(store: Store) -> None:
        tree = wanted.chunk({"time": 5, "y": 10, "x": 10}) if chunked else wanted
        tree.to_zarr(store, consolidated=consolidated)

    store = same(job)
    with xr.open_datatree(
        store, engine="zarr", consolidated=consolidated, chunks={} if chunked else None
    ) as found:
        xr.testing.assert_identical(found.compute(), wanted)
    with xr.open_datatree(
        store, engine="zarr", consolidated=consolidated, group="fine", chunks=None
    ) as found:
        xr.testing.assert_identical(found["best"].load(), wanted["fine/best"])


def test_a_dataset_of_many_files_of_one_server(ucx_store: UcxStore, address: str) -> None:
    parts = [weather(5), weather(5, "2026-01-06")]
    for number, part in enumerate(parts):
        part.to_zarr(ucx_store, group=f"part{number}", consolidated=False)
    with xr.open_mfdataset(
        [f"{address}/part{number}" for number in range(2)],
        engine="zarr",
        consolidated=False,
        combine="nested",
        concat_dim="time",
        data_vars="minimal",
        coords="minimal",
        compat="override",
        join="outer",
    ) as found:
        expected = xr.concat(
            parts, "time", data_vars="minimal", coords="minimal", compat="override", join="outer"
        )
        xr.testing.assert_equal(found.compute(scheduler="threads"), expected)
