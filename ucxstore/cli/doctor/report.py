"""What ``ucxstore doctor`` prints: lines of text as it finds them, or JSON at the end."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from ucxstore.base.showing import printable, size_text
from ucxstore.base.ucx_library import UcxLibrary
from ucxstore.cli.doctor.advice import SHARED, Finding
from ucxstore.cli.doctor.machine import Machine
from ucxstore.cli.doctor.steps import Outcome, Visit


def machine_lines(library: UcxLibrary | None, machine: Machine) -> Iterator[str]:
    """Yield what was found of this machine."""
    if library is not None:
        yield line("UCX", f"{library.version} ({library.origin}: {library.path})")
    yield line("transports", _transports_text(machine))
    files = machine.open_files if machine.open_files >= 0 else "unlimited"
    yield line("limits", f"locked memory {_limit_text(machine.locked_memory)}, open files {files}")
    yield line("clock", machine.clock)
    if machine.container:
        yield line("container", "yes")
    for name, value in machine.environment.items():
        yield line("environment", f"{printable(name)}={printable(value)}")


def step_line(outcome: Outcome) -> str:
    """Return what has come of a step."""
    words = f": {printable(outcome.what)}" if outcome.what else ""
    return line(outcome.step, f"{outcome.state}{words}")


def finding_lines(findings: Sequence[Finding]) -> Iterator[str]:
    """Yield what to know, and what to do."""
    for finding in findings:
        yield f"{finding.level}: {printable(finding.what)}"
        if finding.change:
            yield f"    {finding.change}"


def as_json(
    library: UcxLibrary | None,
    machine: Machine,
    visits: Sequence[Visit],
    findings: Sequence[Finding],
) -> str:
    """Return all of it as one JSON object."""
    ucx: dict[str, Any] | None = None
    if library is not None:
        ucx = {"origin": library.origin, "version": library.version, "path": str(library.path)}
    found = {
        "ucx": ucx,
        "machine": asdict(machine),
        "servers": [
            {
                "address": visit.store.address,
                "steps": [asdict(outcome) for outcome in visit.outcomes],
                "ports": visit.ports and asdict(visit.ports),
                "way": visit.way and asdict(visit.way),
            }
            for visit in visits
        ],
        "findings": [asdict(finding) for finding in findings],
    }
    return json.dumps(found)


def line(name: str, words: str) -> str:
    """Return a line with its subject in front."""
    return f"{name:<13}{words}"


def _transports_text(machine: Machine) -> str:
    if machine.transports is None:
        return "unknown"
    return "; ".join(
        f"{name}: {' '.join(devices)}"
        for name, devices in machine.transports.items()
        if name not in SHARED and name != "self"
    )


def _limit_text(limit: int) -> str:
    return size_text(limit) if limit >= 0 else "unlimited"
