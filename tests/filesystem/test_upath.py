"""``ucx://`` paths of universal_pathlib."""

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas
import pytest
import zarr
from upath import UPath

from ucxstore import Secret
from ucxstore.filesystem.upath import UcxPath


@pytest.fixture
def folder(address: str, zarr_config: None) -> UPath:
    return UPath(address) / "folder"


def test_the_class_is_found_by_its_entry_point(folder: UPath) -> None:
    assert type(folder) is UcxPath


def test_its_text_is_a_url_that_others_open(folder: UPath, address: str) -> None:
    assert str(folder) == folder.as_uri() == f"{address}/folder"
    assert repr(folder) == f"UcxPath('{address}/folder')"
    assert str(folder / "a/b") == str(UPath(f"{address}/folder/a/b")) == f"{address}/folder/a/b"
    assert str(folder.parent) == address
    assert str(UPath(address.rpartition("/")[0])) == address.rpartition("/")[0]
    zarr.create_array(str(folder / "z"), shape=(4,), dtype="f4")[:] = 7
    np.testing.assert_array_equal(zarr.open_array(str(folder / "z"))[:], [7] * 4)
    table = pandas.DataFrame({"x": range(10)})
    table.to_csv(str(folder / "t.csv"), index=False)
    pandas.testing.assert_frame_equal(pandas.read_csv(str(folder / "t.csv")), table)


def test_files_and_folders(folder: UPath) -> None:
    assert not folder.exists()
    (folder / "a/b.txt").write_text("ü")
    (folder / "c").write_bytes(b"12345")
    assert (folder / "a/b.txt").read_text() == "ü"
    with (folder / "c").open("rb") as file:
        file.seek(3)
        assert file.read() == b"45"
    assert sorted(path.name for path in folder.iterdir()) == ["a", "c"]
    assert [path.name for path in folder.rglob("*.txt")] == ["b.txt"]
    assert ((folder / "a").is_dir(), (folder / "c").is_file()) == (True, True)
    assert (folder / "c").stat().st_size == 5
    assert str((folder / "a/b.txt").relative_to(folder)) == "a/b.txt"
    (folder / "c").rename(folder / "d")
    (folder / "a/b.txt").unlink()
    assert sorted(map(str, folder.iterdir())) == [f"{folder}/d"]
    with pytest.raises(FileNotFoundError):
        (folder / "c").read_bytes()


@pytest.mark.parametrize("give", [str, str.encode, Secret])
def test_a_secret_is_neither_shown_nor_pickled(give: Callable[[str], Any]) -> None:
    path = UPath("ucx://127.0.0.1:1/a", secret=give("open sesame"))
    for one in path, path / "b", path.parent, UPath(path), path.with_name("c"):
        assert one.storage_options["secret"].reveal() == b"open sesame"
        assert "sesame" not in repr(one.storage_options)
        assert b"sesame" not in pickle.dumps(one)
    assert path == UPath("ucx://127.0.0.1:1/a", secret="open sesame")


def test_paths_are_equal_if_their_servers_are(folder: UPath) -> None:
    assert UPath(str(folder)) == folder
    assert pickle.loads(pickle.dumps(folder)) == folder
    assert len({folder, UPath(str(folder))}) == 1
    assert UPath("ucx://127.0.0.1:1/x") != UPath("ucx://127.0.0.1:2/x")
