import pytest


@pytest.fixture
def storage() -> str:
    return "memory"  # what storages have in common, tests/stores proves
