"""Tests of zarr's that cannot hold for `UcxStore`, each with the reason.

They are run, and must fail: what starts to hold is to be taken off the list.
"""

from dataclasses import dataclass

ITS_CALLS = (
    "it watches or replaces `get` and `set`, which chunks that move straight do not go through"
)
ITS_INDEX = "it replaces a method of zarr's shard index that is not called to read one here"
ITS_DICT = "it looks for values in the dictionary that it passed as a store"


@dataclass(frozen=True)
class Difference:
    """A test, or those of its cases whose parameters have `case` in their names."""

    test: str
    reason: str
    case: str = ""

    @property
    def file(self) -> str:
        return self.test.partition("::")[0]

    def concerns(self, nodeid: str) -> bool:
        name, _, parameters = nodeid.partition("[")
        return name == self.test and self.case in parameters


_SHARDING = "tests/test_codecs/test_sharding.py::"
_SHARDING_UNIT = "tests/test_codecs/test_sharding_unit.py::test_load_partial_shard_"

DIFFERENCES = [
    Difference("tests/test_config.py::test_config_buffer_implementation", ITS_CALLS),
    Difference("tests/test_indexing.py::test_accessed_chunks", ITS_CALLS),
    Difference(
        "tests/test_unified_chunk_grid.py::test_resize_uniform_rectilinear_appends_edge", ITS_DICT
    ),
    Difference(
        f"{_SHARDING}test_sharding_partial_shard_read__index_chunk_slice_fails", ITS_INDEX, "memory"
    ),
    Difference(f"{_SHARDING_UNIT}non_fnf_error_propagates", ITS_CALLS),
]
