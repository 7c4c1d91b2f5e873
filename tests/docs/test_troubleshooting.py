"""The messages that docs/howto/troubleshooting.md explains are those of the sources."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT

PAGE = ROOT / "docs/howto/troubleshooting.md"
_VARIES = "…"
_HEADING = re.compile(r"^### `(.*)`$", re.MULTILINE)
_CPP_TEXT = re.compile(r'"((?:[^"\\\n]|\\.)*)"(?:\s*"((?:[^"\\\n]|\\.)*)")*')


def quoted(page: str) -> list[str]:
    return _HEADING.findall(page)


def of_python(source: str) -> Iterator[str]:
    """Find the texts of a Python module, with what differs left out."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield "".join(
                str(part.value) if isinstance(part, ast.Constant) else _VARIES
                for part in node.values
            )


def of_cpp(source: str) -> Iterator[str]:
    """Find the texts of a C++ file; those that stand side by side are one."""
    for match in _CPP_TEXT.finditer(source):
        yield "".join(re.findall(r'"((?:[^"\\\n]|\\.)*)"', match[0]))


@cache
def messages() -> str:
    found: list[str] = []
    for path in sorted(Path(ROOT / "ucxstore").rglob("*.py")):
        found += of_python(path.read_text())
    for path in sorted(Path(ROOT / "native").rglob("*.?pp")):
        found += of_cpp(path.read_text())
    return "\n".join(found)


def gone(message: str, texts: str) -> list[str]:
    """Return the parts of a message that no text has."""
    parts = (part.strip(" ,:(") for part in message.split(_VARIES))
    return [part for part in parts if len(part) > 3 and part not in texts]


@pytest.mark.parametrize("message", quoted(PAGE.read_text()))
def test_a_message_that_is_explained_exists(message: str) -> None:
    assert gone(message, messages()) == []


def test_each_message_stands_once() -> None:
    found = quoted(PAGE.read_text())
    assert found
    assert len(set(found)) == len(found)


def test_a_message_that_is_gone_is_noticed() -> None:
    texts = "\n".join(of_python('raise ValueError(f"no room for {name!r} "\n    "at the server")'))
    assert gone("no room for … at the server", texts) == []
    assert gone("no place for … at the server", texts) == ["no place for"]
    assert "at the server" in "\n".join(of_cpp('throw Failed("not\\n"\n  " at the server");'))
