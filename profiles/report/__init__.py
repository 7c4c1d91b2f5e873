"""The report of a run: tables, and an HTML page with charts."""
