"""The comparison table for the command line, notebooks and ``summary.md``."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from vflsim.results.statistics.estimates import GEOMETRIC, Estimate
from vflsim.results.statistics.heavy_tails import heavy_tail_notes
from vflsim.results.statistics.pairs import ratio
from vflsim.results.statistics.plateau import past_best
from vflsim.results.statistics.summary import outcomes, summarise, to_table
from vflsim.results.store.write import write_file
from vflsim.results.tables.footnotes import (
    baseline_of,
    chosen_rows,
    final_label,
    notes,
    round_measure,
    select,
    targets_in,
)
from vflsim.results.tables.sections import answers_table, conditions_of_results, energy_table, round_sections
from vflsim.text_table import TextTable, markdown_table
from vflsim.vocabulary.amounts import quantity, span, spanned
from vflsim.vocabulary.amounts import share as shared
from vflsim.vocabulary.metrics import is_share

if TYPE_CHECKING:
    from vflsim.results.run_set import RunSet


COSTS = ("time", "rounds", "bytes", "energy")
"""What reaching a target costs; energy only where a party says what it draws."""
BEST = (
    "Best: the best value of all evaluations, and when it was. It is optimistic: chosen on the rows it is measured on."
)
SYMMETRIC = 1.25
"""Ratio of an interval's sides up to which ± stands for both."""


def comparison_table(results: RunSet, targets: Mapping[str, Any] | None = None, pairing: bool = False) -> TextTable:
    """Make the main table: costs to the (first) target, the final level of the main metric, and the speed-up.

    One row per protocol, in the scenario's order. ``targets`` replaces the scenario's: see
    :func:`~vflsim.results.statistics.summary.summarise`. Without a target the table has the runs' totals, the mean
    round, and its paired difference. ``pairing`` adds the difference where it is absent, and by how much pairing
    narrows its interval. The baseline is ``results.baseline``; its default is the first protocol that waits for all
    clients (:func:`~vflsim.results.tables.footnotes.baseline_of`).
    """
    if (first := baseline_of(results)) != results.protocols[0]:
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
    """Return the whole summary as Markdown: the main table, further targets, and every pair's difference."""
    content = _comparison(results, summary, outcomes(results))
    lines = [f"# {content.title}", "", *markdown_table(content.header, content.rows), ""]
    lines += [f"- {note}" for note in content.notes]
    for target in targets_in(summary)[1:]:
        columns = _cost_columns(summary, target)
        cells = [_cells(results, summary, *key) for key, _ in columns]
        rows = [(name, *(each[name] for each in cells)) for name in results.protocols]
        lines += ["", f"## To {target}", "", *markdown_table(("protocol", *(head for _, head in columns)), rows)]
    if results.evaluated:
        label = final_label(results.main_metric)
        final = _cells(results, summary, f"plateau_{results.main_metric}", None)
        levels = [(name, best, final[name]) for name, best in _best(results, summary).items()]
        heads = ("protocol", label.replace("final", "best", 1), label)
        lines += ["", "## Best and final", "", BEST, "", *markdown_table(heads, levels)]
    pairs = list(_pairs(results, summary))
    if pairs:
        lines += ["", "## Paired differences", "", "Mean of first minus second, over common seeds."]
        header = ("protocols", "measure", "seeds", "difference", "95 % interval", "by pairs")
        lines += ["", *markdown_table(header, pairs), ""]
        warned = heavy_tail_notes([(results, summary)], differences=True)
        lines += [f"- {note}" for note in warned if note not in content.notes]
    if (conditions := conditions_of_results(results)) is not None:
        lines += ["", f"## {conditions.title}", "", *markdown_table(conditions.header, conditions.rows), ""]
        lines += [f"- {note}" for note in conditions.notes]
    for more in (energy_table(results), answers_table(results)):
        if more is not None:
            lines += ["", f"## {more.title}", "", *markdown_table(more.header, more.rows), ""]
            lines += [f"- {note}" for note in more.notes]
    lines += round_sections(results)
    return "\n".join(lines) + "\n"


