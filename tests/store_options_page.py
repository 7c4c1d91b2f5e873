"""Make docs/reference/store-options.md of `UcxStore`: ``python -m tests.store_options_page``."""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

from griffe import Docstring, DocstringParameter, DocstringSectionKind

import ucxstore

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "reference/store-options.md"

_HEAD = """# Options of a store

<!-- Made by `python -m tests.store_options_page` of the signature and docstring of `UcxStore`. -->

Each option is a keyword of `UcxStore(address, ...)`. fsspec and zarr take them for a URL as
`storage_options={"timeout": 60}`; `deployed.store(...)` takes them, too. An address itself has no
options. A default `None` is explained by the meaning.

"""

_TABLE = """| option | default | meaning |
|---|---|---|
"""

_FOR_MEASUREMENTS = """
## For measurements

These are for benchmarks and for comparisons.

"""

_TAIL = """
## Where else they can be set

Two have a [variable](environment.md#for-clients) as their default: `local` has `UCXSTORE_LOCAL`,
and `select_pipeline` has `UCXSTORE_SELECT_PIPELINE`. Commands and URLs look for the secret in
`UCXSTORE_SECRET` and `UCXSTORE_SECRET_FILE`; `UcxStore(...)` does so by `secret=Secret.find()`.

[`UcxStore`](api/store.md) has the methods. [Options of a server](options.md) has the other side.
"""

_LINKED = re.compile(r"docs/([\w/-]+\.md)")


def page() -> str:
    """Return the page."""
    usual, others = _sections()
    for_measurements = [_TABLE, *map(_row, others)]
    return "".join([_HEAD, _TABLE, *map(_row, usual), _FOR_MEASUREMENTS, *for_measurements, _TAIL])


def _sections() -> Iterator[list[DocstringParameter]]:
    """Give the parameters of each section that are options."""
    for section in Docstring(str(inspect.getdoc(ucxstore.UcxStore))).parse("numpy", warnings=False):
        if section.kind in (
            DocstringSectionKind.parameters,
            DocstringSectionKind.other_parameters,
        ):
            yield [each for each in section.value if each.name != "address"]


def _row(option: DocstringParameter) -> str:
    default = inspect.signature(ucxstore.UcxStore).parameters[option.name].default
    shown = f'"{default}"' if isinstance(default, str) else repr(default)
    meaning = " ".join(option.description.split()).replace("``", "`")
    return f"| `{option.name}` | `{shown}` | {_LINKED.sub(_link, meaning)} |\n"


def _link(match: re.Match[str]) -> str:
    """Return a link to a page of docs/, by the title that it has."""
    title, _, _ = (DOCS / match[1]).read_text().partition("\n")
    return f"[{title.removeprefix('# ')}](../{match[1]})"


if __name__ == "__main__":
    PAGE.write_text(page())
