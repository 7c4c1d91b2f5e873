"""The table of what a client may take, compared with that of the core."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]

_ROW = re.compile(
    r'\{"(\w+)",\s*"([^"]+)",\s*(true|false),\s*(?:true|false)'
    r",\s*[^,]+,\s*([^,]+),\s*([^,]+),\s*([^}]+)\}"
)


def shown(number: str, is_bytes: bool) -> str:
    value, _, power = number.replace("'", "").replace("ull", "").partition(" << ")
    if not is_bytes:
        return f"{int(value):,}"
    return f"{value} {({'10': 'KiB', '20': 'MiB', '30': 'GiB'})[power]}"


def test_limits_of_an_account() -> None:
    code = (ROOT / "native/sessions/account.hpp").read_text()
    page = (ROOT / "docs/requests.md").read_text()
    rows = _ROW.findall(code)
    assert len(rows) == int(re.findall(r"kHeldKinds = (\d+)", code)[0])
    for name, what, is_bytes, *limits in rows:
        cells = [shown(limit, is_bytes == "true") for limit in limits]
        assert f"| `{name}`: {what} | {' | '.join(cells)} |" in page
