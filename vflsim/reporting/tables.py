"""The tables of a report that nothing else has: reasons, closed forms beside the simulation, all measures."""

from collections.abc import Iterable

import numpy as np
import pandas as pd

from vflsim.plotting import closed_forms as closed
from vflsim.plotting.style import Numbers
from vflsim.reporting.answer import mean_round, time_spent, waited_for
from vflsim.results.read import Results
from vflsim.results.statistics.estimates import Estimate, describe
from vflsim.results.statistics.rounds import Rounds, ages_of, pooled_mean
from vflsim.results.tables import costs_to_target
from vflsim.tables import Cell, DataTable
from vflsim.vocabulary.amounts import Amount
from vflsim.vocabulary.metrics import is_share

LEVELS = (0.5, 0.9, 0.99)


def reasons(results: Results, figures: dict[str, Numbers]) -> DataTable | None:
    """Make the table of why protocols differ: rounds to the target × the mean round, and where that one's time goes."""
    rounds = next((cells for head, cells in costs_to_target(results).items() if head.startswith("rounds")), {})
    rows: list[tuple[Cell, ...]] = []
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
    return DataTable((*header, "where its time goes", "it waits for"), rows, "Why", notes, left)


def closed_forms(results: Results) -> DataTable | None:
    """Compare round durations with their closed forms; None if there are none."""
    rows: list[tuple[Cell, ...]] = []
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
        seen = [_bounds([each]) for each in (pooled_mean(seconds, ages), *np.quantile(seconds, LEVELS).tolist())]
        rows.append((name, *(cell for pair in zip(known, seen, strict=True) for cell in pair), len(seconds)))
    if not rows:
        return None
    numbers = ("mean", *(f"{100 * level:g} % last at most" for level in LEVELS))
    header = (*(f"{name}, {how}" for name in numbers for how in ("closed form", "simulated")), "rounds simulated")
    notes = (
        "Durations of all seeds’ rounds together, without each run’s first.",
        "“a … b” are bounds, where the distribution itself is not known.",
    )
    return DataTable(("protocol", *header), rows, "Closed forms beside the simulation", notes)


def left_out(results: Results) -> DataTable | None:
    """List the closed forms that do not exist, with reasons."""
    frame = results.closed_forms_left_out
    names = ("protocol", "quantity", "reason")
    rows = [tuple(row[name] for name in names) for row in frame.to_dict("records")]
    return DataTable(names, rows, "No closed form", left=(0, 1, 2)) if rows else None


def measures(results: Results, summary: pd.DataFrame) -> DataTable | None:
    """Make the table of everything measured, a row for each measure and a column for each protocol."""
    means = summary[summary["baseline"].isna()]
    rows = []
    for (measure, target), group in means.fillna({"target": ""}).groupby(["measure", "target"], sort=False):
        named = {row["protocol"]: row for _, row in group.iterrows()}
        cells = [_described(named[name], results) if name in named else "—" for name in results.protocols]
        rows.append((_words(str(measure), str(target)), *cells))
    return DataTable(("measure", *results.protocols), rows, "All measures") if rows else None


def _described(row: pd.Series, results: Results) -> Amount:
    measure = str(row["measure"])
    return describe(Estimate.of(row), row["unit"], share=is_share(measure.partition("_")[2], results.own_metrics))


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


def _bounds(values: Iterable[float]) -> Amount:
    """Return seconds that are known, or their bounds, with three digits."""
    known = sorted({*values})
    if len({f"{each:.3g}" for each in known}) == 1:
        return Amount(known[0], "s", form="three")
    return Amount(unit="s", low=known[0], high=known[-1], form=".3g")
