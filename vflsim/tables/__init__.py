"""Tables of numbers and words, and their forms: for terminals, Markdown, LaTeX, HTML, CSV and JSON."""

from vflsim.tables.table import Cell, DataTable

__all__ = ["Cell", "DataTable"]
