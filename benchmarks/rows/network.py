"""What TCP gives between two processes, and ucxstore beside it: docs/network.md."""

from pathlib import Path

from benchmarks.network import goals, plan, run
from benchmarks.result import Row
from benchmarks.scale import FULL, Scale


def measure(scale: Scale, folder: Path) -> Row:
    is_whole = scale == FULL
    record = run.measure(plan.FULL if is_whole else plan.QUICK, list(run.PARTS))
    page = run.publish(record, is_whole=is_whole)
    if record.errors:
        raise RuntimeError("; ".join(record.errors))
    return Row(
        name="network",
        title="what TCP gives between two processes",
        lines=goals.of(record),
        notes=[*record.skipped, *record.refused, f"all figures: {page}"],
    )
