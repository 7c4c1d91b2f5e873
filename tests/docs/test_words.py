"""Patterns of indirect English may only become fewer: lower a number when it has fallen."""

from pathlib import Path

import pytest

from tests import words
from tests.docs.blocks import ROOT

PAGES = {"what is": 0, "who": 3, "that of": 0, "of which": 0}
PACKAGE = {"what is": 21, "who": 178, "that of": 75, "of which": 19}
NATIVE = {"what is": 37, "who": 175, "that of": 50, "of which": 12}


def test_pages() -> None:
    assert above(words.of_pages(ROOT), PAGES) == {}


def test_comments_docstrings_and_messages() -> None:
    assert above(words.of_package(ROOT / "ucxstore"), PACKAGE) == {}


def test_comments_of_the_core() -> None:
    assert above(words.of_native(ROOT / "native"), NATIVE) == {}


def above(found: dict[str, int], allowed: dict[str, int]) -> dict[str, str]:
    return {
        name: f"{number} of at most {allowed[name]}"
        for name, number in found.items()
        if number > allowed[name]
    }


# ---- that the patterns are seen ----


def test_a_planted_page_is_counted(tmp_path: Path) -> None:
    (tmp_path / "docs/reference").mkdir(parents=True)
    (tmp_path / "README.md").write_text("What is open. Say what is closed. (What are\nthose of it?")
    (tmp_path / "CONTRIBUTING.md").write_text("Whoever asks, whose `who`: [x](who.md), of which.")
    (tmp_path / "docs/a.md").write_text("| a | what is b |\n- what is c\n```\nwho\n```\n")
    (tmp_path / "docs/reference/cli.md").write_text("who\n")
    found = words.of_pages(tmp_path)
    assert found == {"what is": 4, "who": 2, "that of": 1, "of which": 1}
    assert above(found, {**found, "who": 1}) == {"who": "2 of at most 1"}


def test_planted_texts_of_sources_are_counted(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        '"""What is here."""\n\n# Not here: what is it. Those\n# of it.\n# \n# What is new.\n'
        'raise ValueError(f"{1} of which")  # who\n'
    )
    (tmp_path / "b.hpp").write_text(
        '// That\n// of it.\nchar quote = \'"\'; // who\nauto url = "//who";\n/* What is that. */'
    )
    assert words.of_package(tmp_path) == {"what is": 2, "who": 1, "that of": 1, "of which": 1}
    generated = tmp_path / "ucxstore/server/options/keywords.py"
    generated.parent.mkdir(parents=True)
    generated.write_text("# who\n")
    assert words.of_package(tmp_path / "ucxstore")["who"] == 0
    assert words.of_native(tmp_path) == {"what is": 1, "who": 1, "that of": 1, "of which": 0}


@pytest.mark.parametrize("text", ["whole", "that often", "those offers", "somewhat is", "Somewho"])
def test_other_words_are_not_counted(text: str) -> None:
    assert set(words.count([text]).values()) == {0}
