"""Shrink a history that shows a violation to a short one, which a person can read."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.simulator.chances import Plan, Result, run
from tests.simulator.world import Machine

# For each smaller plan, delays are drawn so often: without an event, others come at other times.
_TRIES = 4


def shrink(plan: Plan, machine: Callable[[int], Machine]) -> tuple[Plan, Result]:
    """Return a plan with as little as possible that still shows a violation, and its history."""
    salt = 0
    shrunk = True
    while shrunk:
        shrunk = False
        for smaller in _smaller(plan):
            found = _find(smaller, machine)
            if found is not None:
                plan, salt, shrunk = smaller, found, True
                break
    return plan, run(plan, machine, salt=salt, trace=True)


def _find(plan: Plan, machine: Callable[[int], Machine]) -> int | None:
    """Return what delays to draw so that there is a violation."""
    for salt in range(_TRIES):
        if run(plan, machine, salt=salt).violation:
            return salt
    return None


def _smaller(plan: Plan) -> Iterator[Plan]:
    for number in range(len(plan.faults)):
        yield replace(plan, faults=plan.faults[:number] + plan.faults[number + 1 :])
    for number, operations in enumerate(plan.clients):
        if not operations:
            continue
        half = len(operations) // 2
        ways = [(), operations[:half], operations[half:]] if half else [()]
        ways += [operations[:at] + operations[at + 1 :] for at in range(len(operations))]
        for left in ways:
            clients = (*plan.clients[:number], left, *plan.clients[number + 1 :])
            yield replace(plan, clients=clients)
    if any(plan.starts):
        yield replace(plan, starts=(0,) * plan.servers)
    if set(plan.rates) != {1.0}:
        yield replace(plan, rates=(1.0,) * plan.servers)


def describe(plan: Plan, result: Result) -> str:
    """Return a history as text."""
    lines = [
        f"violation: {result.violation}",
        f"{plan.servers} servers, {plan.keys} keys, "
        f"{'a source with' if plan.conditional else 'a source without'} conditional writes, "
        f"{'one host' if plan.same_host else 'hosts apart'}",
        *(f"fault: {fault}" for fault in plan.faults),
        *(f"{time / 1e6:10.6f}  {text}" for time, text in result.trace),
    ]
    return "\n".join(lines)
