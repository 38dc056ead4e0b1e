"""The comparison table for the command line, notebooks and ``summary.md``."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from vflsim.results.layout import TextTable, markdown_table
from vflsim.results.notes import baseline_of, notes, round_measure, select, targets_in
from vflsim.results.steady_report import round_sections
from vflsim.results.summary import Estimate, summarise, to_table
from vflsim.results.write import write_file
from vflsim.vocabulary.amounts import quantity, span

if TYPE_CHECKING:
    from vflsim.results.read import Results


def comparison_table(results: Results, targets: Mapping[str, Any] | None = None) -> TextTable:
    """Make the main table: how runs ended, the plateau, costs to the (first) target, and the paired difference.

    One row per protocol, in the scenario's order. ``targets`` replaces the scenario's: see
    :func:`~vflsim.results.summary.summarise`.
    """
    return _comparison(results, summarise(results, targets))


def html(results: Results) -> str:
    """Return the main table as HTML, for a notebook."""
    content = comparison_table(results)
    head = "".join(f"<th>{escape(name)}</th>" for name in content.header)
    rows = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in content.rows)
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    notes = "<br>".join(map(escape, content.notes))
    return (
        f"<table><caption><b>{escape(content.title)}</b></caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table><p><small>{notes}</small></p>"
    )


def write_summary(results: Results) -> list[Path]:
    """Write ``summary.parquet`` and ``summary.md`` into the results folder. Raises ResultsError."""
    summary = summarise(results)
    return [
        write_file(results.folder / "summary.parquet", to_table(summary)),
        write_file(results.folder / "summary.md", markdown(results, summary)),
    ]


def markdown(results: Results, summary: pd.DataFrame) -> str:
    """Return the whole summary as Markdown: the main table, further targets, and every pair's difference."""
    content = _comparison(results, summary)
    lines = [f"# {content.title}", "", *markdown_table(content.header, content.rows), ""]
    lines += [f"- {note}" for note in content.notes]
    for target in targets_in(summary)[1:]:
        columns = _cost_columns(target)
        rows = [(name, *(_cell(summary, name, *key) for key, _ in columns)) for name in results.protocols]
        lines += ["", f"## To {target}", "", *markdown_table(("protocol", *(head for _, head in columns)), rows)]
    pairs = list(_pairs(results, summary))
    if pairs:
        lines += ["", "## Paired differences", "", "Mean of first minus second, over common seeds."]
        header = ("protocols", "measure", "seeds", "difference", "95 % interval", "by pairs")
        lines += ["", *markdown_table(header, pairs)]
    lines += round_sections(results)
    return "\n".join(lines) + "\n"


def describe(found: Estimate, unit: str) -> str:
    """Format an estimate: ``12.3 ± 0.4 s``; if censored ``> 60 s``, or a bound on a difference if there is one."""
    if not found.censored:
        return quantity(found.mean, unit, (found.high - found.low) / 2)
    if not math.isnan(found.horizon):
        return f"> {quantity(found.horizon, unit)}"
    if not math.isnan(found.at_least):
        return f"> {quantity(found.at_least, unit)}"
    if not math.isnan(found.at_most):
        return f"< {quantity(found.at_most, unit)}"
    return "—"


def costs_to_target(results: Results) -> dict[str, dict[str, str]]:
    """Return by heading and protocol what the first target has cost: time, rounds and bytes; empty without a target."""
    summary = results.summary()
    columns = [column for target in targets_in(summary)[:1] for column in _cost_columns(target)]
    return {head: {name: _cell(summary, name, *key) for name in results.protocols} for key, head in columns}


def pairing(factor: float) -> str:
    """Format the gain from pairing: ``2.3 × narrower``, ``1.4 × wider``; empty if it is unknown."""
    if math.isnan(factor) or math.isinf(factor):
        return ""
    size = factor if factor >= 1 else 1 / factor
    number = f"{size:.1f}" if size < 9.95 else f"{size:.0f}"
    return "as wide as unpaired" if number == "1.0" else f"{number} × {'narrower' if factor > 1 else 'wider'}"


