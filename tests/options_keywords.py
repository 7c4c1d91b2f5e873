"""Make ucxstore/server/options/keywords.py of the options of a server.

`make stubs` does so by ``python -m tests.options_keywords FILE``; `make lint` checks the file.
"""

import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

from ucxstore.server.options.described import Described, described
from ucxstore.server.options.server_options import ServerOptions

_HEAD = '''"""The keywords of `Server`, for type checkers and readers.

`make stubs` makes this file of the fields of `ServerOptions`.
"""

import os
from collections.abc import Mapping
from typing import TypedDict

from ucxstore.base.options import UcxValue
from ucxstore.base.secret import Secret


class WorkerKeywords(TypedDict, total=False):
    """The options of a server whose `bind` and `memory` others choose: see `ServerKeywords`."""

'''

_ALL = '''

class ServerKeywords(WorkerKeywords, total=False):
    """The options of a server as users give them, all but `bind`. ``None`` is the default.

'''

_OPTIONS = {each.name: each for each in described(ServerOptions, unlisted=True)}
_TYPES = {each.name: each.type for each in fields(ServerOptions)}


def module() -> str:
    """Return the module."""
    keys = {name: f"    {name}: {_type(option)}\n" for name, option in _OPTIONS.items()}
    del keys["bind"]
    memory = keys.pop("memory")
    return "".join([_HEAD, *keys.values(), _ALL, *_sections(), '    """\n\n', memory])


def _type(option: Described) -> str:
    """Return the type of what users give: what the option's check takes."""
    found = _TYPES[option.name]
    if option.check is not None:
        [_, value, *_] = inspect.signature(option.check).parameters.values()
        found = value.annotation
    text = found.__name__ if isinstance(found, type) else str(found)
    if option.initial is None and "None" not in text:
        text += " | None"
    return re.sub(r"\b(collections\.abc|ucxstore(\.\w+)+)\.", "", text)


def _sections() -> Iterator[str]:
    yield "    Parameters\n    ----------\n"
    for name, option in _OPTIONS.items():
        if name != "bind" and not option.is_for_measurements:
            words = [f'"{each}"' for each in option.choices if each not in option.for_measurements]
            either = f"{{{', '.join(words)}}}" + " or None" * (option.initial is None)
            first = f"{option.help[0].upper()}{option.help[1:]} (default: {option.default})."
            yield f"    {name} : {either if words else _type(option)}\n"
            yield _wrapped(f"{first} {option.more}")
    yield "\n    Other Parameters\n    ----------------\n"
    for name, option in _OPTIONS.items():
        for value, what in option.for_measurements.items():
            yield f"    {name} : {'True' if option.form == 'flag' else f'{{"{value}"}}'}\n"
            yield _wrapped(f"For measurements: {what}. {option.more * option.is_for_measurements}")


def _wrapped(text: str) -> str:
    filled = textwrap.fill(
        " ".join(text.split()),
        width=100,
        initial_indent=" " * 8,
        subsequent_indent=" " * 8,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return f"{filled}\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(module())
