"""The site of the documentation: its links, what its buttons copy, and nothing from elsewhere."""

import copy
import importlib.util
from contextlib import nullcontext
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import markdown
import pytest
from mkdocs.commands import build
from mkdocs.config import load_config
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.plugins import PluginCollection

from tests.docs.blocks import ROOT, blocks_of, of_page, pages

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


def test_pictures_follow_the_switch_of_the_site_and_not_the_system(tmp_path: Path) -> None:
    dark = "<svg><style>a {} @media (prefers-color-scheme: dark) { a {} }</style></svg>"
    (tmp_path / "chart.svg").write_text(dark)
    hooks.on_post_build(SimpleNamespace(site_dir=str(tmp_path)))
    assert "prefers-color-scheme" not in (tmp_path / "chart.svg").read_text()
    assert "prefers-color-scheme" in (ROOT / "docs/images/copies.svg").read_text()


class Copied(HTMLParser):
    """The texts that the site's button copies: those of blocks of code."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._open.append(tag)
        if self._open[-2:] == ["pre", "code"]:
            self.texts.append("")

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop() != tag:  # tags like <br> have no end
            pass

    def handle_data(self, data: str) -> None:
        if any(pair == ("pre", "code") for pair in pairwise(self._open)):
            self.texts[-1] += data


@pytest.fixture(scope="module")
def config() -> MkDocsConfig:
    """The site's configuration, which links to a repository."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_MKDOCS_2_WARNING", "1")
        patch.setenv("UCXSTORE_REPOSITORY", "https://example.org/us/ucxstore")
        return load_config(str(ROOT / "mkdocs.yml"))


@pytest.mark.parametrize("page", pages(), ids=of_page)
def test_the_button_copies_what_the_tests_run(page: Path, config: MkDocsConfig) -> None:
    html = markdown.markdown(
        page.read_text(),
        extensions=config.markdown_extensions,
        extension_configs=config.mdx_configs,
    )
    copied = [text.rstrip() for text in Copied(html).texts]
    assert copied == [block.text.rstrip() for block in blocks_of(page.read_text())]


def test_pages_lead_to_the_repository_and_to_one_another(
    config: MkDocsConfig, tmp_path: Path
) -> None:
    """With the theme and the configuration of the site, and two pages of its own."""
    for name in ("index", "second"):
        (tmp_path / f"docs/{name}.md").parent.mkdir(exist_ok=True)
        (tmp_path / f"docs/{name}.md").write_text(f"# {name}\n\n```sh\nls\n```\n")
    small = copy.copy(config)
    small.update(docs_dir=str(tmp_path / "docs"), site_dir=str(tmp_path / "site"), nav=None)
    small.update(plugins=PluginCollection())
    build.build(small)
    page = (tmp_path / "site/index.html").read_text()
    assert 'href="https://example.org/us/ucxstore"' in page
    assert 'data-md-component="source"' not in page  # a script asks for stars by that
    assert 'href="second.html" class="md-footer__link md-footer__link--next"' in page


def test_without_a_repository_there_is_no_link(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_MKDOCS_2_WARNING", "1")
    monkeypatch.delenv("UCXSTORE_REPOSITORY", raising=False)
    assert load_config(str(ROOT / "mkdocs.yml")).repo_url is None
