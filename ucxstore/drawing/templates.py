"""Fill the templates of this folder; text is escaped."""

import unicodedata
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup


def render(template: str, **values: Any) -> Markup:
    """Fill a template.

    Parameters
    ----------
    template : str
        A file of this folder.
    **values
        What it names. A `Markup` is inserted as it is; other text is cleaned and escaped.
    """
    return Markup(_environment().get_template(template).render(values))


def clean(text: str) -> str:
    """Return text as one line without control characters.

    A terminal may obey them, and XML does not allow them.
    """
    one_line = " ".join(text.split())
    return "".join("\N{REPLACEMENT CHARACTER}" if _is_control(c) else c for c in one_line)


@cache
def _environment() -> Environment:
    return Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        finalize=lambda value: clean(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def _is_control(character: str) -> bool:
    return unicodedata.category(character).startswith("C")
