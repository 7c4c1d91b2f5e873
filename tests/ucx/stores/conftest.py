"""Every kind of storage, as in tests/stores."""

from tests.fixtures import every_storage

__all__ = ["every_storage"]
