"""The copy counts of every store: ``python -m profiles``, or ``make copies``.

README.md here tells the method and where the results are. This package is not installed.
"""
