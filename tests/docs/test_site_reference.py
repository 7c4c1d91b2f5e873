"""The generated reference: what readers see of signatures and docstrings.

The oracle of defaults is Python, which imports what griffe only reads.
"""

import html
import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import griffe
import pytest
import yaml

from tests.docs.blocks import ROOT

PAGES = sorted((ROOT / "docs/reference/api").glob("*.md"))
NAMES = [name for page in PAGES for name in re.findall(r"^::: ([\w.]+)$", page.read_text(), re.M)]


@pytest.fixture(scope="module")
def package() -> Any:
    extensions = griffe.load_extensions(str(ROOT / "scripts/site_reference.py"))
    return griffe.load(
        "ucxstore", search_paths=[ROOT], extensions=extensions, docstring_parser="numpy"
    )


def find(package: Any, name: str) -> Any:
    return package[name.removeprefix("ucxstore.")]


def functions_in(found: Any) -> Iterator[Any]:
    if found.is_function:
        yield found
    for member in found.members.values():
        if not member.is_alias and (not member.name.startswith("_") or member.name == "__init__"):
            yield from functions_in(member)


def imported(path: str) -> Any:
    module, _, rest = path, "", ""
    while True:
        try:
            found = importlib.import_module(module)
            break
        except ModuleNotFoundError:
            module, _, last = module.rpartition(".")
            rest = f"{last}.{rest}" if rest else last
    for name in filter(None, rest.split(".")):
        found = getattr(found, name)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_defaults_are_values(package: Any, name: str) -> None:
    for function in functions_in(find(package, name)):
        if "property" in function.labels or "dataclass" in function.parent.labels:
            continue
        actual = inspect.signature(imported(function.path)).parameters
        for parameter in function.parameters:
            shown = None if parameter.default is None else str(parameter.default)
            if shown in (None, "()", "{}"):
                continue
            default = actual[parameter.name].default
            where = f"{function.path}: {shown}"
            if isinstance(default, bool | int | float | str | None):
                assert eval(shown, {"__builtins__": {}}) == default, where
            else:
                assert not re.search(r"\b[A-Z][A-Z_]+\b", shown), where


@pytest.mark.parametrize("name", NAMES)
def test_pages_are_links(package: Any, name: str) -> None:
    found = find(package, name)
    for one in [found, *functions_in(found)]:
        text = one.docstring.value if one.docstring is not None else ""
        assert not re.search(r"\bdocs/[\w/-]+\.md", text), one.path
        for link in re.findall(r"\]\((\.\./[^)]+)\)", text):
            assert (ROOT / "docs/reference/api" / link).resolve().is_file(), one.path


def test_the_page_of_the_store(tmp_path: Path) -> None:
    """As MkDocs builds it, with our configuration of it, but without all other pages."""
    config = yaml.safe_load(
        re.sub(r"!ENV \S+|!!python/\S+( \{.*?\})?", "null", (ROOT / "mkdocs.yml").read_text())
    )
    page = tmp_path / "docs/reference/api/store.md"
    page.parent.mkdir(parents=True)
    page.write_text((ROOT / "docs/reference/api/store.md").read_text())
    for other in (ROOT / "docs").glob("*.md"):
        (tmp_path / "docs" / other.name).write_text("# A page\n")
    (tmp_path / "docs/reference/store-options.md").write_text("# Options\n")
    plugins = config["plugins"]
    handler = next(one for one in plugins if "mkdocstrings" in one)["mkdocstrings"]["handlers"]
    handler["python"]["paths"] = [str(ROOT)]
    options = handler["python"]["options"]
    options["extensions"] = [str(ROOT / extension) for extension in options["extensions"]]
    chosen = {
        "site_name": "ucxstore",
        "docs_dir": str(tmp_path / "docs"),
        "site_dir": str(tmp_path / "site"),
        "use_directory_urls": False,
        "theme": {"name": "material", "font": False},
        "plugins": plugins,
        "markdown_extensions": ["attr_list", "pymdownx.highlight", "pymdownx.superfences"],
    }
    (tmp_path / "mkdocs.yml").write_text(yaml.safe_dump(chosen))
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet"],
        cwd=tmp_path,
        env={"PATH": "", "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    built = (tmp_path / "site/reference/api/store.html").read_text()
    assert 'href="../../local.html"' in built
    text = re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", "", built)))
    assert "DEFAULT_TIMEOUT" not in text
    assert "UcxStore( address" in text
    assert "timeout: float = 30.0" in text
    assert "buffer_budget: int | str = 268435456" in text
