"""Stores of several servers, over what they choose by themselves where all is on one host."""

import pytest


@pytest.fixture(autouse=True)
def over_the_local_plane(monkeypatch: pytest.MonkeyPatch) -> None:
    """As users have it. To connect over UCX takes most of the time of these tests."""
    monkeypatch.setenv("UCXSTORE_LOCAL", "auto")
