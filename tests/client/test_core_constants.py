"""Constants that are both in Python and in the native core are equal."""

import re
from pathlib import Path

from ucxstore.base import keys
from ucxstore.base.native import core
from ucxstore.codecs.recipe import MAX_RECIPE_BYTES
from ucxstore.protocol import frames


def test_the_protocol_version() -> None:
    assert core.PROTOCOL_VERSION == frames.PROTOCOL_VERSION


def test_the_longest_key() -> None:
    assert core.MAX_KEY_BYTES == keys.MAX_KEY_BYTES


def test_where_scratch_spaces_are() -> None:
    assert core.SCRATCH_FOLDER == keys.SCRATCH_FOLDER


def test_where_decoded_values_are() -> None:
    assert core.DECODED_FOLDER == keys.DECODED_FOLDER
    assert core.MAX_RECIPE_BYTES == MAX_RECIPE_BYTES


def test_the_names_of_metadata() -> None:
    file = Path(__file__).parents[2] / "native/protocol/keys.cpp"
    (names,) = re.findall(r"kMetadata\{(.*?)\}", file.read_text(), re.DOTALL)
    assert set(re.findall(r'"(.+?)"', names)) == keys.METADATA_NAMES
