"""``ucxstore serve``: run a server in the foreground until a signal ends it."""

import argparse
import logging
import os
from collections.abc import Sequence
from functools import partial
from typing import IO, Any, cast

from ucxstore.base import logs
from ucxstore.cli.common.command import SHORT_SECRET, is_short, leave, run
from ucxstore.cli.common.parser import Parser, make_parser
from ucxstore.cli.common.status import Status, UsageError
from ucxstore.cli.serve import show
from ucxstore.cli.serve.settings import CONFIG_VARIABLE, OPTIONS, Settings, gather
from ucxstore.server.options.command_options import CommandOptions
from ucxstore.server.options.described import Described
from ucxstore.server.options.server_options import ServerOptions
from ucxstore.server.process.log_file import LogFile

# The log levels without -v, with -v, and with -vv.
_LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG)


def main(argv: Sequence[str]) -> int:
    """Run ``ucxstore serve``; return the exit status."""
    parser = build_parser()
    given = vars(parser.parse_args(argv))
    shown, as_json = given.pop("show_config", False), given.pop("json", False)
    if as_json and not shown:
        parser.error("--json is for --show-config")

    def action() -> None:
        try:
            settings = gather(given, os.environ, given.pop("config", None))
            if shown and not as_json:
                print(show.as_text(settings))
            command, options = settings.command(), settings.server()
            if as_json:
                print(show.as_json(settings))
            elif not shown:
                if not command.location:
                    parser.error("the following arguments are required: LOCATION")
                _serve(command, options, settings)
        except (ValueError, TypeError) as error:
            raise UsageError(str(error)) from error

    status = run("serve", action)
    if status == Status.INTERRUPTED:
        # At once: threads of obstore that still ask a source fail in an interpreter that ends.
        leave(status)
    return status


def _serve(command: CommandOptions, options: ServerOptions, settings: Settings) -> None:
    from ucxstore.cli.serve import banner  # neither of them for --help
    from ucxstore.server.process.foreground import serve_command

    log = _configure_log(command)
    for line in show.given(settings):
        logs.server.debug("option %s", line, extra={"event": "option", "detail": line})
    if is_short(options.secret):
        logs.server.warning("%s", SHORT_SECRET)
    has_banner = command.banner and command.log_format == "text"
    describe = partial(banner.text, options, command) if has_banner else None
    serve_command(options, command, log=log, describe=describe)


def _configure_log(command: CommandOptions) -> LogFile | None:
    file = None if command.log_file is None else LogFile(command.log_file)
    level = _LEVELS[min(command.verbose, len(_LEVELS) - 1)]
    form: logs.Format = "json" if command.log_format == "json" else "text"
    logs.configure(level, form, cast("IO[str] | None", file))
    return file


def build_parser() -> Parser:
    """Make the parser: a flag for each option, and the command's own."""
    parser = make_parser(
        "serve",
        "Serve values until SIGTERM, Ctrl-C or the end of the terminal; requests in flight are "
        "finished. Each option can also be given by a variable UCXSTORE_SERVE_..., such as "
        "UCXSTORE_SERVE_BIND, and in a file. An argument overrides a variable, and a variable "
        "overrides the file.",
    )
    parser.argument_default = argparse.SUPPRESS  # the options have the defaults
    group: argparse._ActionsContainer = parser
    for option in OPTIONS.values():
        if option.group:
            group = parser.add_argument_group(option.group)
        _add(group, option)
    parser.add_argument(
        "--config",
        metavar="FILE",
        help=f"a TOML file of options, such as cache = '4GiB' (default: {CONFIG_VARIABLE}, or "
        "none)",
    )
    parser.add_argument(
        "--show-config",
        action="store_true",
        help="print all options, their values, and where each comes from; serve nothing",
    )
    parser.add_argument("--json", action="store_true", help="with --show-config: print JSON")
    return parser


def _add(group: argparse._ActionsContainer, option: Described) -> None:
    text = f"{option.help} (default: {option.default})" if option.default else option.help
    if not option.is_for_measurements:
        text += "".join(f"; {each} is for measurements" for each in option.for_measurements)
    how: dict[str, Any] = {"help": text.replace("%", "%%")}
    if option.is_argument:
        group.add_argument(option.name, nargs="?", metavar=option.metavar, **how)
        return
    if option.form == "flag":
        how["action"] = argparse.BooleanOptionalAction
    elif option.form == "count":
        how["action"] = "count"
    elif option.choices:
        how["choices"] = option.choices
    else:
        how["metavar"] = option.metavar
        if option.form in ("texts", "pairs"):
            how["action"] = "append"
    names = [option.flag, f"-{option.short}"] if option.short else [option.flag]
    group.add_argument(*names, dest=option.name, **how)
