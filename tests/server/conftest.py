from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.fixtures import every_storage as every_storage


@pytest.fixture(params=["off", "auto"])
def plane(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as one:
        yield one
