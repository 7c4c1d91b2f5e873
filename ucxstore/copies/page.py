"""Write the page of ``ucxstore copies --page``: a chart, and the figures below it."""

from collections.abc import Sequence
from html import escape

from ucxstore.copies.chart import Bar, Bars, draw
from ucxstore.copies.figures import (
    READ_NOTE,
    READ_TITLE,
    clean,
    figure,
    fixed_memory,
    name_culprits,
    pair,
    weight,
)
from ucxstore.copies.quick import Result

_TITLE = "Copies, counted"
_SHOWN = (("raw", "one"), ("zstd", "one"))  # codec and layout of the chart's reads
_WHAT = (
    f"{READ_NOTE} The array is one chunk of random numbers. Each bar is the larger of two figures, "
    "the peak and the total."
)
_STYLE = """
:root { color-scheme: light dark; }
body { margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 56rem; }
body { background: #ffffff; color: #1a1f26; font: 1rem/1.5 system-ui, sans-serif; }
h1 { margin: 0 0 0.5rem; font-size: 1.8rem; line-height: 1.2; }
p { max-width: 46rem; }
.muted { color: #56606c; font-size: 0.9rem; }
.left { color: #a8122a; font-weight: 600; }
details { padding: 0.75rem 0; border-top: 1px solid #d5dae0; }
summary { cursor: pointer; font-size: 1.2rem; font-weight: 600; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.85rem; }
th, td { padding: 0.25rem 0.75rem 0.25rem 0; border-bottom: 1px solid #d5dae0; }
th, td { text-align: start; vertical-align: top; white-space: nowrap; }
@media (prefers-color-scheme: dark) {
  body { background: #14181d; color: #e8ebef; }
  .muted { color: #a3adb8; }
  .left { color: #ff8a97; }
  details, th, td { border-color: #3a434d; }
}
"""


def render_page(results: Sequence[Result], *, left: int = 0, note: str = "") -> str:
    """Return the page as HTML.

    Parameters
    ----------
    results : sequence of Result
        Those so far.
    left : int
        The transfers that are still to come.
    note : str
        What to keep in mind about the figures.
    """
    missing = "1 transfer is" if left == 1 else f"{left} transfers are"
    unfinished = f"The run has not ended: {missing} missing." if left else ""
    fixed = fixed_memory((one.row.name, one.counts) for one in results if one.counts is not None)
    body = [
        f"<h1>{_TITLE}</h1>",
        *([f'<p class="left">{unfinished}</p>'] if unfinished else []),
        *_chart(results),
        *(f'<p class="muted">{_text(text)}</p>' for text in (fixed, note) if text),
        *(_details(direction, results) for direction in ("read", "write")),
    ]
    head = [
        '<meta charset="utf-8"/>',
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>',
        f"<title>{_TITLE}</title>",
        f"<style>{_STYLE}</style>",
    ]
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en"><head>',
            *head,
            "</head><body>",
            *body,
            "</body></html>\n",
        ]
    )


def _chart(results: Sequence[Result]) -> list[str]:
    found: dict[tuple[str, str], dict[tuple[str, str], float]] = {}
    for one in results:
        kind = (one.workload.codec, one.workload.layout)
        if one.workload.direction == "read" and kind in _SHOWN and one.counts is not None:
            found.setdefault((one.row.name, one.row.pipeline), {})[kind] = weight(one.counts)
    whole = [(row, values) for row, values in found.items() if len(values) == len(_SHOWN)]
    rows = [
        Bars(
            f"{store} ({pipeline})",
            [Bar(values[kind], f"{figure(values[kind])} {kind[0]}") for kind in _SHOWN],
            pipeline == "zero-copy",
        )
        for (store, pipeline), values in sorted(whole, key=lambda one: sum(one[1].values()))
    ]
    if not rows:
        return []
    chart = draw(READ_TITLE, _WHAT, rows, unit="array")
    return [chart, f'<p class="muted">{_WHAT}</p>']


def _details(direction: str, results: Sequence[Result]) -> str:
    header = ("store", "pipeline", "codec", "layout", "peak / total", "culprit")
    rows = [
        (
            one.row.name,
            one.row.pipeline,
            one.workload.codec,
            one.workload.layout,
            *_figures(one),
        )
        for one in results
        if one.workload.direction == direction
    ]
    cells = [
        "<tr>" + "".join(f'<th scope="col">{name}</th>' for name in header) + "</tr>",
        *("<tr>" + "".join(f"<td>{_text(cell)}</td>" for cell in row) + "</tr>" for row in rows),
    ]
    table = "\n".join(cells)
    return (
        f"<details><summary>{direction}: all figures, in multiples of the array</summary>"
        f'<div class="scroll" role="region" tabindex="0" aria-label="{direction}">'
        f"<table>{table}</table></div></details>"
    )


def _figures(result: Result) -> tuple[str, str]:
    counts = result.counts
    if counts is None:
        return "failed", result.error
    culprits = name_culprits(counts, result.workload.nbytes)
    return pair(counts.peak_extra, counts.total), culprits


def _text(text: str) -> str:
    return escape(clean(text))
