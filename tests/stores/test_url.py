"""``ucx://`` where zarr takes a URL: a file system of fsspec's with a `UcxStore` behind it."""

import gc
import json
import pickle
import socket
from collections.abc import Iterator
from pathlib import Path

import fsspec
import numpy as np
import pytest
import xarray as xr
import zarr
from zarr.storage import FsspecStore

from tests.eventually import eventually
from ucxstore import AddressError, AuthenticationError, FallbackError, Secret, UcxStore
from ucxstore.filesystem import UcxFileSystem
from ucxstore.pipeline.access import access_to, find_access
from ucxstore.server import Server

pytestmark = pytest.mark.usefixtures("zarr_config")

SECRET = "correct horse battery staple"


@pytest.fixture
def secret_server() -> Iterator[Server]:
    with Server("memory://", secret=SECRET) as server:
        yield server


def values() -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    return np.random.default_rng(3).random((60, 70), dtype=np.float32)


def behind(array: zarr.Array) -> UcxStore:
    access = find_access(array.store)
    assert access is not None
    assert isinstance(access.store, UcxStore)
    return access.store


def test_an_array_at_a_url_goes_the_short_way(address: str) -> None:
    wanted = values()
    z = zarr.create_array(
        f"{address}/a", shape=wanted.shape, chunks=(20, 20), dtype="f4", compressors=None
    )
    z[:] = wanted
    again = zarr.open_array(f"{address}/a", mode="r")
    np.testing.assert_array_equal(again[:], wanted)
    np.testing.assert_array_equal(zarr.open_array(UcxStore(f"{address}/a"))[:], wanted)
    written, read = behind(z).stats(), behind(again).stats()
    assert (written["direct"], written["encode"], written["fallback"]) == (9, 3, 0)
    assert (read["direct"], read["fallback"], read["bytes_read"]) == (12, 0, wanted.nbytes)


@pytest.mark.parametrize("host", ["[::1]", "[fe80::1]", "a:7400,[::1]"])
def test_an_ipv6_url_that_fsspec_cuts_apart(host: str) -> None:
    with pytest.raises(AddressError, match=r"without '::'.*0:0:0:0:0:0:0:1"):
        zarr.open(f"ucx://{host}:7400/a", mode="r")


def test_ucx_options_of_a_url(ucx_address: str) -> None:
    # fsspec takes what is under its protocol's name for options by themselves.
    options = {"ucx": {"TLS": "tcp", "RCACHE_ENABLE": "n"}}
    z = zarr.create_array(f"{ucx_address}/a", data=values(), storage_options=options)
    np.testing.assert_array_equal(z[:], values())
    assert all("tcp" in lane for lane in behind(z).stats()["lanes"])
    again = pickle.loads(pickle.dumps(z))
    np.testing.assert_array_equal(again[:], values())
    assert behind(again).stats()["lanes"] == behind(z).stats()["lanes"]


@pytest.mark.parametrize("shards", [None, (40, 40)])
def test_compressed_and_sharded(address: str, shards: tuple[int, int] | None) -> None:
    wanted = values()
    z = zarr.create_array(address, data=wanted, chunks=(20, 20), shards=shards)
    np.testing.assert_array_equal(z[3:50, 7:], wanted[3:50, 7:])
    stats = behind(z).stats()
    assert stats["fallback"] == 0
    assert stats["decode"] > 0


def test_what_goes_the_long_way(address: str) -> None:
    texts = np.array(["a", "", "ü" * 50] * 10, dtype=object)
    z = zarr.create_array(address, shape=30, chunks=7, dtype=str)
    z[:] = texts
    assert behind(z).stats()["fallback"] == 5
    np.testing.assert_array_equal(zarr.open_array(address)[:].astype(object), texts)


def test_ipv6() -> None:
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    try:
        server = Server("memory://", "[::1]:0")
    except OSError:
        pytest.skip("no IPv6 loopback here")
    with server:
        port = server.address.rpartition(":")[2]
        url = f"ucx://[0:0:0:0:0:0:0:1]:{port}/a"
        zarr.create_array(url, data=values())
        np.testing.assert_array_equal(zarr.open_array(url, mode="r")[:], values())
        np.testing.assert_array_equal(
            zarr.open_array(UcxStore(f"{server.address}/a"), mode="r")[:], values()
        )


def test_groups(address: str) -> None:
    root = zarr.open_group(address, mode="w")
    root.create_array("deep/a", data=values())
    root.attrs["title"] = "x"
    again = zarr.open_group(address, mode="r")
    assert again.attrs["title"] == "x"
    assert sorted(name for name, _ in again.members(max_depth=None)) == ["deep", "deep/a"]
    opened = zarr.open(address, mode="r")
    assert isinstance(opened, zarr.Group)
    del zarr.open_group(address, mode="a")["deep"]
    assert list(zarr.open_group(address, mode="r")) == []
    zarr.open_group(address, mode="w").create_array("b", shape=(1,), dtype="i1")
    assert list(zarr.open_group(address)) == ["b"]


def test_missing(address: str) -> None:
    with pytest.raises(FileNotFoundError):
        zarr.open(f"{address}/nothing", mode="r")


def test_mode_r_refuses_writes(address: str) -> None:
    zarr.create_array(address, data=values(), compressors=None, chunks=(60, 70))
    z = zarr.open_array(address, mode="r")
    with pytest.raises(ValueError, match="read-only"):
        z[:] = 0
    np.testing.assert_array_equal(z[:], values())


