"""docs/reference/: the pages have what the code has."""

import ast
import inspect
import re
from pathlib import Path

import pytest

import ucxstore
from tests import counters_page, options_keywords, options_page, store_options_page
from tests.docs.blocks import blocks_of
from ucxstore.base import errors
from ucxstore.base.environment import READ, READ_BY_OTHERS, SERVE_PREFIX
from ucxstore.cli.serve.settings import CONFIG_VARIABLE, OPTIONS
from ucxstore.server.options import keywords

ROOT = Path(__file__).parents[1]
NAME = re.compile(r"UCXSTORE_[A-Z0-9_]+")


def test_the_page_of_options_is_fresh() -> None:
    """To make it anew: ``make stubs``."""
    assert options_page.PAGE.read_text() == options_page.page()


def test_the_table_of_counters_is_fresh() -> None:
    """To make it anew: ``make stubs``."""
    assert counters_page.PAGE.read_text() == counters_page.page()


def test_the_keywords_of_a_server_are_fresh() -> None:
    """To make them anew: ``make stubs``."""
    assert Path(keywords.__file__).read_text() == options_keywords.module()


def test_the_page_of_exceptions_has_all() -> None:
    page = (ROOT / "docs/reference/api/errors.md").read_text()
    [tree] = [block.text.splitlines() for block in blocks_of(page) if block.language == "text"]
    assert tree == [line for line in str(errors.__doc__).splitlines() if line in tree]
    classes = {
        name for name, value in vars(errors).items() if inspect.isclass(value) and name[0] != "_"
    }
    assert {re.findall(r"\w+", line)[0] for line in tree} == classes


def test_the_page_of_store_options_is_fresh() -> None:
    """To make it anew: ``make stubs``."""
    assert store_options_page.PAGE.read_text() == store_options_page.page()


def test_each_store_option_is_explained() -> None:
    parameters = inspect.signature(ucxstore.UcxStore).parameters.values()
    options = {each.name for each in parameters if each.kind is each.KEYWORD_ONLY}
    assert set(re.findall(r"^\| `(\w+)` \|", store_options_page.page(), re.MULTILINE)) == options


def variables_in(folder: Path, *, leave_out: Path | None = None) -> set[str]:
    """Return the variables that the code reads: texts of Python, and what C++ asks for."""
    found: set[str] = set()
    for path in folder.rglob("*.py"):
        if path == leave_out:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found |= set(NAME.findall(node.value))
    for path in folder.rglob("*.cpp"):
        found |= set(re.findall(r'getenv\("(UCXSTORE_[A-Z0-9_]+)"\)', path.read_text()))
    return found


def test_the_page_of_variables_has_all() -> None:
    derived = {each.variable for each in OPTIONS.values()} | {SERVE_PREFIX}
    there = variables_in(ROOT / "ucxstore") | variables_in(ROOT / "native")
    assert {"UCXSTORE_SECRET", "UCXSTORE_LOCAL", CONFIG_VARIABLE} <= there | {CONFIG_VARIABLE}
    text = (ROOT / "docs/reference/environment.md").read_text()
    named = set(NAME.findall(text))
    assert there - derived <= named
    assert named - derived <= there | {CONFIG_VARIABLE}


def test_each_variable_that_is_read_is_known() -> None:
    """And none that nobody reads, which would be taken without an effect."""
    table = ROOT / "ucxstore/base/environment.py"
    code = variables_in(ROOT / "ucxstore", leave_out=table) | variables_in(ROOT / "native")
    options = {each.variable for each in OPTIONS.values()}
    assert code - options - {CONFIG_VARIABLE, SERVE_PREFIX} == set(READ)


@pytest.mark.parametrize("folder", ["deploy", "profiles"])
def test_each_variable_around_the_package_is_known(folder: str) -> None:
    """Scripts and images set them where the package runs, too."""
    files = [path for path in (ROOT / folder).rglob("*") if path.is_file()]
    text = "\n".join(path.read_text(errors="replace") for path in files)
    found = set(NAME.findall(text))
    options = {each.variable for each in OPTIONS.values()}
    assert found
    assert found <= {*READ, *READ_BY_OTHERS, *options, CONFIG_VARIABLE}


def test_a_variable_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text('"""Of UCXSTORE_ONE."""\nimport os\nos.environ["UCXSTORE_TWO"]')
    (tmp_path / "a.cpp").write_text('std::getenv("UCXSTORE_THREE"); UCXSTORE_MACRO(x)')
    assert variables_in(tmp_path) == {"UCXSTORE_ONE", "UCXSTORE_TWO", "UCXSTORE_THREE"}
