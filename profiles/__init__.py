"""The copy counts of every store: ``python -m profiles``, or ``make copies``.

README.md describes the method and has the way to the results. This package is not installed.
"""
