"""The comparison table for the command line, notebooks and ``summary.md``."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from vflsim.results.run_set import RunSet
from vflsim.results.statistics import outcomes, summarise, to_table
from vflsim.results.statistics.doubts import heavy_tail_notes, past_best
from vflsim.results.statistics.estimates import GEOMETRIC, Estimate, describe
from vflsim.results.statistics.pairs import ratio
from vflsim.results.store.write import write_file
from vflsim.results.tables.footnotes import (
    chosen_rows,
    final_label,
    lost_runs,
    notes,
    round_measure,
    select,
    targets_in,
)
from vflsim.results.tables.ranking import budget_tables
from vflsim.results.tables.sections import answers_table, conditions_of_results, energy_table, round_tables
from vflsim.tables import Cell, DataTable
from vflsim.tables.formats import markdown as in_markdown
from vflsim.vocabulary.amounts import Amount, quantity, span, with_words
from vflsim.vocabulary.metrics import is_share

COSTS = ("time", "rounds", "bytes", "energy")
"""What reaching a target costs; energy only where a party says what it draws."""
BEST = (
    "Best: the best value of all evaluations, and when it was. It is optimistic: chosen on the rows it is measured on."
)


def comparison_table(results: RunSet, targets: Mapping[str, Any] | None = None, pairing: bool = False) -> DataTable:
    """Make the main table: costs to the (first) target, the final level of the main metric, and the speed-up.

    One row per protocol, in the scenario's order. ``targets`` replaces the scenario's: see
    :func:`~vflsim.results.statistics.summarise`. Without a target the table has the runs' totals, the mean
    round, and its paired difference. ``pairing`` adds the difference where it is absent, and by how much pairing
    narrows its interval. The baseline is ``results.baseline``; its default is the first protocol that waits for all
    clients (``results.first``).
    """
    if (first := results.first) != results.protocols[0]:
        results = results.against(first)  # a copy, whose differences have the other sign
    return _comparison(results, summarise(results, targets), outcomes(results, targets), pairing)


def write_summary(results: RunSet) -> list[Path]:
    """Write ``summary.parquet`` and ``summary.md`` into the results folder. Raises ResultsError."""
    summary = summarise(results)
    return [
        write_file(results.folder / "summary.parquet", to_table(summary)),
        write_file(results.folder / "summary.md", markdown(results, summary)),
    ]


def markdown(results: RunSet, summary: pd.DataFrame) -> str:
    """Return the whole summary as Markdown: the main table, further targets, budgets, and every pair's difference."""
    content = _comparison(results, summary, outcomes(results))
    tables: list[DataTable | None] = [content]
    for target in targets_in(summary)[1:]:
        costs = {head: _cells(results, summary, *key) for key, head in _cost_columns(summary, target)}
        tables.append(_by_protocol(results, costs, f"To {target}"))
    if results.evaluated:
        label = final_label(results.main_metric)
        final = _cells(results, summary, f"plateau_{results.main_metric}", None)
        levels = {label.replace("final", "best", 1): _best(results, summary), label: final}
        tables.append(_by_protocol(results, levels, "Best and final", [BEST]))
    tables += budget_tables(results)
    if (differences := difference_table(results, summary)) is not None:
        warned = heavy_tail_notes([(results, summary)], differences=True)
        differences.notes = [*differences.notes, *(note for note in warned if note not in content.notes)]
        tables.append(differences)
    tables += [conditions_of_results(results), energy_table(results), answers_table(results), *round_tables(results)]
    return in_markdown(filter(None, tables), content.title)


def _by_protocol(
    results: RunSet, columns: Mapping[str, Mapping[str, Cell]], title: str, notes: Sequence[str] = ()
) -> DataTable:
    rows = [(name, *(cells[name] for cells in columns.values())) for name in results.protocols]
    header = ("protocol", *columns)
    importance = sorted(range(len(header)), key=lambda place: _rank(header[place]))
    return DataTable(header, rows, title, notes, importance=importance, elsewhere=_ELSEWHERE)


_ELSEWHERE = "the report (report.html) and `vflsim compare --markdown` show all"
_RANKS = ("protocol", "time to", "speed-up", "final", "reached", "mean round", "bytes", "rounds", "best", "energy")


def _rank(head: str) -> int:
    """Return the place of a column, by the beginning of its head, among those that matter most."""
    return next((place for place, begin in enumerate(_RANKS) if head.startswith(begin)), len(_RANKS))


