import fsspec
import pytest

from ucxstore import UcxStore
from ucxstore.filesystem import UcxFileSystem


@pytest.fixture
def fs(address: str, zarr_config: None) -> UcxFileSystem:
    fs, _ = fsspec.url_to_fs(address)
    assert isinstance(fs, UcxFileSystem)
    return fs


def root_of(fs: UcxFileSystem) -> UcxStore:
    """Return the store that has all files of a file system."""
    return fs._root


@pytest.fixture
def fs_path(prefix: str) -> str:
    """The folder of a test, as fsspec's own tests call it."""
    return prefix
