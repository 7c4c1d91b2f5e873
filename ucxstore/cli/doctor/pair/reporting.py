"""The text and the JSON that ``ucxstore doctor --pair`` prints to report. No I/O."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ucxstore.base.showing import printable, size_text, text_columns
from ucxstore.cli.doctor.pair.sides import Side
from ucxstore.cli.doctor.pair.trials import MIDDLE, Trial, TrialStep

BEGIN = "---- what to report: copy from here ----"
END = "---- to here ----"

# Letters of a failure in the text; JSON has all.
_MOST_LETTERS = 600


@dataclass(frozen=True, kw_only=True)
class PairReport:
    """All that was found.

    Parameters
    ----------
    here, there : Side
    same_machine : bool
        Whether both are one machine, so that no network was measured.
    trials : sequence of (Trial, list of TrialStep)
    seconds : float
        How long it took.
    """

    here: Side
    there: Side
    same_machine: bool
    trials: Sequence[tuple[Trial, Sequence[TrialStep]]]
    seconds: float

    @property
    def failed(self) -> bool:
        """Whether any step has failed."""
        return any(step.state == "failed" for _, steps in self.trials for step in steps)


def step_text(step: TrialStep) -> str:
    """Return the outcome of a step in a few words."""
    if step.state != "ok":
        words = printable(step.what)
        return f"{step.state}: {words}" if words else step.state
    return f"ok: {_figures_text(step)}"


def report_lines(report: PairReport) -> Iterator[str]:
    """Yield the lines to report."""
    yield BEGIN
    yield f"ucxstore doctor --pair, {report.seconds:.0f} s"
    if report.same_machine:
        yield "both hosts are one machine: this measures no network"
    for name, side in (("this host", report.here), ("other host", report.there)):
        yield ""
        yield f"{name}:"
        for line in side_lines(side):
            yield f"  {line}"
    yield ""
    yield from _table_lines(report)
    for trial, steps in report.trials:
        yield ""
        yield f"{_title(trial)}:"
        for line in _trial_lines(steps):
            yield f"  {line}"
    yield END


def side_lines(side: Side) -> Iterator[str]:
    """Yield the facts about a host."""
    yield ", ".join(f"{name} {version}" for name, version in side.versions.items())
    yield f"{side.kernel}, {side.processors} processors" + (
        ", in a container" if side.container else ""
    )
    yield f"UCX {side.ucx}" if side.ucx else "no UCX"
    if side.transports is not None:
        found = (f"{name}: {' '.join(on)}" for name, on in side.transports.items())
        yield printable(f"transports {'; '.join(found)}")
    limit = size_text(side.locked_memory) if side.locked_memory >= 0 else "unlimited"
    yield f"locked memory {limit}"
    for device in side.devices:
        yield printable(f"device {device}")
    for name, value in side.environment.items():
        yield printable(f"{name}={value}")


def report_json(report: PairReport) -> dict[str, Any]:
    """Return the report as an object for JSON."""
    return {
        "seconds": report.seconds,
        "same_machine": report.same_machine,
        "here": asdict(report.here),
        "there": asdict(report.there),
        "trials": [
            {**asdict(trial), "steps": [asdict(step) for step in steps]}
            for trial, steps in report.trials
        ],
    }


def hide(text: str, names: Collection[str], given: Collection[str], home: str) -> str:
    """Replace the names of hosts and the home folder in a text.

    Parameters
    ----------
    text : str
    names : collection of str
        Names of hosts, in full or short.
    given : collection of str
        Names that the user has given, which stay.
    home : str
        The folder that is written as ``~``.
    """
    hidden = {name for name in names if name and name not in given and name != "localhost"}
    for name in sorted(hidden, key=len, reverse=True):
        text = re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", "<host>", text)
    return text.replace(home, "~") if len(home) > 1 else text


def hide_in(found: Any, change: Callable[[str], str]) -> Any:
    """Change all texts in an object of JSON.

    Parameters
    ----------
    found : object
    change : callable
        Such as `hide`, with its other arguments.
    """
    if isinstance(found, str):
        return change(found)
    if isinstance(found, list):
        return [hide_in(each, change) for each in found]
    if isinstance(found, dict):
        return {name: hide_in(each, change) for name, each in found.items()}
    return found


def _title(trial: Trial) -> str:
    options = [f"network={trial.network}", f"TLS={trial.tls}" if trial.tls else ""]
    options.append(f"progress={trial.progress}")
    return f"{trial.name} ({', '.join(option for option in options if option)})"


def _trial_lines(steps: Sequence[TrialStep]) -> Iterator[str]:
    """Yield what the table does not have: the lanes, and the steps that did not go well."""
    well = [step for step in steps if step.state == "ok"]
    for step in well:
        if step.step in ("connect", "values"):
            yield f"{step.step}: {step_text(step)}"
    last: TrialStep | None = None
    for step in steps:
        is_repeat = last is not None and step.state == last.state == "not reached"
        if step.state != "ok" and not is_repeat:
            yield f"{step.step}: {_shortened(step_text(step))}"
        last = step
    if well:
        yield f"{len(well)} of {len(steps)} steps ok"


def _shortened(text: str) -> str:
    if len(text) <= _MOST_LETTERS:
        return text
    half = _MOST_LETTERS // 2
    return f"{text[:half]} ... {text[-half:]}"


# ---- figures ----


def _table_lines(report: PairReport) -> Iterator[str]:
    """Yield a table with a column for each way that was measured."""
    measured = [
        (trial, {step.step: step.figures for step in steps if step.state == "ok"})
        for trial, steps in report.trials
    ]
    measured = [(trial, figures) for trial, figures in measured if figures]
    if not measured:
        return
    rows = [["", *(trial.name for trial, _ in measured)]]
    for title, step, names in _ROWS:
        cells = [_cell(figures.get(step), names) for _, figures in measured]
        rows.append([title, *cells])
    yield from text_columns(rows, right=range(1, len(rows[0])))


# The title of a row, the step that it comes from, and the figures in it, with their formats.
_ROWS: tuple[tuple[str, str, tuple[tuple[str, str], ...]], ...] = (
    ("round trip, us", "connect", (("round_trip_us", ".0f"),)),
    ("set, GB/s: median, least", "set", (("median_gbs", ".3g"), ("least_gbs", ".3g"))),
    ("get, GB/s: median, least", "get", (("median_gbs", ".3g"), ("least_gbs", ".3g"))),
    (
        "set, CPU s/GB: here, there",
        "set",
        (("processor_s_per_gb_here", ".2f"), ("processor_s_per_gb_there", ".2f")),
    ),
    (
        "get, CPU s/GB: here, there",
        "get",
        (("processor_s_per_gb_here", ".2f"), ("processor_s_per_gb_there", ".2f")),
    ),
    (
        f"many of {MIDDLE >> 10} KiB, GB/s: set, get",
        "many",
        (("set_gbs", ".3g"), ("get_gbs", ".3g")),
    ),
    (
        "get of 4 KiB, us: p50, p99, worst",
        "small",
        (("p50_us", ".0f"), ("p99_us", ".0f"), ("worst_us", ".0f")),
    ),
    ("get into rows, GB/s: 4 KiB, 256 B", "strided", (("gbs_4096", ".3g"), ("gbs_256", ".3g"))),
    ("killed in a get: error after s", "kill in get", (("seconds", ".2f"),)),
    ("killed in a set: error after s", "kill in set", (("seconds", ".2f"),)),
)


def _cell(figures: Mapping[str, Any] | None, names: Sequence[tuple[str, str]]) -> str:
    if figures is None:
        return "-"
    return ", ".join(format(figures[name], form) for name, form in names)


def _figures_text(step: TrialStep) -> str:
    figures = step.figures
    match step.step:
        case "connect":
            lanes = printable(", ".join(figures["lanes"])) or "none"
            sums = ", with checksums" if figures["integrity"] else ""
            return f"lanes {lanes}{sums}; {figures['seconds']:.2f} s, then " + (
                f"{figures['round_trip_us']:.0f} us a round trip"
            )
        case "values":
            return (
                f"{figures['count']} values, up to {size_text(figures['largest'])}, have the same "
                "CRC-32 at both hosts"
            )
        case "set" | "get":
            return (
                f"{figures['median_gbs']:.3g} GB/s, at least {figures['least_gbs']:.3g}; "
                f"{figures['repeats']} times {size_text(figures['nbytes'])}; CPU "
                f"{figures['processor_s_per_gb_here']:.2f} s/GB here, "
                f"{figures['processor_s_per_gb_there']:.2f} there"
            )
        case "many":
            return (
                f"{figures['count']} values of {MIDDLE >> 10} KiB in a request: set "
                f"{figures['set_gbs']:.3g} GB/s, get {figures['get_gbs']:.3g} GB/s"
            )
        case "small":
            return (
                f"{figures['count']} gets of 4 KiB: median {figures['p50_us']:.0f} us, 99 % "
                f"within {figures['p99_us']:.0f} us, the worst {figures['worst_us']:.0f} us"
            )
        case "strided":
            return (
                f"{size_text(figures['nbytes'])} into rows with gaps: {figures['gbs_4096']:.3g} "
                f"GB/s in rows of 4 KiB, {figures['gbs_256']:.3g} in rows of 256 B; gaps are "
                "untouched, and zarr reads the array that it wrote"
            )
    return f"{figures['error']} after {figures['seconds']:.2f} s; a new server was used after it"
