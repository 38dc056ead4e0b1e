"""One HTML page about results: the answer, the figures and the tables, to read offline and to mail."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vflsim.results.read import Results
    from vflsim.results.sweeps import Sweep


def write_report(
    studies: Sequence[Results | Sweep | Path | str],
    out: Path | str | None = None,
    brief: bool = False,
    baseline: str | None = None,
) -> Path:
    """Write the report of one or several results or sweeps, or of their folders; return its path.

    ``out`` defaults to ``report.html`` in the only folder, or else in the working directory; ``baseline`` is the
    protocol that the others are compared with. Raises ResultsError.
    """
    from vflsim.reporting.page import page
    from vflsim.results.store.folder import REPORT
    from vflsim.results.store.write import write_file
    from vflsim.results.sweeps import open_folder

    results = [open_folder(each) if isinstance(each, Path | str) else each for each in studies]
    place = Path(out) if out is not None else (results[0].folder if len(results) == 1 else Path()) / REPORT
    return write_file(place, page(results, brief, baseline=baseline))
