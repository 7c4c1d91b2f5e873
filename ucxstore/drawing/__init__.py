"""Charts as SVG, pages as HTML, tables as text: for all reports on copies and on speed."""