def describe(found: Estimate, unit: str, share: bool = False) -> str:
    """Format an estimate: ``12.3 ± 0.4 s``; a difference with censored runs as its limit, ``> 20 s``.

    An interval that is not symmetric has its ends: ``5.3 (2.1 … 13) s``; after ± stands the longer of two nearly equal
    sides. A ``share`` has three digits: ``0.944 ± 0.007``, ``0.990 (0.961 … 1.000)``. A cost that evaluations too far
    apart tell has its bounds alone: ``0 … 5 s``. A censored cost has the number of runs that reached the target, their
    median (with its interval, from six runs on), and the bound of the others: ``4 of 5: 10.5 s, > 600 s``; or the bound
    alone.
    """
    if not found.censored:
        if share:
            return shared(found.mean, found.low, found.high)
        if found.wide:
            return span(*found.bounds, unit)
        if found.least == found.most and found.low == found.high:  # a cost that is the same in all runs
            return quantity(found.mean, unit)
        below, above = found.mean - found.low, found.high - found.mean
        if max(below, above) > SYMMETRIC * min(below, above):
            return spanned(found.mean, found.low, found.high, unit)
        return quantity(found.mean, unit, max(below, above))
    if not math.isnan(found.horizon):
        bound = f"> {quantity(found.horizon, unit)}"
        if math.isnan(found.median):
            return bound
        if not math.isnan(found.median_low):
            median = spanned(found.median, found.median_low, found.median_high, unit)
        else:
            median = span(found.least, found.most, unit) if found.wide else quantity(found.median, unit)
        return f"{found.reached} of {found.n}: {median}, {bound}"
    if not math.isnan(found.at_least):
        return f"> {quantity(found.at_least, unit)}"
    if not math.isnan(found.at_most):
        return f"< {quantity(found.at_most, unit)}"
    return "—"


def costs_to_target(results: RunSet) -> dict[str, dict[str, str]]:
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


def _comparison(results: RunSet, summary: pd.DataFrame, measured: pd.DataFrame, pairing: bool = False) -> TextTable:
    targets = targets_in(summary)
    rows = [[name] for name in results.protocols]
    header = ["protocol"]

    def add(head: str, cells: Mapping[str, str]) -> None:
        header.append(head)
        for row, name in zip(rows, results.protocols, strict=True):
            row.append(cells[name])

    def estimated(head: str, measure: str, target: str | None = None) -> None:
        if chosen_rows(summary, measure, target).any():
            add(head, _cells(results, summary, measure, target))

    def levels(final: str) -> None:
        label = final_label(results.main_metric)
        estimated(label, final)
        if past_best(results):
            add(label.replace("final", "best", 1), _best(results, summary))

    runs = {name: _runs(results, summary, name) for name in results.protocols}
    final = f"plateau_{results.main_metric}" if results.evaluated else None
    if targets:
        value = _value(targets[0])
        if not all(text == f"{text.split()[0]} of {text.split()[0]}" for text in runs.values()):
            add(f"reached {value}", runs)
        for (measure, target), head in _cost_columns(summary, targets[0]):
            estimated(head, measure, target)
        if final:
            levels(final)
        compared: tuple[str, str | None] = ("time_to_target", targets[0])
    else:
        add("seeds", runs)
        add("ended by", {name: _ends(results, name) for name in results.protocols})
        if final:
            levels(final)
        for measure, head in (("end", "time"), *((cost, cost) for cost in COSTS[1:])):
            estimated(head, measure)
        estimated("mean round", round_measure(summary))
        compared = (final or round_measure(summary), None)
    for name in results.own_measures:
        estimated(name.replace("_", " "), name)
    first = baseline_of(results)
    differ = len(results.protocols) > 1 and bool(chosen_rows(summary, *compared).any())
    if differ and targets:
        add(f"speed-up vs {first}", _speed_ups(results, measured, first, targets[0]))
    if differ and (pairing or not targets):
        what = "time" if targets else final_label(results.main_metric) if final else "mean round"
        add(f"{what} vs {first}", _cells(results, summary, *compared, baseline=first, paired=pairing))
    title = f"{results.name} ({what})" if (what := _statistics(summary)) else results.name
    return TextTable(
        header, [*map(tuple, rows)], title=title, notes=[*notes(results, summary, measured, differ, pairing)]
    )


def _best(results: RunSet, summary: pd.DataFrame) -> dict[str, str]:
    """Format by protocol the best value of the main metric and when it was: ``0.944 ± 0.007 at 12.3 s``."""
    values, times = (
        _cells(results, summary, f"{what}_{results.main_metric}", None) for what in ("best", "time_of_best")
    )
    return {name: value if value == "—" else f"{value} at {times[name]}" for name, value in values.items()}


