"""What all parsers have in common, and what is made of them."""

import argparse
from pathlib import Path

import pytest

from tests.cli.command import run
from ucxstore import cli
from ucxstore.base.options import DEFAULT_TIMEOUT
from ucxstore.cli.common.parser import Parser, help_of, make_parser, takes_value
from ucxstore.cli.reference import reference

PARSERS = dict(cli.parsers())
ROOT = Path(__file__).parents[2]


def options(parser: Parser) -> list[argparse.Action]:
    return [action for action in parser._actions if action.option_strings]


def test_every_command_has_a_parser() -> None:
    assert {name.split()[0] for name in PARSERS} == set(cli.COMMANDS)
    assert all(parser.prog == f"ucxstore {name}" for name, parser in PARSERS.items())


@pytest.mark.parametrize("name", PARSERS)
def test_every_help_names_the_default_or_that_there_is_none(name: str) -> None:
    silent = [
        action.option_strings
        for action in options(PARSERS[name])
        if takes_value(action) and "default" not in help_of(action)
    ]
    assert silent == []


@pytest.mark.parametrize("name", PARSERS)
def test_every_argument_has_a_help_that_can_be_shown(name: str) -> None:
    parser = PARSERS[name]
    assert all(action.help for action in parser._actions)
    assert "usage: ucxstore" in parser.format_help()


def test_a_default_is_named_where_the_text_does_not() -> None:
    parser = make_parser("x", "X.")
    parser.add_argument("--number", type=int, default=3, help="a number")
    assert "a number (default: 3)" in parser.format_help()


def test_the_default_timeout_is_the_librarys() -> None:
    assert PARSERS["ls"].get_default("timeout") == DEFAULT_TIMEOUT


def test_the_reference_is_fresh() -> None:
    page = ROOT / "docs/reference/cli.md"
    hint = f"run: python -m ucxstore.cli.reference > {page.relative_to(ROOT)}"
    assert page.read_text() == reference(), hint


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sl"], "ucxstore: there is no command 'sl'; did you mean ls?; see 'ucxstore --help'"),
        (["docter"], "ucxstore: there is no command 'docter'; did you mean doctor?;"),
        (["xyzzy"], "ucxstore: there is no command 'xyzzy'; see 'ucxstore --help'"),
        (["--verison"], "ucxstore: there is no option --verison; did you mean --version?;"),
        (["ls", "--humna"], "ucxstore ls: there is no option --humna; did you mean --human?;"),
        (["cp", "--jbos=3", "a", "b"], "ucxstore cp: there is no option --jbos; did you mean --j"),
        (["ls"], "ADDRESS[/PREFIX]; see 'ucxstore ls --help'"),
        (["cluster", "forget", "--secret"], "did you mean --secret-file?; see 'ucxstore cluster f"),
        (["completion", "bahs"], "argument SHELL: 'bahs' is not a choice; did you mean bash?;"),
        (["completion", "tcsh"], "'tcsh' is not a choice; did you mean zsh?;"),
        (["completion", "cmd"], "'cmd' is not a choice (bash, zsh, fish); see"),
    ],
)
def test_a_misspelled_word_is_named_with_what_may_be_meant(
    arguments: list[str], message: str
) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert message in line


def test_what_follows_two_dashes_is_no_option() -> None:
    assert run("ls", "--", "--humna").stderr.startswith("ucxstore ls: invalid address '--humna'")


@pytest.mark.parametrize("name", ["ls", "du", "cp"])
def test_h_is_human_where_sizes_are_shown(name: str) -> None:
    (flags,) = (each.option_strings for each in options(PARSERS[name]) if each.dest == "human")
    assert {"-h", "--human"} <= set(flags)
    assert "-h is not --help here" in PARSERS[name].format_help().replace("\n" + " " * 24, " ")
    assert run(name, "--help").returncode == 0
