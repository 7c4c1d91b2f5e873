"""Servers and clients as users have them, on one host without UCX."""

import pytest


@pytest.fixture(autouse=True)
def local_plane(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UCXSTORE_LOCAL", raising=False)
