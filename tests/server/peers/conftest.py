from tests.server.sources.conftest import bucket

__all__ = ["bucket"]
