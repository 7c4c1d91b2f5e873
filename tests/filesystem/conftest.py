import fsspec
import pytest

from ucxstore.filesystem import UcxFileSystem


@pytest.fixture
def fs(address: str, zarr_config: None) -> UcxFileSystem:
    fs, _ = fsspec.url_to_fs(address)
    assert isinstance(fs, UcxFileSystem)
    return fs


@pytest.fixture
def fs_path(prefix: str) -> str:
    """The folder of a test, as fsspec's own tests call it."""
    return prefix
