"""Count patterns of indirect English in the pages, and in the texts of the sources.

Most of them have a plainer form: "the server decides about reads" for "who may read it, the server
decides". Each function takes the folder that it looks at, so that a test can see it count planted
texts.
"""

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path

# A text or a paragraph begins, a sentence has ended before it, or a list's item or a cell begins.
_START = r"(?:\A|\n\s*\n|[.!?]['\")*]*\s|\n\s*(?:[-*]|\d+\.)\s|\|)[\s\"'(*]*"
PATTERNS = {
    "what is": _START + r"what\s+(?:is|are)\b",
    "who": r"\b(?:who|whoever|whose|whom)\b",
    "that of": r"\b(?:that|those)\s+of\b",
    "of which": r"\bof\s+which\b",
}
_COMPILED = {name: re.compile(pattern, re.IGNORECASE) for name, pattern in PATTERNS.items()}

# These are made from the code, which is counted itself.
GENERATED = {"docs/reference/cli.md", "docs/reference/options.md"}
GENERATED |= {"ucxstore/server/options/keywords.py"}
# Of a page: blocks of code, generated tables, code in a line, where a link leads.
_NOT_TEXT = re.compile(r"```.*?```|<!-- Made by.*?<!-- end -->|`[^`\n]*`|\]\([^()\s]*\)", re.DOTALL)

_CPP_COMMENT = re.compile(
    r"""
    "(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)'                # not in these
    | (//[^\n]*(?:\n[ \t]*//[^\n]*)* | /\*.*?\*/)
    """,
    re.VERBOSE | re.DOTALL,
)
_MARK = re.compile(r"^[ \t]*(?://+|/?\*+/?|\#+:?)[ \t]?", re.MULTILINE)


def of_pages(root: Path) -> dict[str, int]:
    """Count in the pages, but for what is generated."""
    pages = [root / "README.md", root / "CONTRIBUTING.md", *root.glob("docs/**/*.md")]
    return count(
        _NOT_TEXT.sub(" ", page.read_text())
        for page in pages
        if page.relative_to(root).as_posix() not in GENERATED
    )


def of_package(package: Path) -> dict[str, int]:
    """Count in the comments, docstrings and messages of Python modules."""
    files = (
        file
        for file in package.rglob("*.py")
        if file.relative_to(package.parent).as_posix() not in GENERATED
    )
    return count(text for file in files for text in python_texts(file.read_text()))


def of_native(native: Path) -> dict[str, int]:
    """Count in the comments of C++ files."""
    sources = (file.read_text() for file in native.rglob("*.[ch]pp"))
    return count(text for source in sources for text in cpp_comments(source))


def count(texts: Iterable[str]) -> dict[str, int]:
    """Count each pattern."""
    found = Counter(dict.fromkeys(PATTERNS, 0))
    for text in texts:
        for name, pattern in _COMPILED.items():
            found[name] += len(pattern.findall(text))
    return dict(found)


def python_texts(source: str) -> Iterator[str]:
    """Yield a module's strings, and its comments: those of lines below one another as one."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = {token.start[0]: token.string for token in tokens if token.type == tokenize.COMMENT}
    text = "".join(
        comments[line] + ("\n" if following == line + 1 else "\n\n")
        for line, following in pairwise([*comments, 0])
    )
    yield _MARK.sub("", text)


def cpp_comments(source: str) -> Iterator[str]:
    """Yield the comments of a C++ file: those of lines below one another as one."""
    for match in _CPP_COMMENT.finditer(source):
        if match[1]:
            yield _MARK.sub("", match[1])
