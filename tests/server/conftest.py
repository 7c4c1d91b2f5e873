import pytest


@pytest.fixture(params=["memory", "directory", "object"])
def storage(request: pytest.FixtureRequest) -> str:
    """Every kind of storage, since these tests are about the server."""
    return request.param
