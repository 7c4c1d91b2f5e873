"""Make docs/reference/options.md of the options themselves: ``python -m tests.options_page``."""

from collections.abc import Iterator
from pathlib import Path

from ucxstore.server.options.command_options import CommandOptions
from ucxstore.server.options.described import Described, described
from ucxstore.server.options.server_options import ServerOptions

PAGE = Path(__file__).parents[1] / "docs/reference/options.md"

_FORMS = {
    "text": "text",
    "size": "size",
    "whole": "number",
    "seconds": "seconds",
    "flag": "yes or no",
    "choice": "word",
    "texts": "texts, with commas between them",
    "pairs": "table",
    "count": "number",
}

_HEAD = """# Options of a server

<!-- Made by `python -m tests.options_page` of the help texts of the options. -->

Each option of `ucxstore serve` can be given in three ways. The first that is there holds:

1. an argument, such as `--cache 4GiB`;
2. a variable of the environment: `UCXSTORE_SERVE_` and the name in capital letters, such as
   `UCXSTORE_SERVE_CACHE=4GiB`;
3. a key of a TOML file, which `--config` or `UCXSTORE_SERVE_CONFIG` names: `cache = "4GiB"`.

`ucxstore serve --show-config` prints all of them, and where each comes from.
[Configure a server](../howto/configure.md) has examples. [Options of a store](store-options.md) has
the clients' side.

| a value that is | in an argument or variable | in a file |
|---|---|---|
| text, word | as it is | `"text"` |
| size | `4GiB`, `1000B`; 65536 and more also without a unit | `"4GiB"`, or a number of bytes |
| number, seconds | `8`, `2.5` | `8`, `2.5` |
| yes or no | `--local`, `--no-local`; `1`, `yes`, `on`; `0`, `no`, `off` | `true`, `false` |
| table | `--ucx TLS=tcp --ucx A=1`; `TLS=tcp A=1`, quoted as in a shell | `ucx = {TLS = "tcp"}` |
"""

_SERVER = """
## The server

`Server(...)` and `Server.spawn(...)` take these as keywords, too, and a keyword `secret` in place
of `--secret-file`. `ucxstore.dask.deploy(...)` takes them but for `bind`, `secret`, `insecure`,
`shared`, `cache`, `scratch_limit` and `socket`, which it sets itself; its `memory` is what each
worker's server may hold (2GiB). [What only measurements want](#for-measurements) is at the end.

"""

_COMMAND = """
## The command

These are options of `ucxstore serve` alone.

"""


_FOR_MEASUREMENTS = """
## For measurements

These are for benchmarks and for comparisons.

| name | argument | meaning |
|---|---|---|
"""


def page() -> str:
    """Return the page."""
    tables = [_HEAD, _SERVER, _table(ServerOptions), _COMMAND, _table(CommandOptions)]
    return "".join([*tables, _FOR_MEASUREMENTS, *_for_measurements()])


def _table(of: type) -> str:
    lines = ["| name | argument | value | default | meaning |", "|---|---|---|---|---|"]
    lines += [_row(each) for each in described(of) if not each.is_for_measurements]
    return "\n".join(lines) + "\n"


def _for_measurements() -> Iterator[str]:
    for option in described(ServerOptions):
        for value, what in option.for_measurements.items():
            argument = option.flag if option.form == "flag" else f"{option.flag} {value}"
            yield f"| `{option.name}` | `{argument}` | {what.replace('``', '`')} |\n"


def _row(option: Described) -> str:
    flag = option.flag
    if option.form == "flag":
        flag = f"--no-{flag[2:]}" if option.default == "yes" else flag
    if option.short:
        flag += f"`, `-{option.short}"
    value = _FORMS[option.form]
    if option.choices:
        words = [each for each in option.choices if each not in option.for_measurements]
        value = ", ".join(f"`{each}`" for each in words)
    cells = (f"`{option.name}`", f"`{flag}`", value, option.default or "-", option.help)
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    PAGE.write_text(page())
