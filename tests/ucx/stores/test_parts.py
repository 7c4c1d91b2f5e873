"""The tests of tests/stores/test_parts.py, over UCX."""

import pytest

from tests.stores.test_parts import *  # noqa: F403


@pytest.fixture(
    name="transport", scope="module", params=[{}, {"TLS": "tcp"}], ids=["default", "tcp"]
)
def over_options(request: pytest.FixtureRequest) -> dict[str, str]:
    return request.param