def test_options_reach_the_store(address: str) -> None:
    zarr.create_array(f"{address}/a", shape=(3,), dtype="i4")
    options = {"strict": True, "timeout": 7.0, "buffer_budget": 1 << 20}
    z = zarr.open_array(f"{address}/a", storage_options=options)
    store = behind(z)
    assert (store.strict, store.timeout, access_to(store).budget.total) == (True, 7.0, 1 << 20)
    texts = zarr.create_array(
        f"{address}/t", shape=(3,), dtype=str, storage_options={"strict": True}
    )
    with pytest.raises(FallbackError):
        texts[:]


@pytest.mark.parametrize("options", [{"dance": 1}, {"timeout": "x"}])
def test_a_bad_option(address: str, options: dict[str, object]) -> None:
    with pytest.raises(TypeError, match=r"dance|timeout"):
        zarr.open(address, storage_options=options)


def test_a_secret_as_an_option(secret_server: Server) -> None:
    url = f"{secret_server.address}/a"
    with pytest.raises(AuthenticationError):
        zarr.open(url, mode="r")
    zarr.create_array(url, data=values(), storage_options={"secret": SECRET})
    z = zarr.open_array(url, mode="r", storage_options={"secret": Secret(SECRET)})
    np.testing.assert_array_equal(z[:], values())


def test_the_environments_secret(
    secret_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"{secret_server.address}/a"
    file = tmp_path / "secret"
    file.write_text(SECRET)
    file.chmod(0o600)
    monkeypatch.setenv("UCXSTORE_SECRET_FILE", str(file))
    zarr.create_array(url, data=values())
    monkeypatch.setenv("UCXSTORE_SECRET", "another one")
    with pytest.raises(AuthenticationError):
        zarr.open(url, mode="r")
    monkeypatch.setenv("UCXSTORE_SECRET", SECRET)
    monkeypatch.setenv("UCXSTORE_SECRET_FILE", "/no/such/file")
    np.testing.assert_array_equal(zarr.open_array(url, mode="r")[:], values())


def test_a_pickle_is_without_the_secret(
    secret_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"{secret_server.address}/a"
    z = zarr.create_array(url, data=values(), storage_options={"secret": SECRET})
    pickled = pickle.dumps(z)
    assert SECRET.encode() not in pickled
    assert SECRET not in repr(z.store.fs.storage_options)  # type: ignore[attr-defined]
    monkeypatch.setenv("UCXSTORE_SECRET", SECRET)
    np.testing.assert_array_equal(pickle.loads(pickled)[:], values())


@pytest.mark.filterwarnings("ignore:Consolidated metadata")
def test_xarray_takes_the_url(address: str) -> None:
    wanted = xr.Dataset({"t": (("y", "x"), values())}, {"x": np.arange(70)})
    wanted.to_zarr(address, mode="w")
    for consolidated in (True, False):
        with xr.open_zarr(address, consolidated=consolidated, chunks=None) as found:
            xr.testing.assert_identical(found.load(), wanted)
    with xr.open_dataset(address, engine="zarr", chunks={}) as found:
        xr.testing.assert_identical(found.compute(), wanted)


def test_a_connection_ends_with_its_last_user(secret_server: Server) -> None:
    z = zarr.create_array(
        f"{secret_server.address}/a", data=values(), storage_options={"secret": SECRET}
    )
    assert secret_server.sessions == 1
    del z
    gc.collect()
    eventually(lambda: secret_server.sessions == 0)


def test_the_file_system(address: str) -> None:
    fs, path = fsspec.url_to_fs(address)
    assert isinstance(fs, UcxFileSystem)
    fs.pipe({f"{path}/a/b": b"0123456789", f"{path}/a/c": b"", f"{path}/d": b"dd"})
    assert fs.cat_file(f"{path}/a/b") == b"0123456789"
    slices = [(2, None), (None, 4), (2, 4), (-3, None), (None, -3), (-4, -2), (4, 2), (5, 99)]
    for start, end in slices:
        assert fs.cat_file(f"{path}/a/b", start, end) == b"0123456789"[start:end]
    assert sorted(fs.find(path)) == [f"{path}/a/b", f"{path}/a/c", f"{path}/d"]
    assert fs.find(f"{path}/d") == [f"{path}/d"]
    assert fs.find(f"{path}/e") == []
    assert {one["name"]: (one["type"], one["size"]) for one in fs.ls(path)} == {
        f"{path}/a": ("directory", 0),
        f"{path}/d": ("file", 2),
    }
    assert fs.ls(f"{path}/d", detail=False) == [f"{path}/d"]
    assert fs.du(path) == 12
    assert fs.info(address)["type"] == "directory"
    assert fs.unstrip_protocol(path) == address
    assert fs.isfile(f"{address}/d")
    assert not fs.exists(f"{path}/e")
    fs.copy(f"{path}/d", f"{path}/e")
    assert fs.cat(f"{path}/e") == b"dd"
    fs.rm(f"{path}/a", recursive=True)
    fs.rm(f"{path}/e")
    assert fs.find(path) == [f"{path}/d"]
    for use in (fs.cat_file, fs.info, fs.ls):
        with pytest.raises(FileNotFoundError):
            use(f"{path}/nothing")


def test_create_does_not_overwrite(address: str) -> None:
    fs, path = fsspec.url_to_fs(address)
    fs.pipe_file(f"{path}/a", b"first", mode="create")
    with pytest.raises(FileExistsError):
        fs.pipe_file(f"{path}/a", b"second", mode="create")
    assert fs.cat_file(f"{path}/a") == b"first"


def test_other_file_systems_are_left_alone(tmp_path: Path) -> None:
    z = zarr.create_array(
        FsspecStore.from_url(f"local://{tmp_path}", {"auto_mkdir": True}), data=values()
    )
    assert find_access(z.store) is None
    assert json.loads((tmp_path / "zarr.json").read_text())["shape"] == [60, 70]
