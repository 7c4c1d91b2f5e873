"""Every kind of storage, as in tests/store."""

from tests.store.conftest import storage

__all__ = ["storage"]
