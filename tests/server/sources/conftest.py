from collections.abc import Iterator

import pytest

from tests.server.sources.http_objects import HttpObjects, http_objects
from tests.server.sources.s3_objects import S3Objects, s3_objects


@pytest.fixture
def objects() -> Iterator[HttpObjects]:
    with http_objects() as state:
        yield state


@pytest.fixture
def bucket() -> Iterator[S3Objects]:
    with s3_objects() as state:
        yield state
