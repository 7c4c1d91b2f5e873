import pytest


@pytest.fixture(params=["memory", "directory", "object"])
def storage(request: pytest.FixtureRequest) -> str:
    """Of all kinds, here; elsewhere without those that make no difference to the client."""
    return request.param
