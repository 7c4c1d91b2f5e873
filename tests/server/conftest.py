from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest


@pytest.fixture(params=["memory", "directory", "object"])
def storage(request: pytest.FixtureRequest) -> str:
    """Every kind of storage, since these tests are about the server."""
    return request.param


@pytest.fixture(params=["ucx", "auto"])
def plane(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as one:
        yield one
