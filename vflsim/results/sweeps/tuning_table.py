"""Tables of a tuning: every score, with the choices marked; for a terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator
from math import isnan

from vflsim.results.sweeps.tuning import SCORES, Tuning, leaf
from vflsim.scenario.emit import flow
from vflsim.text_table import TextTable, markdown_table

_DIGITS = 4


def tuning_table(tuning: Tuning) -> TextTable:
    """Tabulate all scores (a row per value, a column per protocol), with the procedure and warnings as notes."""
    notes = [*procedure(tuning), *(f"Warning: {each}." for each in tuning.warnings())]
    return TextTable(_header(tuning), _rows(tuning), title=f"{tuning.sweep.scenario}: {tuning.metric}", notes=notes)


def tuning_markdown(tuning: Tuning) -> str:
    """Return the same table as Markdown, the text of ``tuning.md``."""
    lines = [f"# {tuning.sweep.scenario}: {tuning.metric}", "", *markdown_table(_header(tuning), _rows(tuning)), ""]
    lines += [f"- {each}" for each in procedure(tuning)]
    lines += [f"- Warning: {each}." for each in tuning.warnings()]
    return "\n".join(lines) + "\n"


def procedure(tuning: Tuning) -> Iterator[str]:
    """Describe in sentences how the values were compared."""
    seeds = tuple(dict.fromkeys(seed for found in tuning.sweep.results for seed in found.seeds))
    runs = len(tuning.sweep) * len(seeds)
    yield (
        f"{tuning.sweep.key}: {len(tuning.sweep)} values, {runs} runs a protocol "
        f"({'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))})."
    )
    yield f"Score: {SCORES[tuning.score]} of {tuning.metric}."
    yield "* marks each protocol's best value; the common value has the best mean over protocols."
    yield "The best of several scores is best partly by chance: expect less of a chosen value on other seeds and rows."


def _header(tuning: Tuning) -> tuple[str, ...]:
    return (leaf(tuning.sweep.key), *tuning.sweep.protocols, "mean")


def _rows(tuning: Tuning) -> list[tuple[str, ...]]:
    rows, table = [], tuning.scores.to_numpy(dtype=float)
    for position, value in enumerate(tuning.sweep.values):
        common = position == tuning.common
        cells = [
            _cell(score, tuning.chosen[name] == position)
            for name, score in zip(tuning.sweep.protocols, table[position], strict=True)
        ]
        rows.append((flow(value) + " (common)" * common, *cells, _cell(float(table[position].mean()), common)))
    return rows


def _cell(score: float, best: bool) -> str:
    return "—" if isnan(score) else f"{'* ' if best else ''}{score:.{_DIGITS}g}"
