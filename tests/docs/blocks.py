"""The code blocks of the documentation's pages, and what the language of each one means.

A reader does this with a block, and so do the tests:

============================  ==================================================================
```python                     run, from top to bottom of the page in one namespace; ``await`` may
                              stand outside of functions, as in notebooks
```sh                         run by bash, in the same folder
```sh title="server"          started in a terminal of its own, and ended after the page
``` title="name.py"           saved under that name, whatever the language
```console                    its lines after ``$`` are commands that a test machine cannot run
```toml, yaml, json, ini      parsed
```text title="output"        what the block before it prints: these lines, in this order. Numbers
                              and white space may differ, and ``...`` stands for any lines
```text                       other output, and diagrams
============================  ==================================================================
"""

import configparser
import json
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]

LANGUAGES = frozenset(
    {"console", "dockerfile", "ini", "json", "python", "sh", "text", "toml", "yaml"}
)

_TITLE = re.compile(r'title="([^"]*)"')
_OPERATOR = re.compile(r"[();<>|&]+$")
_PROMPT = "$ "


@dataclass(frozen=True)
class Block:
    """A block of code: its language, title and text, and the line that its text begins at."""

    language: str
    title: str
    text: str
    line: int

    @property
    def is_server(self) -> bool:
        return self.language == "sh" and self.title.startswith("server")

    @property
    def is_output(self) -> bool:
        return self.language == "text" and self.title == "output"

    @property
    def file(self) -> str | None:
        """The name that a reader saves this block under."""
        return self.title if re.fullmatch(r"[\w-]+(\.[\w-]+)+", self.title) else None

    @property
    def runs(self) -> bool:
        return self.language in ("python", "sh") and self.file is None


def pages() -> list[Path]:
    """Return the pages that users and contributors read."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md"))]


def blocks_of(page: str) -> list[Block]:
    """Return the blocks of a page's text; indented ones have no language."""
    found = []
    for token in MarkdownIt().parse(page):
        if token.type in ("fence", "code_block"):
            language, _, attributes = token.info.partition(" ")
            title = _TITLE.search(attributes)
            line = token.map[0] + 1 + (token.type == "fence")
            found.append(Block(language, title[1] if title else "", token.content, line))
    return found


def commands_of(block: Block) -> list[str]:
    """Return the commands of a console block, each with the lines that continue it."""
    commands: list[str] = []
    continued = False
    for line in block.text.splitlines():
        if line.startswith(_PROMPT):
            commands.append(line.removeprefix(_PROMPT))
        elif continued:
            commands[-1] += "\n" + line.removeprefix("> ")
        else:
            continued = False
            continue
        continued = line.endswith("\\")
    return commands


def ours_of(command: str) -> Iterator[Sequence[str]]:
    """Find the calls of ``ucxstore`` in a shell command; yield the arguments of each."""
    lexer = shlex.shlex(command.replace("\\\n", " "), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    found: list[str] | None = None
    for word in lexer:
        if _OPERATOR.match(word):
            if found is not None:
                yield found
            found = None
        elif found is not None:
            found.append(word)
        elif word == "ucxstore" or word.endswith("/ucxstore"):
            found = []
    if found is not None:
        yield found


def syntax_error(block: Block) -> str | None:
    """Tell what is wrong with a block's syntax."""
    try:
        if block.language == "toml":
            tomllib.loads(block.text)
        elif block.language == "yaml":
            list(yaml.safe_load_all(block.text))
        elif block.language == "json":
            json.loads(block.text)
        elif block.language == "ini":
            configparser.ConfigParser(strict=False, interpolation=None).read_string(block.text)
        elif block.language == "console":
            for command in commands_of(block):
                done = subprocess.run(
                    ["bash", "-n", "-c", command], capture_output=True, text=True, check=False
                )
                if done.returncode:
                    return done.stderr
    except (ValueError, yaml.YAMLError, configparser.Error) as error:
        return str(error)
    return None
