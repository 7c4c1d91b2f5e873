"""`option`: a field of a dataclass that is an option of ``ucxstore serve``, with all about it.

`ServerOptions` and `CommandOptions` are made of such fields. The command line, the variables
``UCXSTORE_SERVE_*``, the configuration file, docs/reference/options.md, and the keywords of
`Server` with their documentation are derived from them, so a new option is added in one place.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, Literal

from ucxstore.base.environment import SERVE_PREFIX
from ucxstore.base.options import parse_size
from ucxstore.server.options.checks import check_flag

type Check = Callable[[str, Any], object]

# How a value is written as text, and which values a configuration file takes:
# text; a size such as "4GiB", or a number of bytes; a whole number; a number of seconds, or a word;
# true or false; one of some words; several texts, with commas between them; a table of texts; and a
# level that is counted up, as by -vv.
type Form = Literal["text", "size", "whole", "seconds", "flag", "choice", "texts", "pairs", "count"]

_KEY = "ucxstore"


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """An option: its name, and what users are told about it.

    Parameters
    ----------
    name : str
        Of the field, and in configuration files.
    help : str
        One sentence, for the help text and the documentation.
    more : str
        What else the documentation of the keyword says.
    form : {"text", "size", "whole", "seconds", "flag", "choice", "texts", "pairs", "count"}
        How its value is written.
    default : str
        The default in words; empty for none.
    metavar : str
        What stands for the value in the help text.
    choices : tuple of str
        The words that it takes, if it takes no others.
    short : str
        A flag of one letter; empty for none.
    is_argument : bool
        Whether it is an argument of the command without a flag.
    is_shown : bool
        Whether its value may be shown; of a table that may not, the names are.
    is_listed : bool
        Whether it is an option of the command, too.
    for_measurements : mapping
        The values that are for benchmarks and comparisons, and what each does.
    check : callable or None
        Checks and normalises a value, given the name and the value; not called for ``None`` if that
        is the default.
    initial
        The value of the field if none is given.
    stands_for
        What that stands for, if it is ``None``; or a callable that returns it.
    group : str
        The title of the group in the help that begins with it; empty for one that goes on.
    """

    name: str
    help: str
    form: Form
    more: str = ""
    default: str = ""
    metavar: str = ""
    choices: tuple[str, ...] = ()
    short: str = ""
    is_argument: bool = False
    is_shown: bool = True
    is_listed: bool = True
    for_measurements: Mapping[str, str] = field(default_factory=dict)
    check: Check | None = None
    initial: Any = None
    stands_for: Any = None
    group: str = ""

    @property
    def flag(self) -> str:
        """The flag on the command line, or the name in capital letters."""
        return self.metavar if self.is_argument else f"--{self.name.replace('_', '-')}"

    @property
    def variable(self) -> str:
        """The environment variable."""
        return f"{SERVE_PREFIX}{self.name.upper()}"

    def normalize(self, value: Any) -> Any:
        """Check a value, and return it as the field has it.

        Raises
        ------
        ValueError, TypeError
            If it is not usable; the message starts with the name.
        """
        is_default = value is None and self.initial is None
        return value if self.check is None or is_default else self.check(self.name, value)

    @property
    def is_for_measurements(self) -> bool:
        """Whether it has no other value beside its default."""
        values = self.choices or (("yes", "no") if self.form == "flag" else ())
        return bool(values) and {*values} - {*self.for_measurements} == {self.default}

    def default_value(self) -> Any:
        """Return what holds if none is given; ``None`` if that depends on more than the option."""
        if self.initial is not None:
            return self.initial
        return self.stands_for() if callable(self.stands_for) else self.stands_for


def option(
    default: Any,
    help: str,
    more: str = "",
    *,
    form: Form | None = None,
    check: Check | None = None,
    default_text: str = "",
    stands_for: Any = None,
    **described: Any,
) -> Any:
    """Make a field that is an option.

    Parameters
    ----------
    default
        The default; a type makes a new object each time, such as ``dict``.
    help, more
        See `Described`.
    form : str, optional
        By default a choice if there are `choices`; else a flag, a whole number or seconds if
        `default` is one; and text otherwise.
    check : callable, optional
        Checks and normalises a value, given the option's name and the value. It must accept its own
        result. By default the check of the form.
    default_text : str, optional
        The default in words. By default `stands_for`, or else `default`.
    stands_for
        See `Described`.
    **described
        The others of `Described`.
    """
    if form is None:
        form = "choice" if "choices" in described else _FORMS.get(type(default), "text")
    check = check or _CHECKS.get(form)
    metadata = {
        "metavar": _METAVARS.get(form, ""),
        **described,
        "help": help,
        "more": more,
        "form": form,
        "check": check,
        "default": default_text or _in_words(default if stands_for is None else stands_for),
        "stands_for": stands_for,
    }
    how = {"repr": described.get("is_shown", True), "metadata": {_KEY: metadata}}
    if isinstance(default, type):
        return field(default_factory=default, **how)
    return field(default=default, **how)


def _in_words(default: Any) -> str:
    if default in (None, ()):
        return "none"
    if isinstance(default, bool):
        return "yes" if default else "no"
    return f"{default:g}" if isinstance(default, float) else str(default)


def described(cls: type[Any], *, unlisted: bool = False) -> Iterator[Described]:
    """Yield the options among the fields of a dataclass, in their order.

    Parameters
    ----------
    cls : type
    unlisted : bool
        Also those that are none of the command.
    """
    for each in fields(cls):
        found = Described(name=each.name, initial=_initial(each), **each.metadata[_KEY])
        if found.is_listed or unlisted:
            yield found


def _initial(each: Field[Any]) -> Any:
    return each.default if each.default_factory is MISSING else each.default_factory()


def check_fields(options: Any) -> None:
    """Replace the fields of a frozen dataclass by what their checks make of them."""
    for each in described(type(options), unlisted=True):
        object.__setattr__(options, each.name, each.normalize(getattr(options, each.name)))


_FORMS: dict[type, Form] = {bool: "flag", int: "whole", float: "seconds"}
_METAVARS = {"size": "SIZE", "whole": "N", "seconds": "SECONDS", "pairs": "NAME=VALUE"}
_CHECKS: dict[str, Check] = {"size": parse_size, "flag": check_flag}
