"""Tables of a report: rows of text whose columns can be sorted by the amounts in them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import final

import numpy as np
import pandas as pd

from vflsim.plotting import closed_forms as closed
from vflsim.plotting.numbers import Numbers
from vflsim.reporting.answer import mean_round, time_spent, waited_for
from vflsim.results.read import Results
from vflsim.results.statistics.estimates import Estimate
from vflsim.results.statistics.rounds import Rounds, ages_of, pooled_mean
from vflsim.results.tables.comparison import costs_to_target, describe
from vflsim.results.tables.footnotes import round_measure
from vflsim.results.tables.sections import answers_table
from vflsim.text_table import TextTable
from vflsim.vocabulary.amounts import quantity, span
from vflsim.vocabulary.metrics import is_share

_UNITS = {"µs": 1e-6, "ms": 1e-3, "s": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "B": 1.0, "%": 0.01}
_UNITS |= {"nJ": 1e-9, "µJ": 1e-6, "mJ": 1e-3, "J": 1.0, "kJ": 1e3, "MJ": 1e6}
_AMOUNT = re.compile(
    r"(?:\d+ of \d+: )?[<>≈ ]*([−-]?[\d,]*\.?\d+(?:e[+-]?\d+)?)" + rf"(?:.*?\s({'|'.join(_UNITS)})(?!\w))?",
    re.IGNORECASE,
)
COSTS = ("time_to_target", "rounds_to_target", "bytes_to_target", "energy_to_target")
LEVELS = (0.5, 0.9, 0.99)


@final
@dataclass(frozen=True)
class Sheet:
    """A table on the page; columns whose number is in ``left`` hold words."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    left: tuple[int, ...] = (0,)

    @classmethod
    def of(cls, table: TextTable, title: str = "") -> Sheet:
        """Take a table made for a terminal."""
        rows = tuple(tuple(row) for row in table.rows)
        return cls(title or table.title, tuple(table.header), rows, tuple(table.notes), tuple(table.left))

    def limited(self, most: int, elsewhere: str) -> Sheet:
        """Keep the first rows alone, and say where all of them are, if there are more than ``most``."""
        if len(self.rows) <= most:
            return self
        note = f"The first {most:,} of {len(self.rows):,} rows: {elsewhere} has all of them."
        return replace(self, rows=self.rows[:most], notes=(*self.notes, note))

    def keys(self) -> list[list[tuple[str, float | None]]]:
        """Return the rows' cells, each with the amount to sort by (None: sorted as text)."""
        return [
            [(cell, None if column in self.left else amount(cell)) for column, cell in enumerate(row)]
            for row in self.rows
        ]


def amount(cell: str) -> float | None:
    """Return the first amount in a cell in SI units: 0.03 for ``30 ± 1 ms``; None without a number."""
    found = _AMOUNT.match(cell.strip())
    if found is None:
        return None
    return float(found[1].replace(",", "").replace("−", "-")) * _UNITS.get(found[2] or "", 1.0)


def reasons(results: Results, figures: dict[str, Numbers]) -> Sheet | None:
    """Make the table of why protocols differ: rounds to the target × the mean round, and where that one's time goes."""
    rounds = next((cells for head, cells in costs_to_target(results).items() if head.startswith("rounds")), {})
    rows = []
    for name in results.protocols:
        row = (mean_round(name, figures), time_spent(name, figures).replace(" on ", " "), waited_for(name, figures))
        if any(row):
            rows.append((name, *([rounds[name]] if rounds else []), *(cell or "—" for cell in row)))
    if not rows:
        return None
    header = ("protocol", *(["rounds to the target"] if rounds else []), "mean round")
    notes = (
        "A round lasts from one server step to the next; its time is followed back along its critical path, from the "
        "message that let the step begin. All seeds together.",
    )
    left = (0, len(header), len(header) + 1)
    return Sheet("Why", (*header, "where its time goes", "it waits for"), tuple(rows), notes, left)


def closed_forms(results: Results) -> Sheet | None:
    """Compare round durations with their closed forms; None if there are none."""
    rows = []
    for name in results.protocols:
        curve = closed.round_duration(results, name)
        runs = [run for run in results.runs if run.protocol == name and not run.failed and run.has("rounds")]
        lasted = [run.round_durations()[1:] for run in runs]
        seconds = np.concatenate(lasted) if lasted else np.empty(0)
        ages = ages_of([Rounds.of(run) for run in runs])
        if curve is None or not len(seconds):
            continue
        known = [_bounds(curve.means())]
        known += [_bounds(_quantile(curve.x, cdf, level) for cdf in curve.sides()) for level in LEVELS]
        seen = [_three(each) for each in (pooled_mean(seconds, ages), *np.quantile(seconds, LEVELS).tolist())]
        rows.append((name, *(cell for pair in zip(known, seen, strict=True) for cell in pair), f"{len(seconds):,}"))
    if not rows:
        return None
    numbers = ("mean", *(f"{100 * level:g} % last at most" for level in LEVELS))
    header = (*(f"{name}, {how} [s]" for name in numbers for how in ("closed form", "simulated")), "rounds simulated")
    notes = (
        "Durations of all seeds’ rounds together, without each run’s first.",
        "“a … b” are bounds, where the distribution itself is not known.",
    )
    return Sheet("Closed forms beside the simulation", ("protocol", *header), tuple(rows), notes)


