"""fsspec's own tests of file systems, on ours."""

import posixpath
from collections.abc import Callable

import pytest
from fsspec.tests.abstract import (
    AbstractCopyTests,
    AbstractFixtures,
    AbstractGetTests,
    AbstractOpenTests,
    AbstractPipeTests,
    AbstractPutTests,
)

from ucxstore.filesystem import UcxFileSystem


class Fixtures(AbstractFixtures):
    @pytest.fixture
    def fs(self, fs: UcxFileSystem) -> UcxFileSystem:
        return fs

    @pytest.fixture
    def fs_path(self, fs_path: str) -> str:
        return fs_path

    @pytest.fixture
    def fs_join(self) -> Callable[..., str]:
        return posixpath.join

    @pytest.fixture
    def supports_empty_directories(self) -> bool:
        return False


class TestCopy(AbstractCopyTests, Fixtures):
    pass


class TestGet(AbstractGetTests, Fixtures):
    pass


class TestPut(AbstractPutTests, Fixtures):
    pass


class TestOpen(AbstractOpenTests, Fixtures):
    pass


class TestPipe(AbstractPipeTests, Fixtures):
    pass
