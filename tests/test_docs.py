"""The documentation: its links lead somewhere, and the code that it names is there."""

import ast
import re
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, of_page

PAGES = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md"))]

_LINK = re.compile(r"\]\(([^()\s]+)\)")
_BLOCK = re.compile(r"```.*?```", re.DOTALL)
_CODE = re.compile(r"`([^`\n]+)`")

# `path` or `path:name` of a file or folder of ours.
_PLACE = re.compile(
    r"((?:ucxstore|native|tests|profiles|benchmarks|examples|docs|scripts)/[\w./]*)(?::([\w.:~]+))?"
)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", _BLOCK.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def names_of(source: str) -> set[str]:
    """Return the qualified names of the classes and functions of a Python module."""
    found = set()

    def visit(node: ast.AST, within: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                found.add(within + child.name)
                visit(child, f"{within}{child.name}.")
            else:
                visit(child, within)

    visit(ast.parse(source), "")
    return found


def is_there(place: str, name: str | None) -> bool:
    """Tell whether a file or folder is there, and has what is named."""
    path = ROOT / place
    if name is None:
        # C++ files are named without their endings where both are meant.
        return path.exists() or path.with_suffix(".hpp").exists()
    source = path.read_text() if path.exists() else ""
    if path.suffix == ".py":
        return name in names_of(source)
    return re.search(rf"\b{re.escape(name)}\b", source) is not None


@pytest.mark.parametrize("page", PAGES, ids=of_page)
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for link in _LINK.findall(_BLOCK.sub("", page.read_text())):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if link.startswith(("http://", "https://")):
            continue
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=of_page)
def test_named_code_is_there(page: Path) -> None:
    text = _BLOCK.sub("", page.read_text())
    places = [match for code in _CODE.findall(text) if (match := _PLACE.fullmatch(code))]
    # HTML pages are made by commands, and not committed.
    kept = [match for match in places if not match[1].endswith(".html")]
    gone = [match[0] for match in kept if not is_there(match[1], match[2])]
    assert gone == []


def test_a_name_that_is_gone_is_noticed() -> None:
    assert is_there("ucxstore/base/address.py", "Address.parse")
    assert not is_there("ucxstore/base/address.py", "Address.parsed")
    assert is_there("native/memory/recycler", None)
    assert not is_there("native/base/gone", None)
    assert is_there("native/memory/recycler.cpp", "Recycler::take")
    assert not is_there("native/memory/recycler.cpp", "Recycler::taken")
