import pytest


@pytest.fixture
def backing() -> str:
    return "memory"  # what backings have in common, tests/store proves
