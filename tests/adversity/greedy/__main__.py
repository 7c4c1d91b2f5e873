"""``python -m tests.adversity.greedy --seconds 60``: greedy clients beside honest ones.

It prints, for each kind of greedy clients and for all together, what the honest ones noticed. That
is compared with what they notice of an idle server just before and just after, since the speed of a
shared machine changes within minutes. Where it is too much, the greedy ones are given a server of
their own on the same processors: what honest ones notice of that is the machine's doing, not the
server's.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.adversity.greedy.server import BESIDE, MEMORY
from tests.adversity.greedy.trial import MOST_RATIO, OPERATIONS, PLANES, Round, Trial

_MIB = 1 << 20

# Of the time for all kinds together, for each kind alone.
_PART_OF_TIME = 0.1
_LEAST_SECONDS = 2.0

# A p99, by that beside the same greedy clients of another server.
_MOST_OF_APART = 1.5

# Of what takes too long: one of many figures may do so by chance.
_TRIES = 3


def main() -> int:
    """Carry out the trial; return 1 if honest clients were slowed down, or a limit was passed."""
    parser = argparse.ArgumentParser(prog="python -m tests.adversity.greedy", description=__doc__)
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="for all kinds together; a tenth for each kind"
    )
    parser.add_argument("--plane", choices=PLANES, action="append", help="default: all")
    parser.add_argument("--kind", action="append", help="only this kind, for all of the time")
    parser.add_argument("--greedy", type=int, default=8, help="clients of each kind")
    parser.add_argument("--honest", type=int, default=4, help="honest clients")
    parser.add_argument(
        "--compete", action="store_true", help="all share the processors of this machine"
    )
    parser.add_argument(
        "--apart",
        action="store_true",
        help="on a busy machine, too, and with a server of the greedy ones' own for each kind",
    )
    arguments = parser.parse_args()
    clients = arguments.honest, arguments.greedy
    bad = False
    with tempfile.TemporaryDirectory() as folder:
        for plane in arguments.plane or PLANES:
            with Trial(plane, Path(folder), *clients, compete=arguments.compete) as trial:
                bad |= _carry_out(plane, trial, arguments)
    return int(bad)


def _carry_out(plane: str, trial: Trial, arguments: argparse.Namespace) -> bool:
    seconds, chosen = arguments.seconds, arguments.kind
    print(
        f"\nover {plane}: p50 and p99 of honest clients in ms; x: p99 by that of the idle server\n"
    )
    header = f"{'beside':26}" + "".join(f"{name:>17}{'':8}" for name in OPERATIONS)
    print(f"{header}{'memory':>8}{'group':>8}{'log':>8}  refused", flush=True)
    part = seconds if chosen else max(seconds * _PART_OF_TIME, _LEAST_SECONDS)
    before = trial.idle(part)
    _show(before, before)
    if arguments.apart:
        _show(trial.busy(part), before)
    bad = False
    names = [name for name in trial.plane.kinds if not chosen or name in chosen]
    rounds = [([name], part) for name in names]
    if not chosen:
        rounds.append((names, seconds))
    for kinds, time in rounds:
        for left in reversed(range(_TRIES)):
            found = trial.beside(kinds, time)
            if len(kinds) > 1:
                found.kind = "all together"
            after = trial.idle(time)
            idle = Round("idle", before.seen + after.seen)
            before = after
            _show(found, idle)
            slow = [name for name in OPERATIONS if found.ratio(name, idle) > MOST_RATIO]
            if slow or arguments.apart:
                apart = trial.apart(kinds, time)
                _show(apart, idle)
                slow = [name for name in slow if found.ratio(name, apart) > _MOST_OF_APART]
            bad |= _judge(found, [] if left else slow)
            if not slow:
                break
    return bad


def _judge(found: Round, slow: list[str]) -> bool:
    """Say what is more than it may be; return whether anything is."""
    wrong = [f"{name} took too long" for name in slow]
    for what, size in (("it had", found.memory), ("the kernel counted", found.counted or 0)):
        if size > MEMORY + BESIDE:
            wrong.append(f"{what} {size / _MIB:.0f} MiB of memory")
    if found.refused:
        wrong.append(f"refused {len(found.refused)} times, first: {found.refused[0]}")
    if not found.lives:
        wrong.append("the server has ended")
    for each in wrong:
        print(f"    {each}", flush=True)
    return bool(wrong)


def _show(found: Round, idle: Round) -> None:
    line = f"{found.kind:26}"
    for name in OPERATIONS:
        p50, p99 = found.times(name)
        ratio = f"{found.ratio(name, idle):.1f}x"
        line += f"{p50 * 1e3:8.2f}{p99 * 1e3:9.2f} {ratio:<7}"
    group = "" if found.counted is None else f"{found.counted / _MIB:.0f}"
    line += f"{found.memory / _MIB:8.0f}{group:>8}{found.log:8}  {len(found.refused)}"
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
