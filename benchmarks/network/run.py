"""Run the parts of the measurement on each network; write the record, and the page."""

import resource
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks import machine
from benchmarks.network import page
from benchmarks.network import record as records
from benchmarks.network.links import LOOPBACK, Link, linked, why_not
from benchmarks.network.measuring import (
    measure_crowds,
    measure_many_clients,
    measure_one_client,
    measure_settings,
)
from benchmarks.network.plan import Plan
from benchmarks.network.programs import ROOT
from benchmarks.network.record import Record

PARTS: dict[str, Callable[[Link, Plan, Record], None]] = {
    "one-client": measure_one_client,
    "many-clients": measure_many_clients,
    "ucx-settings": measure_settings,
    "crowds": measure_crowds,
}
# These need no other network.
_ON_LOOPBACK = {"ucx-settings", "crowds"}

RECORD = Path(__file__).with_name("results.json")
PAGE = ROOT / "docs" / "network.md"
IMAGES = ROOT / "docs" / "images"
_PARTIAL = ROOT / "build" / "network"

_PATIENCE_SECONDS = 15.0


def measure(given: Plan, parts: Sequence[str], networks: Sequence[str] | None = None) -> Record:
    """Measure some parts, on some networks of the plan or on all."""
    _allow_descriptors()
    record = Record(machine.describe(), quick=given.at_once < 500)
    for name in networks or given.networks:
        if (reason := why_not(name)) is not None:
            record.skipped.append(f"{name}: {reason}")
            continue
        with linked(name) as link:
            for part in parts:
                if name == LOOPBACK or part not in _ON_LOOPBACK:
                    _run_part(part, link, given, record)
    return record


def _run_part(part: str, link: Link, given: Plan, record: Record) -> None:
    what = f"{link.name}, {part}"
    patience = 0.0 if record.quick else _PATIENCE_SECONDS
    record.load[what] = machine.wait_until_idle(patience)
    print(f"  {what}: machine {record.load[what]}", flush=True)
    begun = time.monotonic()
    PARTS[part](link, given, record)
    record.seconds[what] = time.monotonic() - begun
    print(f"  {what}: {record.seconds[what]:.0f} s", flush=True)


def publish(record: Record, *, is_whole: bool) -> Path:
    """Write the record, and the page with its pictures; of a part, into ``build``.

    Returns
    -------
    Path
        The page.
    """
    results, target, images = RECORD, PAGE, IMAGES
    if not is_whole:
        results, target, images = (_PARTIAL / path.name for path in (RECORD, PAGE, IMAGES))
    records.write(record, results)
    draw(records.read(results), target, images)  # as it is written: rounded
    return target


def draw_again() -> None:
    """Write the page of the last whole run."""
    draw(records.read(RECORD), PAGE, IMAGES)


def draw(record: Record, target: Path, images: Path) -> None:
    """Write the page of a record, and its pictures."""
    images.mkdir(parents=True, exist_ok=True)
    target.write_text(page.write(record))
    for name, picture in page.pictures(record).items():
        (images / name).write_text(picture)


def _allow_descriptors() -> None:
    """Let servers have as many descriptors as they may."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
