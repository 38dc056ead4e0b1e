"""The section of a report about several studies together, before the section of each study."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, final

from vflsim.reporting import charts, tables
from vflsim.reporting.answer import Conclusion, answer
from vflsim.reporting.figures import CAPTIONS, Drawn, Ink, drawn
from vflsim.reporting.section import ROWS
from vflsim.reporting.tables import Sheet
from vflsim.results.joined import JoinedResults
from vflsim.results.tables.comparison import comparison_table
from vflsim.results.tables.footnotes import targets_in

KEY = "together"
FIGURES = {True: ("time", "target", "speedup"), False: ("time", "speedup", "durations")}
"""The figures of several studies together, with a common target and without."""


@final
@dataclass(frozen=True)
class Together:
    """The content of a report's section about several studies together; ``data`` is that of its chart."""

    key: str
    answer: Conclusion
    comparison: Sheet
    data: dict[str, Any]
    figures: list[Drawn]
    differences: Sheet | None


def joint(results: JoinedResults, ink: Ink, share: float) -> Together:
    """Compare several studies; ``share`` of a page's size for the data of the chart. Raises ResultsError."""
    summary = results.estimates()
    figures = drawn(results, ink, f"{KEY}-", {name: CAPTIONS[name] for name in FIGURES[bool(targets_in(summary))]})
    numbers = {each.name: each.numbers for each in figures}
    found, remarks = answer(results, summary, numbers), [*results.remarks()]
    comparison = Sheet.of(comparison_table(results), "Comparison of all studies")
    differences = tables.differences(results, summary)
    return Together(
        key=KEY,
        answer=replace(found, sentences=(*found.sentences, *_not_common(results), *remarks)),
        comparison=replace(comparison, notes=tuple(note for note in comparison.notes if note not in remarks)),
        data={"curves": charts.curves(results, numbers, share), "timeline": None, "looks": charts.looks(results)},
        figures=figures,
        differences=differences and differences.limited(ROWS, "vflsim.compare(…).estimates()"),
    )


def _not_common(results: JoinedResults) -> Iterator[str]:
    """State which metrics or targets prevent a closer comparison of the studies."""
    metrics = {study.name: ", ".join(study.evaluated) or "none" for study in results.studies}
    if not results.evaluated and {*metrics.values()} != {"none"}:
        own = "; ".join(f"{name}: {own}" for name, own in metrics.items())
        yield f"No metric was evaluated in all studies ({own}), so only rounds are compared."
    elif not results.declared and any(study.declared for study in results.studies):
        yield "No target is common to all studies, so the time to a target cannot be compared."
