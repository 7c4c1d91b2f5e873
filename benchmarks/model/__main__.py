"""``python -m benchmarks.model``: print the tables of docs/scale.md, or put them there."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.model import page
from benchmarks.model.constants import NETWORKS, Figures
from benchmarks.model.load import Load


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _make_parser().parse_args(argv)
    try:
        figures = Figures.of_record(arguments.record) if arguments.record else Figures.read()
        load = Load(nodes=arguments.nodes, exponent=arguments.exponent, requests=arguments.requests)
        if arguments.write and (load, arguments.network) != (Load(), "tcp"):
            raise ValueError("--write: the page has the tables of the default load")
        made = page.tables(figures, arguments.network, load)
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(made)
    if arguments.write:
        figures.write()
        page.FILE.write_text(page.put_in(page.FILE.read_text(), made))
    return 0


def _make_parser() -> argparse.ArgumentParser:
    given = Load()
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.model",
        description="Simulate many nodes, each with a worker and a server.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--from",
        dest="record",
        type=Path,
        metavar="FILE",
        help="a record of make bench with the row costs (default: the constants of the page)",
    )
    parser.add_argument("--network", choices=NETWORKS, default="tcp", help="(default: tcp)")
    parser.add_argument("--nodes", type=int, default=given.nodes, help="(default: %(default)s)")
    parser.add_argument(
        "--exponent",
        type=float,
        default=given.exponent,
        help="of Zipf's law, for the remedies (default: %(default)s)",
    )
    parser.add_argument(
        "--requests", type=int, default=given.requests, help="of a node (default: %(default)s)"
    )
    parser.add_argument(
        "--write", action="store_true", help="put the constants and the tables into the page"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
