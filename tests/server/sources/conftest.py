from collections.abc import Iterator
from pathlib import Path

import pytest

from profiles.s3 import S3Server, S3ServerError, s3_server
from tests.server.sources.s3_objects import S3Objects, s3_objects


@pytest.fixture
def bucket() -> Iterator[S3Objects]:
    with s3_objects() as state:
        yield state


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    try:
        with s3_server(tmp_path_factory.mktemp("s3")) as server:
            yield server
    except S3ServerError as error:
        pytest.skip(str(error))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"
