"""Hooks of MkDocs, which `make docs` runs: the site has every file of this repository it links to.

Pages lie in `docs/` and link to one another and to files outside of it, as GitHub shows them. Such
a file becomes a page of the site, or lies beside the pages. README.md is its first page.
"""

import os
import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
HOME = "index.md"

_LINK = re.compile(r"(?<=\]\()([^()\s#:]+)(?=[)#])")
_BLOCK = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_SHOWN_AS_CODE = {".py": "python", ".go": "go", ".toml": "toml", ".yaml": "yaml", "": "text"}
_LOADED = re.compile(r"""<(?:script|img|iframe|link)\b[^>]*?(?:src|href)=["']?https?://[^"'\s>]+""")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add README.md, and what pages link to outside of `docs/`."""
    waiting = [
        *sorted(ROOT.glob("*.md")),
        *(DOCS / file.src_uri for file in files.documentation_pages()),
    ]
    seen = set(waiting)
    while waiting:
        for target in _targets(waiting.pop()):
            if target not in seen:
                seen.add(target)
                if target.suffix == ".md":
                    waiting.append(target)
    for path in sorted(seen):
        if not path.is_relative_to(DOCS):
            files.append(_file(path, config))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links point at where a file is in the site."""
    source = _source(page.file.src_uri)

    def rewrite(match: re.Match[str]) -> str:
        target = _target(source, match[1])
        if target is None:
            return match[1]
        return posixpath.relpath(_uri(target), posixpath.dirname(page.file.src_uri))

    return _outside_blocks(markdown, rewrite)


def on_post_build(config: MkDocsConfig) -> None:
    """Draw all pictures for the light scheme, and refuse a site that loads from elsewhere.

    A picture that follows the system's scheme would not follow the site's, which has a switch:
    `docs/site.css` turns light pictures dark.
    """
    for picture in Path(config.site_dir).rglob("*.svg"):
        picture.write_text(picture.read_text().replace("(prefers-color-scheme: dark)", "not all"))
    loaded = {
        f"{page.relative_to(config.site_dir)}: {found}"
        for page in Path(config.site_dir).rglob("*.html")
        for found in _LOADED.findall(page.read_text())
        if 'rel="canonical"' not in found
    }
    if loaded:
        raise PluginError("the site loads what lies elsewhere:\n" + "\n".join(sorted(loaded)))


def _file(path: Path, config: MkDocsConfig) -> File:
    if path.suffix in _SHOWN_AS_CODE:
        name = path.relative_to(ROOT)
        code = f"# {name}\n\n````{_SHOWN_AS_CODE[path.suffix]}\n{path.read_text()}````\n"
        return File.generated(config, _uri(path), content=code)
    if path.suffix == ".md":
        return File.generated(config, _uri(path), content=path.read_text())
    return File.generated(config, _uri(path), abs_src_path=str(path))


def _targets(page: Path) -> set[Path]:
    found = set()
    _outside_blocks(page.read_text(), lambda match: str(found.add(_target(page, match[1]))))
    return {target for target in found if target is not None}


def _outside_blocks(markdown: str, rewrite) -> str:  # type: ignore[no-untyped-def]
    """Rewrite the links of a page, and leave its code alone."""
    parts, end = [], 0
    for block in _BLOCK.finditer(markdown):
        parts += [_LINK.sub(rewrite, markdown[end : block.start()]), block[0]]
        end = block.end()
    return "".join([*parts, _LINK.sub(rewrite, markdown[end:])])


def _target(page: Path, link: str) -> Path | None:
    """Return the file of this repository that a link leads to."""
    path = Path(os.path.normpath(page.parent / link))
    if path.is_dir():
        path /= "README.md"
    return path if path.is_file() and path.is_relative_to(ROOT) else None


def _uri(path: Path) -> str:
    """Return where a file of this repository is in the site's sources."""
    if path == ROOT / "README.md":
        return HOME
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS).as_posix()
    uri = path.relative_to(ROOT).as_posix()
    # `repository/` keeps them apart from pages of `docs/` that have their name.
    return "repository/" + (f"{uri}.md" if path.suffix in _SHOWN_AS_CODE else uri)


def _source(uri: str) -> Path:
    """Return the file of this repository that a page of the site is made of."""
    if uri == HOME:
        return ROOT / "README.md"
    if uri.startswith("repository/"):
        return ROOT / uri.removeprefix("repository/")
    return DOCS / uri
