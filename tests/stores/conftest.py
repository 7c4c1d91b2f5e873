import pytest


@pytest.fixture(params=["memory", "directory", "object"])
def storage(request: pytest.FixtureRequest) -> str:
    """Every kind of storage; other folders leave out those that make no difference to a client."""
    return request.param
