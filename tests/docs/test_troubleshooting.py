"""The messages that docs/howto/troubleshooting.md explains are those of the sources."""

import ast
import builtins
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import ucxstore
from tests.docs.blocks import ROOT

PAGE = ROOT / "docs/howto/troubleshooting.md"
_VARIES = "…"
_HEADING = re.compile(r"^### `(.*)`$", re.MULTILINE)
_CLASSES = re.compile(r"\*\(?(\w+(?:Error|Warning)(?:, \w+)*)\)?\*")
# What is raised about a source at a server, which clients get as a StorageError.
_AT_SOURCES = {"TimeoutError"}
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


def sections(page: str) -> Iterator[tuple[str, set[str]]]:
    """Yield each message that a page explains, and the exceptions that it names for it."""
    _, *parts = _HEADING.split(page)
    for message, text in zip(parts[::2], parts[1::2], strict=True):
        yield message, {name for found in _CLASSES.findall(text) for name in found.split(", ")}


@cache
def raised() -> list[tuple[str, str]]:
    """Return the texts that exceptions are made with in Python, and the names of their classes."""
    found = []
    for path in sorted(Path(ROOT / "ucxstore").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(func=ast.Name(id=name)) if name.endswith("Error"):
                    found.append(("\n".join(of_python(ast.unparse(node))), name))
    return found


def wrong_classes(message: str, named: set[str], made: list[tuple[str, str]]) -> set[str]:
    """Return the classes that a message is raised with, if none of them is named."""
    classes = {name for text, name in made if not gone(message, text)} - _AT_SOURCES
    return set() if classes & named else classes


def gone(message: str, texts: str) -> list[str]:
    """Return the parts of a message that no text has."""
    parts = (part.strip(" ,:(") for part in message.split(_VARIES))
    return [part for part in parts if len(part) > 3 and part not in texts]


@pytest.mark.parametrize("message", quoted(PAGE.read_text()))
def test_a_message_that_is_explained_exists(message: str) -> None:
    assert gone(message, messages()) == []


@pytest.mark.parametrize(("message", "named"), list(sections(PAGE.read_text())))
def test_the_exception_of_a_message_is_named(message: str, named: set[str]) -> None:
    """Where the message is made with the exception; those of C++ and of functions are not seen."""
    assert all(hasattr(ucxstore, name) or hasattr(builtins, name) for name in named)
    assert wrong_classes(message, named, raised()) == set()


def test_a_wrong_class_is_noticed() -> None:
    page = "### `no room for …`\n\n*(StorageError, OSError)* Text.\n\n### `b`\n\nAn *OSError*.\n"
    (message, named), (_, other) = sections(page)
    assert (named, other) == ({"StorageError", "OSError"}, {"OSError"})
    assert wrong_classes(message, named, [("no room for …", "ValueError")]) == {"ValueError"}
    assert wrong_classes(message, named, [("no room for …", "OSError")]) == set()


def test_each_message_stands_once() -> None:
    found = quoted(PAGE.read_text())
    assert found
    assert len(set(found)) == len(found)


def test_a_message_that_is_gone_is_noticed() -> None:
    texts = "\n".join(of_python('raise ValueError(f"no room for {name!r} "\n    "at the server")'))
    assert gone("no room for … at the server", texts) == []
    assert gone("no place for … at the server", texts) == ["no place for"]
    assert "at the server" in "\n".join(of_cpp('throw Failed("not\\n"\n  " at the server");'))