def costs_to_target(results: RunSet) -> dict[str, dict[str, Cell]]:
    """Return by heading and protocol what the first target has cost, each of ``COSTS``; empty without a target."""
    summary = summarise(results)
    columns = [column for target in targets_in(summary)[:1] for column in _cost_columns(summary, target)]
    return {head: _cells(results, summary, *key) for key, head in columns}


def pairing(factor: float) -> str:
    """Format the gain from pairing: ``2.3 × narrower``, ``1.4 × wider``; empty if it is unknown."""
    if math.isnan(factor) or math.isinf(factor):
        return ""
    size = factor if factor >= 1 else 1 / factor
    number = f"{size:.1f}" if size < 9.95 else f"{size:.0f}"
    return "as wide as unpaired" if number == "1.0" else f"{number} × {'narrower' if factor > 1 else 'wider'}"


def _comparison(results: RunSet, summary: pd.DataFrame, measured: pd.DataFrame, pairing: bool = False) -> DataTable:
    targets = targets_in(summary)
    columns: dict[str, Mapping[str, Cell]] = {}

    def estimated(head: str, measure: str, target: str | None = None) -> None:
        if chosen_rows(summary, measure, target).any():
            columns[head] = _cells(results, summary, measure, target)

    def levels(final: str) -> None:
        label = final_label(results.main_metric)
        estimated(label, final)
        if past_best(results):
            columns[label.replace("final", "best", 1)] = _best(results, summary)

    runs = {name: _runs(results, summary, name) for name in results.protocols}
    final = f"plateau_{results.main_metric}" if results.evaluated else None
    if targets:
        value = _value(targets[0])
        if not {*runs.values()} <= {f"{number} of {number}" for number in range(len(results.runs) + 1)}:
            columns[f"reached {value}"] = runs
        for (measure, target), head in _cost_columns(summary, targets[0]):
            estimated(head, measure, target)
        if final:
            levels(final)
        compared: tuple[str, str | None] = ("time_to_target", targets[0])
    else:
        columns["seeds"] = runs
        columns["ended by"] = {name: _ends(results, name) for name in results.protocols}
        if final:
            levels(final)
        for measure, head in (("end", "time"), *((cost, cost) for cost in COSTS[1:])):
            estimated(head, measure)
        estimated("mean round", round_measure(summary))
        compared = (final or round_measure(summary), None)
    for name in results.own_measures:
        estimated(name.replace("_", " "), name)
    first = results.first
    differ = len(results.protocols) > 1 and bool(chosen_rows(summary, *compared).any())
    if differ and targets:
        columns[f"speed-up vs {first}"] = _speed_ups(results, measured, first, targets[0])
    if differ and (pairing or not targets):
        what = "time" if targets else final_label(results.main_metric) if final else "mean round"
        columns[f"{what} vs {first}"] = _cells(results, summary, *compared, baseline=first, paired=pairing)
    title = f"{results.name} ({what})" if (what := _statistics(summary)) else results.name
    return _by_protocol(results, columns, title, [*notes(results, summary, measured, differ, pairing)])


def _best(results: RunSet, summary: pd.DataFrame) -> dict[str, Cell]:
    """Format by protocol the best value of the main metric and when it was: ``0.944 ± 0.007 at 12.3 s``."""
    values, times = (
        _cells(results, summary, f"{what}_{results.main_metric}", None) for what in ("best", "time_of_best")
    )
    return {
        name: with_words(value, f" at {times[name]}") if isinstance(value, Amount) else value
        for name, value in values.items()
    }


def _statistics(summary: pd.DataFrame) -> str:
    """Name the means that the main table has over several seeds; empty for single runs."""
    if not (summary["n"] > 1).any():
        return ""
    costs = summary.loc[summary["target"].notna() & summary["baseline"].isna(), "statistic"]
    if costs.empty:
        return "means over seeds"
    return f"{'geometric means' if (costs == GEOMETRIC).all() else 'means'} of costs over seeds"


def _speed_ups(results: RunSet, measured: pd.DataFrame, baseline: str, target: str) -> dict[str, Cell]:
    """Return how many times sooner than ``baseline`` each protocol reached the target; a reference has no speed-up."""
    measured = measured[(measured["measure"] == "time_to_target") & (measured["target"] == target)]
    references = {run.protocol for run in results.runs if run.info.reference}
    cells: dict[str, Cell] = {}
    for name in results.protocols:
        paired = not results.unpaired(name, baseline)
        speed_up = None if name == baseline else ratio(measured, name, baseline, paired)
        cells[name] = "reference" if name in references else "—" if speed_up is None else speed_up.cell
    return cells


