"""Show the settings of ``ucxstore serve``, and where each comes from. Secrets are not shown."""

import json
from typing import Any

from ucxstore.cli.serve.settings import Setting, Settings
from ucxstore.cli.text import columns, printable
from ucxstore.secret import ENVIRONMENT_SECRET
from ucxstore.server.sources.locations import hide_password
from ucxstore.showing import terminal_width

_HIDDEN = "***"


def as_text(settings: Settings) -> str:
    """Return a table, as wide as the terminal at the most: option, value, where it comes from."""
    rows = [("option", "value", "from")]
    for name, each in settings.by_name.items():
        rows.append((name, printable(_text(_value(each))), printable(each.origin)))
    return "\n".join(columns(rows, width=terminal_width()))


def as_json(settings: Settings) -> str:
    """Return a JSON object: for each option its value and where it comes from."""
    found = {
        name: {"value": _value(each), "from": each.origin}
        for name, each in settings.by_name.items()
    }
    return json.dumps(found, indent=2)


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