def _statistics(summary: pd.DataFrame) -> str:
    """Name the means that the main table has over several seeds; empty for single runs."""
    if not (summary["n"] > 1).any():
        return ""
    costs = summary.loc[summary["target"].notna() & summary["baseline"].isna(), "statistic"]
    if costs.empty:
        return "means over seeds"
    return f"{'geometric means' if (costs == GEOMETRIC).all() else 'means'} of costs over seeds"


def _speed_ups(results: RunSet, measured: pd.DataFrame, baseline: str, target: str) -> dict[str, str]:
    """Format how many times sooner than ``baseline`` each protocol reached the target; a reference has no speed-up."""
    measured = measured[(measured["measure"] == "time_to_target") & (measured["target"] == target)]
    references = {run.protocol for run in results.runs if run.info.reference}
    cells = {}
    for name in results.protocols:
        paired = not results.unpaired(name, baseline)
        found = None if name == baseline else ratio(measured, name, baseline, paired)
        cells[name] = "reference" if name in references else "—" if found is None else str(found)
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
) -> dict[str, str]:
    """Format a measure by protocol, or its difference from ``baseline``; a dash for protocols without one."""
    bases = summary["baseline"].to_numpy(object)
    chosen = chosen_rows(summary, measure, target) & (pd.isna(bases) if baseline is None else bases == baseline)
    share = is_share(measure.removeprefix("plateau_").removeprefix("best_"), results.own_metrics)
    cells = dict.fromkeys(results.protocols, "—")
    for row in _rows(summary, chosen):
        worth = pairing(row["narrower"]) if paired else ""
        cells[row["protocol"]] = describe(Estimate.of(row), row["unit"], share=share) + (f" ({worth})" if worth else "")
    return cells


def _rows(summary: pd.DataFrame, chosen: npt.NDArray[np.bool_]) -> Iterator[dict[str, Any]]:
    """Yield the chosen rows by column; pandas' own ways of going over rows take several times as long."""
    columns = [summary[name].to_numpy(object)[chosen] for name in summary.columns]
    for values in zip(*columns, strict=True):
        yield dict(zip(summary.columns, values, strict=True))


def _runs(results: RunSet, summary: pd.DataFrame, protocol: str) -> str:
    """Count the runs behind a row: ``3``, ``2 of 3`` if there is a target, ``2 (1 failed)``."""
    runs = [run for run in results.runs if run.protocol == protocol]
    diverged, failed = sum(run.diverged for run in runs), sum(run.failed and not run.diverged for run in runs)
    count = f"{len(runs) - failed - diverged}"
    if targets := targets_in(summary):
        costs = select(summary, "time_to_target", targets[0])
        own = costs[(costs["protocol"] == protocol) & costs["baseline"].isna()]
        count = f"{own['reached'].sum()} of {own['n'].sum()}"
    lost = [f"{number} {what}" for number, what in ((diverged, "diverged"), (failed, "failed")) if number]
    return count + (f" ({', '.join(lost)})" if lost else "")


def _ends(results: RunSet, protocol: str) -> str:
    """Count what ended a protocol's runs, most frequent first: ``target``, ``2 time, 1 target``."""
    reasons = [
        run.info.status if run.failed else run.info.stop_reason or "?"
        for run in results.runs
        if run.protocol == protocol
    ]
    counted = Counter(reason.replace("_", " ") for reason in reasons).most_common()
    return counted[0][0] if len(counted) == 1 else ", ".join(f"{number} {reason}" for reason, number in counted)


def _pairs(results: RunSet, summary: pd.DataFrame) -> Iterator[tuple[str, ...]]:
    shown = {*(f"{cost}_to_target" for cost in COSTS), round_measure(summary)}
    shown |= {f"plateau_{results.main_metric}"} if results.evaluated else set()
    for row in _rows(summary, (summary["baseline"].notna() & summary["measure"].isin(shown)).to_numpy()):
        found, unit = Estimate.of(row), row["unit"]
        value = describe(found, unit) if found.censored or found.wide else quantity(found.mean, unit)
        exact = not math.isnan(found.low)
        interval = span(found.low, found.high, unit) if exact else "—"
        measure = row["measure"].replace("_", " ")
        measure = measure if pd.isna(row["target"]) else measure.replace("target", row["target"])
        worth = pairing(row["narrower"]) or "—"
        yield f"{row['protocol']} − {row['baseline']}", measure, str(row["n"]), value, interval, worth
