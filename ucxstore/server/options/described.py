"""`option`: a field of a dataclass that is an option of ``ucxstore serve``, with all about it.

`ServerOptions` and `CommandOptions` are made of such fields. The command line, the variables
``UCXSTORE_SERVE_*``, the configuration file and docs/reference/options.md are derived from them, so
a new option is added in one place.
"""

from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, Literal

from ucxstore.base.environment import SERVE_PREFIX

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
    check : callable or None
        Checks and normalises a value, given the name and the value.
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
    default: str = ""
    metavar: str = ""
    choices: tuple[str, ...] = ()
    short: str = ""
    is_argument: bool = False
    is_shown: bool = True
    check: Callable[[str, Any], Any] | None = None
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
        return value if self.check is None else self.check(self.name, value)

    def default_value(self) -> Any:
        """Return what holds if none is given; ``None`` if that depends on more than the option."""
        if self.initial is not None:
            return self.initial
        return self.stands_for() if callable(self.stands_for) else self.stands_for


def option(
    default: Any,
    help: str,
    form: Form = "text",
    *,
    check: Callable[[str, Any], object] | None = None,
    default_text: str = "",
    stands_for: Any = None,
    metavar: str = "",
    choices: tuple[str, ...] = (),
    short: str = "",
    is_argument: bool = False,
    is_shown: bool = True,
    group: str = "",
) -> Any:
    """Make a field that is an option.

    Parameters
    ----------
    default
        The default; a type makes a new object each time, such as ``dict``.
    check : callable, optional
        Checks and normalises a value, given the option's name and the value. It must accept its own
        result.
    default_text : str
        The default in words.
    stands_for
        What a default of ``None`` comes to; or a callable that returns it.
    help, form, metavar, choices, short, is_argument, is_shown, group
        See `Described`.
    """
    described = {
        "help": help,
        "form": form,
        "default": default_text,
        "metavar": metavar or _METAVARS.get(form, ""),
        "choices": choices,
        "short": short,
        "is_argument": is_argument,
        "is_shown": is_shown,
        "stands_for": stands_for,
        "group": group,
    }
    return _field(default, {_KEY: described, "check": check}, shown=is_shown)


def unlisted(default: Any, check: Callable[[str, Any], object]) -> Any:
    """Make a field with a check that is no option of the command."""
    return _field(default, {"check": check})


def described(cls: type[Any]) -> Iterator[Described]:
    """Yield the options among the fields of a dataclass, in their order."""
    for each in fields(cls):
        if _KEY in each.metadata:
            check = each.metadata["check"]
            yield Described(
                name=each.name, check=check, initial=_initial(each), **each.metadata[_KEY]
            )


def _initial(each: Field[Any]) -> Any:
    return each.default if each.default_factory is MISSING else each.default_factory()


def check_fields(options: Any) -> None:
    """Replace the fields of a frozen dataclass by what their checks make of them."""
    each: Field[Any]
    for each in fields(options):
        check = each.metadata.get("check")
        if check is not None:
            object.__setattr__(options, each.name, check(each.name, getattr(options, each.name)))


def _field(default: Any, metadata: dict[str, Any], *, shown: bool = True) -> Any:
    if isinstance(default, type):
        return field(default_factory=default, repr=shown, metadata=metadata)
    return field(default=default, repr=shown, metadata=metadata)


_METAVARS = {"size": "SIZE", "whole": "N", "seconds": "SECONDS", "pairs": "NAME=VALUE"}
