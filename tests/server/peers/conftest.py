from tests.server.sources.conftest import bucket, objects

__all__ = ["bucket", "objects"]
