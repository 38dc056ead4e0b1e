"""One HTML page about results: the answer, the figures and the tables, to read offline and to mail."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def write_report(folders: Sequence[Path | str], out: Path | str | None = None) -> Path:
    """Write the report of one or several results folders; return its path.

    ``out`` defaults to ``report.html`` in the only folder, or else in the working directory. Raises ResultsError.
    """
    from vflsim.report.page import page
    from vflsim.results.write import REPORT, write_file

    place = Path(out) if out is not None else Path(folders[0] if len(folders) == 1 else ".") / REPORT
    return write_file(place, page(folders))
