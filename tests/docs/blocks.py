"""The code blocks of the documentation's pages, and what the language of each one means.

A reader does this with a block, and so do the tests. They take the text that the site's button
copies, so it has no prompts:

============================  ==================================================================
```python                     run, from top to bottom of a section in one Python; ``await`` may
                              stand outside of functions, as in notebooks
```python title="in the same  the first of its section: it goes on in the Python of the section
Python"                       before. Others begin in a new one
```sh                         run by bash, in the same folder
```sh title="server"          started in a terminal of its own, and ended after the page
``` title="name.py"           saved under that name, whatever the language
```bash                       commands that a test machine cannot run, such as ``pip install``:
                              bash parses them, and ``ucxstore`` its own arguments
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

LANGUAGES = frozenset({"bash", "dockerfile", "ini", "json", "python", "sh", "text", "toml", "yaml"})

_TITLE = re.compile(r'title="([^"]*)"')
_OPERATOR = re.compile(r"[();<>|&]+$")
_PROMPT = re.compile(r"^(\$|>|>>>|\.\.\.) ", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A block of code: its language, title and text.

    ``line`` is the line of the page that its text begins at, and ``section`` how many headings of
    the second level stand above it.
    """

    language: str
    title: str
    text: str
    line: int
    section: int

    @property
    def is_server(self) -> bool:
        return self.language == "sh" and self.title.startswith("server")

    @property
    def is_output(self) -> bool:
        return self.language == "text" and self.title == "output"

    @property
    def goes_on(self) -> bool:
        return self.language == "python" and self.title == "in the same Python"

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


def of_page(page: Path) -> str:
    """Return how tests call a page."""
    return str(page.relative_to(ROOT))


def blocks_of(page: str) -> list[Block]:
    """Return the blocks of a page's text; indented ones have no language."""
    found = []
    section = 0
    for token in MarkdownIt().parse(page):
        if token.type == "heading_open" and token.tag == "h2":
            section += 1
        elif token.type in ("fence", "code_block"):
            language, _, attributes = token.info.partition(" ")
            title = _TITLE.search(attributes)
            line = token.map[0] + 1 + (token.type == "fence")
            found.append(Block(language, title[1] if title else "", token.content, line, section))
    return found


def ours_of(commands: str) -> Iterator[Sequence[str]]:
    """Find the calls of ``ucxstore`` in shell commands; yield the arguments of each."""
    for command in commands.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
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
        elif block.language == "bash":
            if prompt := _PROMPT.search(block.text):
                return f"the button would copy the prompt {prompt[0]!r}"
            done = subprocess.run(
                ["bash", "-n", "-c", block.text], capture_output=True, text=True, check=False
            )
            if done.returncode:
                return done.stderr
    except (ValueError, yaml.YAMLError, configparser.Error) as error:
        return str(error)
    return None