def _cost_columns(summary: pd.DataFrame, target: str) -> list[tuple[tuple[str, str | None], str]]:
    costs = [cost for cost in COSTS if chosen_rows(summary, f"{cost}_to_target", target).any()]
    return [((f"{cost}_to_target", target), f"{cost} to {_value(target)}") for cost in costs]


def _value(target: str) -> str:
    """Return the value in a target such as ``test_accuracy ≥ 0.9 for 5 evaluations``."""
    return target.split()[2]


def _cells(
    results: RunSet,
    summary: pd.DataFrame,
    measure: str,
    target: str | None,
    baseline: str | None = None,
    paired: bool = False,
) -> dict[str, Cell]:
    """Return a measure by protocol, or its difference from ``baseline``; a dash for protocols without one."""
    bases = summary["baseline"].to_numpy(object)
    chosen = chosen_rows(summary, measure, target) & (pd.isna(bases) if baseline is None else bases == baseline)
    share = is_share(measure.removeprefix("plateau_").removeprefix("best_"), results.own_metrics)
    cells: dict[str, Cell] = dict.fromkeys(results.protocols, "—")
    for row in _rows(summary, chosen):
        worth = pairing(row["narrower"]) if paired else ""
        cells[row["protocol"]] = with_words(describe(Estimate.of(row), row["unit"], share), f" ({worth})" * bool(worth))
    return cells


def _rows(summary: pd.DataFrame, chosen: npt.NDArray[np.bool_]) -> Iterator[dict[str, Any]]:
    """Yield the chosen rows by column; pandas' own ways of going over rows take several times as long."""
    columns = [summary[name].to_numpy(object)[chosen] for name in summary.columns]
    for values in zip(*columns, strict=True):
        yield dict(zip(summary.columns, values, strict=True))


def _runs(results: RunSet, summary: pd.DataFrame, protocol: str) -> Cell:
    """Count the runs behind a row: ``3``, ``2 of 3`` if there is a target that some missed, ``2 (1 failed)``."""
    count: Cell = sum(run.protocol == protocol and not run.failed for run in results.runs)
    if targets := targets_in(summary):
        costs = select(summary, "time_to_target", targets[0])
        rows = costs[(costs["protocol"] == protocol) & costs["baseline"].isna()]
        reached, n = int(rows["reached"].sum()), int(rows["n"].sum())
        count = f"{reached} of {n}"
    lost = lost_runs(results, protocol)
    return f"{count}{lost}" if lost else count


def _ends(results: RunSet, protocol: str) -> str:
    """Count what ended a protocol's runs, most frequent first: ``target``, ``2 time, 1 target``."""
    reasons = [
        run.info.status if run.failed else run.info.stop_reason or "?"
        for run in results.runs
        if run.protocol == protocol
    ]
    counted = Counter(reason.replace("_", " ") for reason in reasons).most_common()
    return counted[0][0] if len(counted) == 1 else ", ".join(f"{number} {reason}" for reason, number in counted)


def difference_table(results: RunSet, summary: pd.DataFrame) -> DataTable | None:
    """Tabulate differences of every pair of protocols in what matters most, with their intervals; None without any."""
    shown = {*(f"{cost}_to_target" for cost in COSTS), round_measure(summary)}
    shown |= {f"plateau_{results.main_metric}"} if results.evaluated else set()
    rows, apart = [], False
    for row in _rows(summary, (summary["baseline"].notna() & summary["measure"].isin(shown)).to_numpy()):
        estimate, unit = Estimate.of(row), row["unit"]
        value = describe(estimate, unit) if estimate.censored or estimate.wide else quantity(estimate.mean, unit)
        interval = span(estimate.low, estimate.high, unit)
        measure = row["measure"].replace("_", " ")
        measure = measure if pd.isna(row["target"]) else measure.replace("target", row["target"])
        independent = row.get("paired", True) is False
        apart = apart or independent
        seeds = f"{row['n']} *" if independent else int(row["n"])
        names = f"{row['protocol']} − {row['baseline']}"
        rows.append((names, measure, seeds, value, interval, pairing(row["narrower"]) or "—"))
    header = ("protocols", "measure", "seeds", "difference", "95 % interval", "by pairs")
    notes = ["Mean of first minus second, over common seeds: all protocols have the same delays."]
    notes += ["*: the difference of the means of independent runs, so many of both together."] * apart
    title = "Differences" if apart else "Paired differences"
    return DataTable(header, rows, title, notes, (0, 1)) if rows else None
