"""One HTML page about results: the answer, the figures and the tables, to read offline and to mail."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vflsim.results.read import Results


def write_report(studies: Sequence[Results | Path | str], out: Path | str | None = None, brief: bool = False) -> Path:
    """Write the report of one or several results, or of their folders; return its path.

    ``out`` defaults to ``report.html`` in the only folder, or else in the working directory. Raises ResultsError.
    """
    from vflsim.report.page import page
    from vflsim.results.read import Results
    from vflsim.results.write import REPORT, write_file

    results = [each if isinstance(each, Results) else Results.open(each) for each in studies]
    place = Path(out) if out is not None else (results[0].folder if len(results) == 1 else Path()) / REPORT
    return write_file(place, page(results, brief))
