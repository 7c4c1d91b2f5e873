"""The two commands of a pair: ``ucxstore doctor --pair`` and ``ucxstore doctor --listen``."""

import argparse
import json
import shlex
import socket
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from ucxstore.base.address import HostPort
from ucxstore.base.errors import AddressError
from ucxstore.base.grants import is_grant
from ucxstore.base.options import ClientOptions
from ucxstore.base.secret import Secret
from ucxstore.cli.common.status import Status, UsageError
from ucxstore.cli.doctor import report
from ucxstore.cli.doctor.advice import Finding, advise_on_machine
from ucxstore.cli.doctor.machine import examine_machine, find_ucx
from ucxstore.cli.doctor.pair import DEFAULT_PORT
from ucxstore.cli.doctor.pair.listening import Listening
from ucxstore.cli.doctor.pair.pairing import BUDGET, Pair, greet, meet, part, run_trial
from ucxstore.cli.doctor.pair.reporting import (
    PairReport,
    hide,
    hide_in,
    report_json,
    report_lines,
    side_lines,
    step_text,
)
from ucxstore.cli.doctor.pair.sides import Side, examine_side
from ucxstore.cli.doctor.pair.trials import Trial, TrialStep, plan_trials

type _Say = Callable[[str], object]

_NO_SECRET = (
    "both hosts need the same secret, and there is none: 'ucxstore secret --output pair-secret' "
    "makes one; copy that file to the other host, and give both --secret-file pair-secret"
)


def pair(arguments: argparse.Namespace, options: ClientOptions) -> int:
    """Measure the ways to another host, and print what to report; return the exit status."""
    other = _parse_place("--pair", arguments.pair)
    secret = _check_secret(options)
    say = partial(_say, as_json=arguments.json)
    here, findings = _examine(say, "this host")
    say(f"on {other.host}, run this if it does not run there yet:")
    say(f"    {_command('--listen', str(other.port), arguments)}")
    found = meet(other, secret, options.timeout, arguments.wait)
    begin = time.monotonic()
    there, same_machine = greet(found)
    for line in side_lines(there):
        say(report.line("other host", line))
    trials = _run_trials(found, plan_trials(here, there), begin + BUDGET, say)
    part(found)
    whole = PairReport(
        here=here,
        there=there,
        same_machine=same_machine,
        trials=trials,
        seconds=time.monotonic() - begin,
    )
    _print_report(whole, findings, _hiding(other.host), as_json=arguments.json)
    return Status.FAILED if whole.failed else Status.DONE


def listen(arguments: argparse.Namespace, options: ClientOptions) -> int:
    """Help another host to measure; return the exit status."""
    bind = _parse_place("--listen", arguments.listen)
    secret = _check_secret(options)
    if is_grant(secret.reveal()):
        raise UsageError("--listen: a grant cannot serve; give the secret itself")
    say = partial(_say, as_json=arguments.json)
    here, findings = _examine(say, "this host")
    for finding in report.finding_lines(findings):
        say(finding)
    with Listening(bind, secret, here, say, _hiding(bind.host)) as listening:
        place = place_for_others(HostPort(bind.host, listening.port), socket.gethostname())
        say(f"listening at {HostPort(bind.host, listening.port)}; on the other host, run")
        say(f"    {_command('--pair', place, arguments)}")
        listening.serve(arguments.wait)
    say("done")
    return Status.DONE


def place_for_others(bound: HostPort, name: str) -> str:
    """Return where another host reaches this one.

    Parameters
    ----------
    bound : HostPort
        Where this one listens.
    name : str
        This host's name, which need not be one that an address can have.
    """
    if bound.host not in ("0.0.0.0", "::"):
        return str(bound)
    try:
        return str(HostPort(name, bound.port))
    except AddressError:
        return f"THIS-HOST:{bound.port}"


def _run_trials(
    found: Pair, trials: list[Trial], until: float, say: _Say
) -> list[tuple[Trial, list[TrialStep]]]:
    """Go through the trials, which share the time that is left."""

    def tell(step: TrialStep) -> None:
        say(report.line(step.step, step_text(step)))

    outcomes = []
    for number, trial in enumerate(trials):
        say("")
        say(report.line("way", trial.name))
        now = time.monotonic()
        share = (until - now) / (len(trials) - number)
        outcomes.append((trial, run_trial(found, trial, now + share, tell)))
    return outcomes


def _examine(say: _Say, name: str) -> tuple[Side, list[Finding]]:
    """Examine this host, and print the facts."""
    library, missing = find_ucx()
    machine = examine_machine(library)
    side = examine_side(library, machine)
    for line in side_lines(side):
        say(report.line(name, line))
    return side, advise_on_machine(library, machine, missing)


def _print_report(
    whole: PairReport, findings: list[Finding], hiding: Callable[[str], str], *, as_json: bool
) -> None:
    if as_json:
        found: dict[str, Any] = report_json(whole)
        found["findings"] = [asdict(finding) for finding in findings]
        print(json.dumps(hide_in(found, hiding)))
        return
    print()
    for line in report.finding_lines(findings):
        print(line)
    print()
    for line in report_lines(whole):
        print(hiding(line))


def _hiding(given: str) -> Callable[[str], str]:
    """Return a function that takes the names of this host out of a text, but for a given one."""
    name = socket.gethostname()
    names = {name, name.partition(".")[0]}
    return partial(hide, names=names, given={given}, home=str(Path.home()))


def _parse_place(flag: str, text: str) -> HostPort:
    """Parse a host with a port, or without one."""
    is_bare = ":" not in text or text.endswith("]")
    try:
        return HostPort.parse(f"{text}:{DEFAULT_PORT}" if is_bare else text)
    except AddressError as error:
        raise UsageError(f"{flag}: {error}") from error


def _check_secret(options: ClientOptions) -> Secret:
    if options.secret is None:
        raise UsageError(_NO_SECRET)
    return options.secret


def _command(flag: str, place: str, arguments: argparse.Namespace) -> str:
    """Return the command for the other host."""
    words = ["ucxstore", "doctor", flag]
    if flag == "--pair":
        words.append(place.removesuffix(f":{DEFAULT_PORT}"))
    elif place != str(DEFAULT_PORT):
        words.append(f"0.0.0.0:{place}")
    if arguments.secret_file is not None:
        words += ["--secret-file", Path(arguments.secret_file).name]
    return shlex.join(words)


def _say(line: str, *, as_json: bool) -> None:
    if not as_json:  # which has all at the end
        print(line, flush=True)
