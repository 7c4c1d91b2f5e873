"""``python -m benchmarks.network``: measure, and write the record and the page."""

import argparse
import sys
from collections.abc import Sequence

from benchmarks import report
from benchmarks.network import goals, run
from benchmarks.network.links import NETWORKS
from benchmarks.network.plan import FULL, QUICK


def main(argv: Sequence[str] | None = None) -> int:
    """Measure; return 1 if something that can be measured here was not."""
    arguments = _make_parser().parse_args(argv)
    if arguments.draw:
        run.draw_again()
        return 0
    given = QUICK if arguments.quick else FULL
    record = run.measure(given, arguments.only or list(run.PARTS), arguments.network)
    is_whole = not (arguments.quick or arguments.only or arguments.network)
    target = run.publish(record, is_whole=is_whole)
    print(f"\n{report.markdown_lines(goals.of(record))}\n")
    for kind in ("skipped", "refused", "errors"):
        for text in getattr(record, kind):
            print(f"{kind.upper()}: {text}")
    print(f"The page is {target}.")
    return 1 if record.errors else 0


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.network",
        description="Measure what TCP gives between two processes, and ucxstore beside.",
        allow_abbrev=False,
    )
    parser.add_argument("--quick", action="store_true", help="smoke test: few, short windows")
    parser.add_argument(
        "--draw", action="store_true", help="only write the page of the last whole run"
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=list(run.PARTS),
        metavar="PART",
        help=f"only this part (repeatable): {', '.join(run.PARTS)}",
    )
    parser.add_argument(
        "--network",
        action="append",
        choices=list(NETWORKS),
        metavar="NAME",
        help=f"only on this network (repeatable): {', '.join(NETWORKS)}",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
