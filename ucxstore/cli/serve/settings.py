"""Gather the options of ``ucxstore serve``: arguments, then the environment, then a file."""

import shlex
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ucxstore.base.environment import SERVE_PREFIX, check_variables
from ucxstore.base.secret import ENVIRONMENT_FILE, ENVIRONMENT_SECRET, Secret
from ucxstore.base.showing import one_line, suggest
from ucxstore.cli.common.parser import parse_pairs
from ucxstore.server.locations import hide_password
from ucxstore.server.options.command_options import CommandOptions
from ucxstore.server.options.described import Described, described
from ucxstore.server.options.server_options import ServerOptions

# All options, by their names.
OPTIONS = {each.name: each for of in (CommandOptions, ServerOptions) for each in described(of)}

# The variable that names the file. It is no option, as no file has it.
CONFIG_VARIABLE = f"{SERVE_PREFIX}CONFIG"

ARGUMENT = "argument"
DEFAULT = "default"

_FLAGS = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}

# What a file may have for each form, and what to call that.
_TYPES: Mapping[str, tuple[tuple[type, ...], str]] = {
    "text": ((str,), "a text"),
    "choice": ((str,), "a text"),
    "size": ((str, int), "a size such as '4GiB', or a number of bytes,"),
    "whole": ((int,), "a whole number"),
    "count": ((int,), "a whole number"),
    "seconds": ((float, int, str), "a number of seconds"),
    "flag": ((bool,), "true or false"),
    "texts": ((str, list), "a text or a list of texts"),
    "pairs": ((dict,), "a table"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The value of an option, and where it comes from.

    Parameters
    ----------
    option : Described
    value
        As `ServerOptions` or `CommandOptions` takes it; ``None`` for the default.
    origin : str
        ``"argument"``, the name of a variable, that of a file, or ``"default"``.
    """

    option: Described
    value: Any = None
    origin: str = DEFAULT

    @property
    def is_given(self) -> bool:
        """Whether the default does not hold."""
        return self.origin != DEFAULT


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of all options, by their names."""

    by_name: Mapping[str, Setting]

    def server(self) -> ServerOptions:
        """Make the options of the server.

        Raises
        ------
        ValueError, TypeError
            If one is not usable; the message names it, and where it comes from.
        """
        command = self.command()
        given = self._given(ServerOptions)
        return self._made(lambda: ServerOptions(secret=_find_secret(command), **given))

    def command(self) -> CommandOptions:
        """Make the options of the command."""
        given = self._given(CommandOptions)
        return self._made(lambda: CommandOptions(**given))

    def _given(self, of: type[Any]) -> dict[str, Any]:
        settings = (self.by_name[each.name] for each in described(of))
        return {each.option.name: each.value for each in settings if each.is_given}

    def _made[T](self, make: Callable[[], T]) -> T:
        try:
            return make()
        except (ValueError, TypeError) as error:
            named = self.by_name.get(str(error).partition(":")[0])
            if named is None or named.origin in (ARGUMENT, DEFAULT):
                raise
            raise type(error)(f"{error} (from {named.origin})") from None


def _find_secret(command: CommandOptions) -> Secret | None:
    try:
        return command.find_secret()
    except OSError as error:
        text = one_line(error)
        raise ValueError(f"secret_file: {text}" if error.strerror else text) from error


def gather(
    arguments: Mapping[str, Any], environment: Mapping[str, str], config: str | None
) -> Settings:
    """Gather the settings: an argument before a variable, a variable before the file.

    Parameters
    ----------
    arguments : mapping
        What was given on the command line, by the names of options, as text.
    environment : mapping
        The environment.
    config : str or None
        The file to read; ``None`` for the one that the environment names, if it does.

    Raises
    ------
    ValueError
        If a value or the file cannot be read, or the file or the environment has an unknown name.
    """
    check_variables(
        environment, {CONFIG_VARIABLE, *(option.variable for option in OPTIONS.values())}
    )
    file = config if config is not None else environment.get(CONFIG_VARIABLE) or None
    in_file = {} if file is None else _read(file)
    settings = {}
    for name, option in OPTIONS.items():
        if name in arguments:
            value = _from_arguments(option, arguments[name])
            settings[name] = Setting(option=option, value=value, origin=ARGUMENT)
        elif text := environment.get(option.variable):
            value = _from_text(option, option.variable, text)
            settings[name] = Setting(option=option, value=value, origin=option.variable)
        elif name in in_file:
            settings[name] = Setting(option=option, value=in_file[name], origin=str(file))
        else:
            settings[name] = _of_clients(option, environment)
    return Settings(settings)


def _of_clients(option: Described, environment: Mapping[str, str]) -> Setting:
    """Return the default; a secret may be that of the clients."""
    if option.name == "secret_file":
        if environment.get(ENVIRONMENT_SECRET):
            return Setting(option=option, origin=ENVIRONMENT_SECRET)
        if value := environment.get(ENVIRONMENT_FILE):
            return Setting(option=option, value=value, origin=ENVIRONMENT_FILE)
    return Setting(option=option)


def _from_arguments(option: Described, given: Any) -> Any:
    if option.form == "pairs":
        return parse_pairs(option.flag, given, is_shown=option.is_shown)
    if option.form == "texts":
        return ",".join(given)
    return _from_text(option, option.flag, given) if isinstance(given, str) else given


def _from_text(option: Described, where: str, text: str) -> Any:
    """Read a value from an argument or a variable. The options check what it means."""
    match option.form:
        case "whole" | "count":
            try:
                return int(text)
            except ValueError:
                raise ValueError(f"{where}: {text!r} is not a whole number") from None
        case "flag":
            if text.lower() not in _FLAGS:
                raise ValueError(f"{where}: {text!r} is neither yes nor no")
            return _FLAGS[text.lower()]
        case "seconds":
            try:
                return float(text)
            except ValueError:
                return text  # a word, or a mistake that the option's check names
        case "pairs":
            try:
                return parse_pairs(where, shlex.split(text), is_shown=option.is_shown)
            except ValueError as error:
                if str(error).startswith(where):
                    raise
                raise ValueError(f"{where}: {error}") from None
        case "choice":
            return _chosen(option, where, text)
    return text


def _chosen(option: Described, where: str, word: str) -> str:
    if word not in option.choices:
        raise ValueError(f"{where}: {word!r} is none of {', '.join(map(repr, option.choices))}")
    return word


def _read(file: str) -> dict[str, Any]:
    """Read a configuration file, and check its names and types."""
    try:
        found = tomllib.loads(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{file}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{file}: {error}") from None
    for name, value in found.items():
        where = f"{file}: {name}"
        if name == "secret":
            raise ValueError(
                f"{where}: give the secret a file of its own, and name it: secret_file"
            )
        if name not in OPTIONS:
            raise ValueError(f"{where}: there is no such option{suggest(name, OPTIONS)}")
        option = OPTIONS[name]
        types, called = _TYPES[option.form]
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            but = f", not {_shown(value)}" if option.is_shown else ""
            raise ValueError(f"{where}: {called} is needed{but}")
        if option.form == "choice":
            _chosen(option, where, str(value))
        if option.form == "size" and option.check is not None:
            option.check(where, str(value))  # as a variable: a number alone may lack its unit
    return found


def _shown(value: Any) -> str:
    return "a table" if isinstance(value, dict) else hide_password(repr(value))
