"""``python -m benchmarks``: run the measurements, print them and record them."""

import argparse
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path

from benchmarks import chart, cores, machine, record, report
from benchmarks.result import Row
from benchmarks.rows import ROWS
from benchmarks.scale import FULL, QUICK, Scale

# Git ignores it. The arrays are there, too, since the temporary folder may be in memory.
_BUILD = Path("build")


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _make_parser().parse_args(argv)
    scale = QUICK if arguments.quick else FULL
    names = arguments.only or list(ROWS)
    described = machine.describe()
    for name, value in described.items():
        print(f"{name}: {value}")
    if arguments.quick:
        print("QUICK: a smoke test, whose figures mean nothing")

    rows, loads, errors = _measure(names, scale)
    is_partial = arguments.quick or bool(arguments.only)
    path = _BUILD / ("bench-partial.json" if is_partial else "bench.json")
    record.write(path, scale, described, rows, loads, errors)

    if not is_partial and not errors:
        chart.IMAGE.write_text(chart.draw(chart.of_rows(rows)))
        print(f"\nThe chart is in {chart.IMAGE}; {chart.TABLE} must have the same figures.")

    print(f"\n{report.markdown(rows)}\n\nEvery time that was taken is in {path}.")
    busy = [name for name, load in loads.items() if load.startswith("NOT IDLE")]
    if busy and not arguments.quick:
        print(f"THE MACHINE WAS NOT IDLE for {', '.join(busy)}: measure again.")
    return _conclude(report.misses(rows), errors, check=arguments.check)


def _measure(
    names: Sequence[str], scale: Scale
) -> tuple[list[Row], dict[str, str], dict[str, str]]:
    """Run the measurements, also after one has failed."""
    rows: list[Row] = []
    loads: dict[str, str] = {}
    errors: dict[str, str] = {}
    _BUILD.mkdir(exist_ok=True)
    for name in names:
        with tempfile.TemporaryDirectory(prefix="bench-", dir=_BUILD) as folder:
            loads[name] = f"{machine.wait_until_idle(scale.patience_seconds)}; {cores.distance()}"
            try:
                row = ROWS[name](scale, Path(folder).resolve())
            except Exception as error:
                traceback.print_exc()
                errors[name] = f"{type(error).__name__}: {error}"
            else:
                rows.append(row)
                loads[name] += f" before, {cores.distance()} after"
                report.print_row(row, loads[name])
    return rows, loads, errors


def _conclude(misses: Sequence[str], errors: dict[str, str], *, check: bool) -> int:
    for name, error in errors.items():
        print(f"FAILED: {name}: {error}")
    for miss in misses:
        print(f"MISSED: {miss}")
    if not misses and not errors:
        print("Every target was reached.")
    return 1 if errors or (check and misses) else 0


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure ucxstore and other ways to move the same bytes, in one run.",
        allow_abbrev=False,
    )
    parser.add_argument("--quick", action="store_true", help="smoke test: small, few repetitions")
    parser.add_argument(
        "--only",
        action="append",
        choices=list(ROWS),
        metavar="NAME",
        help=f"only this measurement (repeatable): {', '.join(ROWS)}",
    )
    parser.add_argument("--check", action="store_true", help="exit with 1 if a target is missed")
    return parser


if __name__ == "__main__":
    sys.exit(main())
