"""``python -m tests.simulator --seeds 10000 --start 0``: random histories, or every small one.

A seed that shows a violation is printed, and shrunk: ``--seed 4711`` does that alone. ``--fault``
plants a known fault in the machine. ``--every`` tries all interleavings of small histories.
"""

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from tests.simulator import orders
from tests.simulator.chances import draw, member, run
from tests.simulator.faults import FAULTS
from tests.simulator.shrinking import describe, shrink
from tests.simulator.world import Machine

# Seeds that a process tries before it tells.
_BATCH = 200


def main() -> int:
    """Simulate; return 0 if nothing was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulator", description=__doc__)
    parser.add_argument("--seeds", type=int, help="how many (default: as many as there is time)")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--seed", type=int, help="show the history of one seed, shrunk if it is bad"
    )
    parser.add_argument("--whole", action="store_true", help="do not shrink it")
    parser.add_argument("--fault", choices=sorted(FAULTS), help="plant this one")
    parser.add_argument("--every", action="store_true", help="try all orders of small histories")
    parser.add_argument("--states", type=int, default=orders.STATES, help="of one, at most")
    arguments = parser.parse_args()
    machine = FAULTS[arguments.fault] if arguments.fault else member
    if arguments.seed is not None:
        return _show(arguments.seed, machine, whole=arguments.whole)
    if arguments.every:
        return orders.main(arguments.processes, arguments.states, arguments.fault)
    return _try_many(arguments)


def _show(seed: int, machine: Callable[[int], Machine], *, whole: bool) -> int:
    plan = draw(seed)
    result = run(plan, machine, trace=True)
    if result.violation and not whole:
        plan, result = shrink(plan, machine)
    print(describe(plan, result))
    return 1 if result.violation else 0


def _try_many(arguments: argparse.Namespace) -> int:
    begun = time.monotonic()
    end = None if arguments.seeds is None else arguments.start + arguments.seeds
    until = begun + (arguments.seconds if end is None else 1e9)
    counts: Counter[str] = Counter()
    bad: list[tuple[int, str]] = []
    lane = partial(_try_lane, fault=arguments.fault, until=until)
    size = _BATCH if end is None else max(1, min(_BATCH, arguments.seeds // arguments.processes))
    with ProcessPoolExecutor(arguments.processes) as pool:
        first = arguments.start
        while time.monotonic() < until and (end is None or first < end):
            starts = range(first, first + size * arguments.processes * 4, size)
            first = starts.stop
            ranges = [(one, one + size if end is None else min(one + size, end)) for one in starts]
            for found, some in pool.map(lane, ranges):
                counts += found
                bad += some
    seconds = time.monotonic() - begun
    print(
        f"{counts['seeds']} seeds, {counts['events']} events, {counts['hits']} hits, "
        f"{counts['hours'] / 3600:.0f} hours of simulated time in {seconds:.0f} s of "
        f"{arguments.processes} processes: {counts['seeds'] / seconds:.0f} seeds/s, "
        f"{counts['events'] / seconds:.0f} events/s; {counts['unsure']} too long to be sure; "
        f"{len(bad)} violations"
    )
    for seed, violation in sorted(bad)[:20]:
        print(f"seed {seed}: {violation}")
    return 1 if bad else 0


def _try_lane(
    seeds: tuple[int, int], *, fault: str | None, until: float
) -> tuple[Counter[str], list[tuple[int, str]]]:
    machine = FAULTS[fault] if fault else member
    counts: Counter[str] = Counter()
    bad = []
    for seed in range(*seeds):
        if time.monotonic() >= until:
            break
        result = run(draw(seed), machine)
        counts["seeds"] += 1
        counts["events"] += result.events
        counts["hits"] += result.hits
        counts["hours"] += int(result.seconds)
        counts["unsure"] += not result.sure
        if result.violation:
            bad.append((seed, result.violation))
    return counts, bad


if __name__ == "__main__":
    sys.exit(main())
