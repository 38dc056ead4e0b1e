"""The page of the files of a run: the columns of each table and the keys of ``run.json``, from their schemas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from vflsim.results.statistics import KEYS
from vflsim.results.statistics.estimates import Estimate
from vflsim.results.store.pages import RunInfo
from vflsim.results.store.schema import CURVE_COLUMNS, ENERGY_COLUMNS
from vflsim.vocabulary.base import strings_below
from vflsim.world.run_tables import AGES, COUNTS, EVENTS, ROUNDS, SPENT, Column

FIRST = """\
What each column means. Names that end in `_s` are in seconds, those in `_j` in joules. NaN, or null in a summary,
stands for what does not apply. [Results](../results.md) explains the files.
"""
SCORES = {
    "validation_<metric>, test_<metric>": "Scores on held-out rows: loss, accuracy, AUC, RMSE, R² and the scenario's "
    "own metrics, as the task has them."
}
Meanings = Mapping[str, str]


def columns() -> str:
    """Write the page."""
    tables: dict[str, tuple[str, Meanings]] = {
        "metrics": (
            "One row per evaluation, the first at time 0, the last at the end of the run.",
            _of(COUNTS) | SCORES | _of([SPENT]) | _of(AGES),
        ),
        "rounds": ("One row per server step.", _of(ROUNDS)),
        "events": ("One row per activity of a party.", _of(EVENTS)),
        "energy_by_party": ("Three rows for each party that says what it draws.", _of(ENERGY_COLUMNS)),
        "summary": (
            "One row per measure, target, protocol and, for differences, baseline.",
            KEYS | {name: strings_below(Estimate)[name] for name in Estimate.__dataclass_fields__},
        ),
        "closed_forms": ("One row per point of a curve.", _of(CURVE_COLUMNS)),
        "run.json": ("Facts about one run.", strings_below(RunInfo)),
    }
    page = ["# Columns and run.json", FIRST]
    for name, (rows, meanings) in tables.items():
        page += [f"## {name}", rows, "\n".join(["| name | meaning |", "|---|---|", *_rows(meanings)])]
    return "\n\n".join(page) + "\n"


def _of(columns: Iterable[Column]) -> dict[str, str]:
    return {column.name: column.meaning for column in columns}


def _rows(meanings: Meanings) -> Iterable[str]:
    for name, meaning in meanings.items():
        text = " ".join(meaning.replace("``", "`").split()).replace("|", "\\|")
        yield f"| `{name}` | {text} |"
