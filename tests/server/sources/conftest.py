from collections.abc import Iterator

import pytest

from tests.server.sources.http_objects import HttpObjects, http_objects


@pytest.fixture
def objects() -> Iterator[HttpObjects]:
    with http_objects() as state:
        yield state
