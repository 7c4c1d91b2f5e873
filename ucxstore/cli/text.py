"""Sizes and names as a terminal shows them."""

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def size_text(nbytes: float) -> str:
    """Write a number of bytes with three digits or so: ``"1.5 MB"``."""
    value, unit = float(nbytes), 0
    while value >= 999.5 and unit < len(_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    digits = 0 if unit == 0 or value >= 99.95 else 1
    return f"{value:.{digits}f} {_UNITS[unit]}"


def printable(name: str) -> str:
    """Escape what would do more to a terminal than show: keys are whatever somebody has sent."""
    if name.isprintable():
        return name
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode() for one in name
    )