def _comparison(results: Results, summary: pd.DataFrame) -> TextTable:
    targets = targets_in(summary)
    columns: list[tuple[tuple[str, str | None], str]] = []
    if results.evaluated:
        columns.append(((f"plateau_{results.main_metric}", None), "plateau"))
    if targets:
        compared: tuple[str, str | None] = ("time_to_target", targets[0])
        columns += _cost_columns(targets[0])
    else:
        compared = columns[0][0] if columns else (round_measure(summary), None)
        columns += [(("end", None), "time"), (("rounds", None), "rounds"), (("bytes", None), "bytes")]
    columns.append(((round_measure(summary), None), "mean round"))
    columns = [column for column in columns if len(select(summary, *column[0]))]

    first = baseline_of(results)
    differ = len(results.protocols) > 1 and len(select(summary, *compared)) > 0
    reached = f"reached {_value(targets[0])}" if targets else "seeds"
    header = ["protocol", reached, "ended by", *(head for _, head in columns)]
    what = "time" if targets else next((head for key, head in columns if key == compared), "")
    header += [f"{what} vs {first}"] if differ else []
    rows = []
    for name in results.protocols:
        row = [name, _runs(results, summary, name), _ends(results, name)]
        row += [_cell(summary, name, *key) for key, _ in columns]
        rows.append((*row, *([_cell(summary, name, *compared, baseline=first)] if differ else [])))
    return TextTable(header, rows, title=results.name, notes=[*notes(results, summary, differ)])


def _cost_columns(target: str) -> list[tuple[tuple[str, str | None], str]]:
    return [((f"{cost}_to_target", target), f"{cost} to {_value(target)}") for cost in ("time", "rounds", "bytes")]


def _value(target: str) -> str:
    """Return the value in a target such as ``test_accuracy ≥ 0.9 for 5 evaluations``."""
    return target.split()[2]


def _cell(summary: pd.DataFrame, protocol: str, measure: str, target: str | None, baseline: str | None = None) -> str:
    rows = select(summary, measure, target)
    rows = rows[rows["baseline"].isna() if baseline is None else rows["baseline"] == baseline]
    rows = rows[rows["protocol"] == protocol]
    if rows.empty:
        return "—"
    row = rows.iloc[0]
    worth = pairing(row["narrower"])
    return describe(_estimate(row), row["unit"]) + (f" ({worth})" if worth else "")


def _estimate(row: pd.Series) -> Estimate:
    return Estimate(**{name: row[name] for name in Estimate.__dataclass_fields__})


def _runs(results: Results, summary: pd.DataFrame, protocol: str) -> str:
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


def _ends(results: Results, protocol: str) -> str:
    """Count what ended a protocol's runs, most frequent first: ``target``, ``2 time, 1 target``."""
    reasons = [
        run.info.status if run.failed else run.info.stop_reason or "?"
        for run in results.runs
        if run.protocol == protocol
    ]
    counted = Counter(reason.replace("_", " ") for reason in reasons).most_common()
    return counted[0][0] if len(counted) == 1 else ", ".join(f"{number} {reason}" for reason, number in counted)


def _pairs(results: Results, summary: pd.DataFrame) -> Iterator[tuple[str, ...]]:
    shown = {"time_to_target", "rounds_to_target", "bytes_to_target", round_measure(summary)}
    shown |= {f"plateau_{results.main_metric}"} if results.evaluated else set()
    for _, row in summary[summary["baseline"].notna() & summary["measure"].isin(shown)].iterrows():
        found, unit = _estimate(row), row["unit"]
        value = describe(found, unit) if found.censored else quantity(found.mean, unit)
        exact = not math.isnan(found.low)
        interval = span(found.low, found.high, unit) if exact else "—"
        measure = row["measure"].replace("_", " ")
        measure = measure if pd.isna(row["target"]) else measure.replace("target", row["target"])
        worth = pairing(row["narrower"]) or "—"
        yield f"{row['protocol']} − {row['baseline']}", measure, str(row["n"]), value, interval, worth
