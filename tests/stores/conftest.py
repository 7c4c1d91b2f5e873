"""Every kind of storage: other folders leave out those that make no difference to a client."""

from tests.fixtures import every_storage

__all__ = ["every_storage"]
