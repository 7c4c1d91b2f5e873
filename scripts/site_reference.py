"""What `make docs` does to docstrings and signatures, as an extension of griffe.

A reader of the site cannot look up a constant, nor open a file of the repository. So a default that
is a constant's name is shown as its value, and a page that a docstring names becomes a link to it.
"""

import ast
import re
from pathlib import Path
from typing import Any

from griffe import Expr, ExprName, Extension, Function, GriffeLoader, Object

ROOT = Path(__file__).parents[1]

# From the pages of the reference: they lie in docs/reference/api/.
_TO_DOCS = "../../"

_PAGE = re.compile(r"\bdocs/([\w/-]+)\.md\b")
_COMPUTED = (ast.Expression, ast.BinOp, ast.UnaryOp, ast.Constant, ast.operator, ast.unaryop)


class Reference(Extension):
    """Show the values of defaults, and links in place of the names of pages."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Link what a docstring names."""
        if obj.docstring is not None:
            obj.docstring.value = _PAGE.sub(_link, obj.docstring.value)

    def on_function(self, *, func: Function, loader: GriffeLoader, **_: Any) -> None:
        """Show the values of its defaults."""
        for parameter in func.parameters:
            if isinstance(parameter.default, ExprName):
                parameter.default = _value_of(parameter.default, loader)


def _link(match: re.Match[str]) -> str:
    """Return a link to a page, by the title that it has."""
    title, _, _ = (ROOT / match[0]).read_text().partition("\n")
    return f"[{title.removeprefix('# ')}]({_TO_DOCS}{match[1]}.md)"


def _value_of(name: ExprName, loader: GriffeLoader) -> str | Expr:
    """Return the value of a constant; the name of what is none, or not ours."""
    try:
        value = getattr(loader.modules_collection[name.canonical_path], "value", None)
    except KeyError:
        return name
    if value is None:  # a function, say
        return name
    try:
        nodes = ast.walk(ast.parse(str(value), mode="eval"))
        if all(isinstance(node, _COMPUTED) for node in nodes):
            return repr(eval(str(value), {"__builtins__": {}}))
    except SyntaxError:
        pass
    return value
