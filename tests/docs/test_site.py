"""What makes the site of the documentation: links that leave docs/, and nothing from elsewhere."""

import importlib.util
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
from mkdocs.exceptions import PluginError

from tests.docs.blocks import ROOT

_spec = importlib.util.spec_from_file_location("site_hooks", ROOT / "scripts/site_hooks.py")
assert _spec is not None
assert _spec.loader is not None
hooks = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(hooks)


def rewritten(uri: str, markdown: str) -> str:
    page = SimpleNamespace(file=SimpleNamespace(src_uri=uri))
    return hooks.on_page_markdown(markdown, page, None, None)


@pytest.mark.parametrize(
    ("uri", "link", "expected"),
    [
        ("index.md", "docs/ways.md", "ways.md"),
        ("index.md", "docs/images/chunk.svg", "images/chunk.svg"),
        ("index.md", "CHANGELOG.md#010---unreleased", "repository/CHANGELOG.md#010---unreleased"),
        ("architecture.md", "../README.md", "index.md"),
        ("howto/scratch.md", "../../examples/rechunk.py", "../repository/examples/rechunk.py.md"),
        ("performance.md", "../benchmarks/README.md", "repository/benchmarks/README.md"),
        ("repository/CONTRIBUTING.md", "docs/wire.md#a", "../wire.md#a"),
        ("ways.md", "#here", "#here"),
        ("ways.md", "https://zarr.dev", "https://zarr.dev"),
        ("ways.md", "not-there.md", "not-there.md"),  # MkDocs finds it
    ],
)
def test_links_lead_to_where_files_are_in_the_site(uri: str, link: str, expected: str) -> None:
    assert rewritten(uri, f"[text]({link})") == f"[text]({expected})"


def test_code_is_left_alone() -> None:
    code = "```text\n[text](docs/ways.md)\n```\n"
    assert rewritten("index.md", code) == code


@pytest.mark.parametrize(
    ("html", "is_refused"),
    [
        ('<a href="https://zarr.dev">zarr</a>', False),
        ('<link rel="stylesheet" href="site.css"><script src="a.js"></script>', False),
        ('<script src="https://example.org/a.js"></script>', True),
        ('<link rel="stylesheet" href="https://example.org/a.css">', True),
        ('<img alt="" src="https://example.org/a.png">', True),
    ],
)
def test_a_site_that_loads_from_elsewhere_is_refused(
    html: str, is_refused: bool, tmp_path: Path
) -> None:
    (tmp_path / "page.html").write_text(html)
    with pytest.raises(PluginError) if is_refused else nullcontext():
        hooks.on_post_build(SimpleNamespace(site_dir=str(tmp_path)))
