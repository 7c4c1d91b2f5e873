"""Constants that are both in Python and in the native core are equal."""

from ucxstore.base import keys
from ucxstore.base.native import core
from ucxstore.protocol import frames


def test_the_protocol_version() -> None:
    assert core.PROTOCOL_VERSION == frames.PROTOCOL_VERSION


def test_the_longest_key() -> None:
    assert core.MAX_KEY_BYTES == keys.MAX_KEY_BYTES


def test_where_scratch_spaces_are() -> None:
    assert core.SCRATCH_FOLDER == keys.SCRATCH_FOLDER
