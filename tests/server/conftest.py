import pytest


@pytest.fixture(params=["memory", "directory", "object"])
def storage(request: pytest.FixtureRequest) -> str:
    """Of all kinds: what is tested here is the server."""
    return request.param
