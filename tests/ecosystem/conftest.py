from tests.fixtures import memory_alone

__all__ = ["memory_alone"]
