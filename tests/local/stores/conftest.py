"""Every kind of storage, as in tests/stores."""

from tests.stores.conftest import storage

__all__ = ["storage"]
