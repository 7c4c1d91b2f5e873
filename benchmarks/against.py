"""``python -m benchmarks.against OTHER``: compare this checkout with another one, pair by pair.

Each row is measured in both checkouts in turn, so that a machine whose speed drifts slows both.
A ratio above 1 says that this checkout is better. What is not ours, such as ``np.copyto``, is
compared, too: it shows how far ratios stray by chance.
"""

import argparse
import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.report import number
from benchmarks.rows import ROWS
from ucxstore.base.showing import text_columns

_HERE = Path(__file__).parents[1]
_RESULTS = Path("build/bench-partial.json")
# A row takes a minute or two; one that hangs is ended.
_SECONDS = 1200

# Units of figures that are better when they are larger. Times and amounts of memory are not.
_LARGER_IS_BETTER = ("GB/s", "x", "/s")


def main(argv: Sequence[str] | None = None) -> int:
    """Print the ratios; return 1 if one of ours is below the bound."""
    arguments = _make_parser().parse_args(argv)
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for name in arguments.only or list(ROWS):
        for pair in range(arguments.pairs):
            checkouts = [arguments.other.resolve(), _HERE]
            order = checkouts if pair % 2 == 0 else checkouts[::-1]
            results = {checkout: _measure(checkout, name, arguments.quick) for checkout in order}
            before, after = (results[checkout] for checkout in checkouts)
            for what, ratio in ratios(before, after):
                found[name, what].append(ratio)
        rows = [(what, *_cells(values)) for (row, what), values in found.items() if row == name]
        print(f"\n{name}")
        for line in text_columns([("", "median", "least", "most"), *rows]):
            print(f"    {line}", flush=True)
    slower = {key: values for key, values in found.items() if median(values) < arguments.bound}
    for (name, what), values in slower.items():
        print(f"BELOW {arguments.bound:g}: {name}: {what}: {', '.join(map(number, values))}")
    print(f"\n{len(slower)} of {len(found)} figures are below {arguments.bound:g}.")
    return 1 if slower else 0


def ratios(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Compare the times and figures of a row that both results have.

    Parameters
    ----------
    before, after : mapping
        A row of the file that the benchmarks write (`benchmarks.record`).

    Yields
    ------
    what : str
    ratio : float
        How many times as good the second one is.
    """
    times = after["times"].keys() & before["times"].keys()
    for what in (name for name in after["times"] if name in times):
        old, new = (median(result["times"][what]["seconds"]) for result in (before, after))
        yield what, old / new
    lines = {_key(line): line for line in before["lines"] if line["unit"] != "x"}
    for line in after["lines"]:
        other = lines.get(_key(line))
        # What has times was compared by them.
        if other is None or line["what"] in times or not (line["median"] and other["median"]):
            continue
        ratio = line["median"] / other["median"]
        yield " ".join(filter(None, _key(line))), ratio if _grows(line) else 1 / ratio


def _grows(line: Mapping[str, Any]) -> bool:
    if line["target"] is not None:
        return str(line["target"]).startswith(">=")
    return str(line["unit"]).endswith(_LARGER_IS_BETTER)


def _key(line: Mapping[str, Any]) -> tuple[str, str, str]:
    return line["what"], line["against"], line["unit"]


def _measure(checkout: Path, name: str, quick: bool) -> Mapping[str, Any]:
    command = [str(checkout / ".venv/bin/python"), "-m", "benchmarks", "--only", name]
    done = subprocess.run(
        [*command, *(["--quick"] if quick else [])],
        cwd=checkout,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    results = json.loads((checkout / _RESULTS).read_text()) if done.returncode == 0 else {}
    if not results.get("rows"):
        raise RuntimeError(f"{name} could not be measured in {checkout}:\n{done.stdout[-4000:]}")
    row: Mapping[str, Any] = results["rows"][0]
    return row


def _cells(values: Iterable[float]) -> tuple[str, str, str]:
    values = list(values)
    return number(median(values)), number(min(values)), number(max(values))


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.against",
        description="Compare this checkout with another one, which is built, too, pair by pair.",
        allow_abbrev=False,
    )
    parser.add_argument("other", type=Path, help="the checkout to compare with")
    parser.add_argument("--only", action="append", choices=list(ROWS), metavar="NAME")
    parser.add_argument("--pairs", type=int, default=3, help="of each row (default: 3)")
    parser.add_argument("--bound", type=float, default=0.97, help="(default: 0.97)")
    parser.add_argument("--quick", action="store_true", help="as of the benchmarks")
    return parser


if __name__ == "__main__":
    sys.exit(main())
