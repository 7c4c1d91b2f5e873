"""Show the settings of ``ucxstore serve``, and where each comes from. Secrets are not shown."""

import json
import math
from collections.abc import Iterator
from typing import Any

from ucxstore.base.address import HostPort
from ucxstore.base.secret import ENVIRONMENT_SECRET
from ucxstore.base.showing import printable, terminal_width, text_columns
from ucxstore.cli.serve.settings import Setting, Settings
from ucxstore.server.locations import hide_password

_HIDDEN = "***"


def as_text(settings: Settings) -> str:
    """Return a table, as wide as the terminal at the most: option, value, where it comes from."""
    rows = [("option", "value", "from")]
    for name, each in settings.by_name.items():
        rows.append((name, printable(_text(_value(each))), printable(each.origin)))
    return "\n".join(text_columns(rows, width=terminal_width()))


def given(settings: Settings) -> Iterator[str]:
    """Yield a line for each option that is given: ``"threads = 3 (from argument)"``."""
    for name, each in settings.by_name.items():
        if each.is_given:
            yield printable(f"{name} = {_text(_value(each))} (from {each.origin})")


def as_json(settings: Settings) -> str:
    """Return a JSON object: for each option its value, and where it comes from.

    Values are as the server takes them: sizes are numbers of bytes, times of seconds, and ``null``
    is what is not set. With a default come the words for it.

    Raises
    ------
    ValueError, TypeError
        If a value is not usable; the message starts with its option.
    """
    found: dict[str, dict[str, Any]] = {}
    for name, each in settings.by_name.items():
        found[name] = {"value": _plain(each), "from": each.origin}
        if not each.is_given:
            found[name]["default"] = each.option.default
    return json.dumps(found, indent=2, allow_nan=False)


def _plain(setting: Setting) -> Any:
    """Return what may be shown of a value, as JSON has it."""
    if not setting.is_given:
        value = setting.option.default_value()
    elif setting.origin == ENVIRONMENT_SECRET or not setting.option.is_shown:
        return _value(setting)
    else:
        value = setting.option.normalize(_value(setting))
    if isinstance(value, HostPort):
        return str(value)
    if value == math.inf:
        return "forever"
    return None if value == "" else value


def _value(setting: Setting) -> Any:
    """Return what may be shown of a value; for a default, the words for it."""
    if setting.origin == ENVIRONMENT_SECRET:
        return _HIDDEN
    if not setting.is_given:
        return setting.option.default
    if setting.option.name == "location":
        return hide_password(setting.value)
    if not setting.option.is_shown:
        return dict.fromkeys(setting.value, _HIDDEN)
    return setting.value


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return " ".join(f"{name}={one}" for name, one in value.items())
    return str(value) or "-"