def answers(results: Results) -> Sheet | None:
    """Make the table of answers under deadlines; None where no run answered."""
    table = answers_table(results)
    return None if table is None else Sheet.of(table)


def left_out(results: Results) -> Sheet | None:
    """List the closed forms that do not exist, with reasons."""
    frame = results.closed_forms_left_out
    rows = tuple((row["protocol"], row["quantity"], row["reason"]) for _, row in frame.iterrows())
    return Sheet("No closed form", ("protocol", "quantity", "reason"), rows, left=(0, 1, 2)) if rows else None


def measures(results: Results, summary: pd.DataFrame) -> Sheet | None:
    """Make the table of everything measured, a row for each measure and a column for each protocol."""
    own = summary[summary["baseline"].isna()]
    rows = []
    for (measure, target), group in own.fillna({"target": ""}).groupby(["measure", "target"], sort=False):
        named = {row["protocol"]: row for _, row in group.iterrows()}
        cells = [_described(named[name], results) if name in named else "—" for name in results.protocols]
        rows.append((_words(str(measure), str(target)), *cells))
    return Sheet("All measures", ("measure", *results.protocols), tuple(rows)) if rows else None


def differences(results: Results, summary: pd.DataFrame) -> Sheet | None:
    """Make the table of differences between protocols, in what matters most, with their intervals."""
    shown = {*COSTS, round_measure(summary)} | ({f"plateau_{results.main_metric}"} if results.evaluated else set())
    rows = []
    for _, row in summary[summary["baseline"].notna() & summary["measure"].isin(shown)].iterrows():
        found = Estimate.of(row)
        value = describe(found, row["unit"]) if found.censored or found.wide else quantity(found.mean, row["unit"])
        interval = "—" if np.isnan(found.low) else span(found.low, found.high, row["unit"])
        what = _words(row["measure"], "" if pd.isna(row["target"]) else row["target"])
        apart = not row.get("paired", True)
        rows.append((f"{row['protocol']} − {row['baseline']}", what, f"{row['n']}{' *' * apart}", value, interval))
    header = ("protocols", "measure", "seeds", "mean difference", "95 % interval")
    notes = ["Taken within each common seed, then averaged: all protocols have the same delays."]
    if mixed := any(row[2].endswith("*") for row in rows):
        notes += ["*: the difference of the means of independent runs, so many of both together."]
    title = "Differences" if mixed else "Paired differences"
    return Sheet(title, header, tuple(rows), tuple(notes), (0, 1)) if rows else None


def from_markdown(text: str) -> list[Sheet]:
    """Read the tables of a Markdown page that vflsim has written (:func:`vflsim.text_table.markdown_page`)."""
    sheets: list[Sheet] = []
    title, rows, notes = "", list[tuple[str, ...]](), list[str]()
    for line in [*text.splitlines(), "## "]:
        if line.startswith("## "):
            if rows:
                sheets.append(Sheet(title, rows[0], tuple(rows[2:]), tuple(notes)))
            title, rows, notes = line.removeprefix("## "), [], []
        elif line.startswith("|"):
            cells = re.split(r"(?<!\\)\|", line.strip())[1:-1]
            rows.append(tuple(cell.strip().replace("\\|", "|") for cell in cells))
        elif line.startswith("- "):
            notes.append(line.removeprefix("- "))
    return sheets


def _described(row: pd.Series, results: Results) -> str:
    found = Estimate.of(row)
    measure = str(row["measure"])
    return describe(found, row["unit"], share=is_share(measure.partition("_")[2], results.own_metrics))


def _words(measure: str, target: str) -> str:
    """Format a measure: ``end_test_accuracy`` -> ``test accuracy at the end``."""
    first, _, rest = measure.partition("_")
    named = {"end": "at the end", "plateau": "mean over the last tenth", "best": "at its best"}
    if first in named and rest:
        return f"{rest.replace('_', ' ')}, {named[first]}"
    words = "virtual time at the end" if measure == "end" else measure.replace("_", " ")
    return words.replace("to target", f"to {target.replace('_', ' ')}") if target else words


def _quantile(x: np.ndarray, cdf: np.ndarray, level: float) -> float:
    return float(x[min(int(np.searchsorted(cdf, level)), len(x) - 1)])


def _bounds(values: Iterable[float]) -> str:
    return " … ".join(dict.fromkeys(_three(value) for value in sorted(values)))


def _three(seconds: float) -> str:
    return f"{seconds:.3g}"
