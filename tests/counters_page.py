"""Make the table of counters in docs/howto/monitor.md: ``python -m tests.counters_page``."""

from pathlib import Path

from ucxstore.base.stats import Figure, figures

PAGE = Path(__file__).parents[1] / "docs/howto/monitor.md"

_BEGIN = "<!-- Made by `python -m tests.counters_page` of the fields of `ServerStats`. -->\n"
_END = "<!-- end -->\n"


def page() -> str:
    """Return the page with the table as it should be."""
    before, _, rest = PAGE.read_text().partition(_BEGIN)
    _, _, after = rest.partition(_END)
    head = "\n| metric | field of `stats()` | kind | meaning |\n|---|---|---|---|\n"
    return "".join([before, _BEGIN, head, *map(_row, figures()), "\n", _END, after])


def _row(figure: Figure) -> str:
    total = "_total" if figure.kind == "counter" else ""
    metric = f"`ucxstore_{figure.metric}{total}`" if figure.metric else "by reason, see below"
    return f"| {metric} | `{figure.name}` | {figure.kind} | {figure.text} |\n"


if __name__ == "__main__":
    PAGE.write_text(page())
