"""Attacks finished runs, collects the measures of the attacks, and reports them as text, Markdown and Parquet."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from vflsim.attacks.base import Attack, AttackedRun, Measured
from vflsim.attacks.probes import STRONGEST
from vflsim.errors import ResultsError
from vflsim.finished import (
    TABLES_FILE,
    Amount,
    Cell,
    DataTable,
    NotRecordedError,
    Results,
    StoredRun,
    costs_to_target,
    frame_table,
    markdown,
    means_by,
    packed,
    quantity,
    stored_scenario,
    t_interval,
    write_file,
)
from vflsim.protocol import ScenarioError
from vflsim.scenario import Problem, Scenario, ScenarioData

if TYPE_CHECKING:
    from vflsim.plotting import Picture

VALUES = ("measure", "value", "low", "high", "chance", "chance_low", "chance_high", "chosen")
"""The last columns of a table of an attack."""


@dataclass(frozen=True)
class Evaluation:
    """What attacks measure on a study's runs.

    ``tables`` has by the attack's kind a row for every protocol, seed, party, setting and measure: protocol, seed,
    attack, party, a column for each option that is varied, and the fields of ``Measured``. ``costs`` has a row per
    protocol and seed: the ``metric`` that runs are compared by and its ``value`` at their end, ``seconds`` and
    ``bytes``. ``left_out`` are attacks and runs for which there is nothing, with the reasons. ``to_target`` has, by
    heading and protocol, what the scenario's first target has cost.
    """

    scenario: Scenario
    attacks: tuple[Attack, ...]
    tables: dict[str, pd.DataFrame]
    costs: pd.DataFrame
    left_out: dict[str, str]
    to_target: dict[str, dict[str, Cell]]


def evaluate(
    results: Results,
    attacks: Sequence[Attack],
    protocols: Collection[str] | None = None,
    seeds: Collection[int] | None = None,
    needed: bool = False,
) -> Evaluation:
    """Attack finished runs, of all protocols and seeds unless some are named.

    Raises ``ScenarioError`` for options that do not fit the results, and ``ResultsError`` if nothing could be attacked,
    if a named protocol could not be attacked although the attacks are ``needed``, or if weights or data are not those
    of the runs.
    """
    scenario = stored_scenario(results.folder, results.runs)
    for attack in attacks:
        try:
            attack.check(results, scenario)
        except ValueError as error:
            problem = Problem.of_message((), str(error))
            raise ScenarioError(problem.what, f"--set {attack.kind}", problem.allowed, problem.remedy) from None
    loaded = ScenarioData(scenario)
    selected = tuple(name for name in results.protocols if protocols is None or name in protocols)
    rows: dict[str, list[dict[str, Any]]] = {attack.kind: [] for attack in attacks}
    left_out: dict[str, str] = {}
    for run in results.runs:
        if run.protocol not in selected or (seeds is not None and run.seed not in seeds):
            continue
        if run.failed:
            left_out[f"{run.protocol}, seed {run.seed}"] = run.info.status
            continue
        attacked = AttackedRun(results, run, scenario, loaded, selected)
        for attack in attacks:
            key = f"{attack.kind} of {run.protocol}"
            try:
                rows[attack.kind] += [_row(attack, run, each) for each in attack.on(attacked)]
            except NotRecordedError as error:
                if protocols is not None and needed:
                    raise
                left_out.setdefault(key, f"{error.what}; {error.remedy}")
            except ValueError as error:
                if protocols is not None and needed:
                    what, _, allowed = str(error).partition("; allowed: ")
                    raise ResultsError(f"{key}: {what}", str(results.folder), allowed) from None
                left_out.setdefault(key, str(error))
            for remark in attacked.remarks:
                left_out.setdefault(key, remark)
            attacked.remarks.clear()
    tables = {kind: _frame(each) for kind, each in rows.items() if each}
    if not tables:
        reasons = "; ".join(f"{name}: {why}" for name, why in left_out.items())
        what = f"nothing could be attacked ({reasons or 'no run of this protocol and seed'})"
        raise ResultsError(what, str(results.folder), "finished runs that an attack applies to")
    return Evaluation(scenario, tuple(attacks), tables, costs_of(results), left_out, costs_to_target(results))


def costs_of(results: Results) -> pd.DataFrame:
    """Return a row per finished run: protocol, seed, metric, value at its end, seconds, bytes."""
    metric, rows = results.main_metric, []
    for run in results.runs:
        if not run.failed:
            table = run.table("metrics")
            last = {name: table[name][-1].as_py() for name in table.column_names}
            sent = sum(last[name] for name in ("bytes_up", "bytes_down", "bytes_peer"))
            rows.append((run.protocol, run.seed, metric, last.get(metric, np.nan), last["time_s"], sent))
    return pd.DataFrame(rows, columns=["protocol", "seed", "metric", "value", "seconds", "bytes"])


def _frame(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Return a table of rows; what was chosen stands in those of attacks that choose."""
    table = pd.DataFrame(rows)
    return table if table["chosen"].any() else table.drop(columns="chosen")


def _row(attack: Attack, run: StoredRun, measured: Measured) -> dict[str, Any]:
    fields = asdict(measured)
    values = {name: fields[name] for name in VALUES}
    whose = {"protocol": run.protocol, "seed": run.seed, "attack": attack.kind, "party": measured.party}
    return whose | dict(measured.setting) | values


def settings_of(table: pd.DataFrame) -> list[str]:
    """Return the columns of an attack's table that hold its options."""
    return [name for name in table.columns[4:] if name not in VALUES]


def means_of(table: pd.DataFrame) -> pd.DataFrame:
    """Return means over parties, and then over seeds: protocol, the options, measure, n, mean, low, high, chance."""
    keys = ["protocol", *settings_of(table), "measure"]
    by_seed = table.groupby([*keys, "seed"], sort=False)[["value", "chance"]].mean().reset_index()
    return means_by(by_seed, keys, "value").assign(chance=by_seed.groupby(keys, sort=False)["chance"].mean().to_numpy())


def headline(table: pd.DataFrame) -> pd.DataFrame:
    """Return what a table of an attack comes to: the rows of the strongest attackers, or all, if none was chosen.

    The settings that these have chosen are left out.
    """
    settings = settings_of(table)
    best = (table[settings] == STRONGEST).any(axis=1)
    some = table[best] if best.any() else table
    return some.drop(columns=[name for name in settings if (some[name] == STRONGEST).all()])


def evaluation_tables(evaluation: Evaluation) -> Iterator[DataTable]:
    """Yield a table for each attack: rows are protocols and settings, beside what their runs reached and cost."""
    for attack in evaluation.attacks:
        if attack.kind in evaluation.tables:
            yield _table(attack, evaluation)


def evaluation_markdown(evaluation: Evaluation) -> str:
    """Return the same as Markdown, the text of ``evaluate.md``."""
    return markdown(evaluation_tables(evaluation), f"{evaluation.scenario.name}: attacks", evaluation.left_out)


def save(evaluation: Evaluation, folder: Path) -> list[Path]:
    """Write a Parquet table for each attack, ``evaluate.md`` and ``tables.json``; return their places."""
    tables = evaluation.tables.items()
    written = [write_file(folder / f"{kind}.parquet", frame_table(table)) for kind, table in tables]
    written.append(write_file(folder / "evaluate.md", evaluation_markdown(evaluation)))
    return [*written, write_file(folder / TABLES_FILE, packed(evaluation_tables(evaluation)))]


def _table(attack: Attack, evaluation: Evaluation) -> DataTable:
    table, ends = headline(evaluation.tables[attack.kind]), evaluation.costs
    means, keys = means_of(table), ["protocol", *settings_of(table)]
    measures = [name for name in attack.measures if (means["measure"] == name).any()]
    chances = [name for name in measures if means.loc[means["measure"] == name, "chance"].notna().any()]
    metric = str(ends["metric"].iloc[0]).replace("_", " ")
    header = [", ".join(keys), *(attack.measures[name] for name in measures)]
    header += [f"chance level of {attack.measures[name]}" for name in chances]
    header += [metric, "seconds", "bytes", *evaluation.to_target]
    rows = []
    for key, group in means.groupby(keys, sort=False):
        mean = {each["measure"]: each for each in group.to_dict("records")}
        reached = ends[(ends["protocol"] == key[0]) & ends["seed"].isin(table["seed"])]
        spread = t_interval(reached["value"].to_numpy())
        row: list[Cell] = [", ".join(f"{each:g}" if isinstance(each, float) else str(each) for each in key)]
        row += [_with_spread(mean[name]["mean"], mean[name]["high"]) if name in mean else "" for name in measures]
        row += [Amount(mean[name]["chance"], form=".4f") if name in mean else "" for name in chances]
        row += [_with_spread(spread.mean, spread.high), Amount(reached["seconds"].mean(), form=".4g")]
        row += [
            quantity(reached["bytes"].mean(), "B"),
            *(costs[str(key[0])] for costs in evaluation.to_target.values()),
        ]
        rows.append(row)
    options = attack.model_dump(exclude={"kind", *keys})
    notes = [
        f"{attack.note}.",
        *(["The strongest attackers; all others are in the Parquet table."] if "chosen" in table else []),
        f"Options: {', '.join(f'{name} {value}' for name, value in options.items())}.",
        f"Means over parties and seeds ± 95 % over seeds; {metric}, seconds and bytes are the runs' own, at their end.",
    ]
    return DataTable(header, rows, attack.title, notes)


def _with_spread(mean: float, high: float) -> Amount:
    return Amount(mean, half=high - mean if np.isfinite(high) else np.nan, form=".4f")


def attack_figures(evaluation: Evaluation) -> Iterator[tuple[str, Picture]]:
    """Yield a figure for each attack that measured something, with its kind as its name."""
    for attack in evaluation.attacks:
        if attack.kind in evaluation.tables:
            yield attack.kind, attack_figure(evaluation, attack)


def attack_figure(evaluation: Evaluation, attack: Attack) -> Picture:
    """Plot an attack's main measures, a panel for each: groups of bars are settings, a bar is a protocol.

    ``numbers``: ``means`` (protocol, the attack's options, measure, n, mean, low, high, chance): means over parties and
    then over seeds, with 95 % intervals over seeds, which end where the measure does.
    """
    from matplotlib.patches import Patch

    from vflsim.plotting import bars, kinds_in, legend, picture, protocol_styles, remark

    table = headline(evaluation.tables[attack.kind])
    means, settings = means_of(table), settings_of(table)
    for measure, (least, greatest) in attack.ranges.items():
        ends = means.loc[means["measure"] == measure, ["low", "high"]].clip(least, greatest)
        means.loc[ends.index, ["low", "high"]] = ends
    names = list(means["protocol"].unique())
    styles = protocol_styles(kinds_in(evaluation.scenario))
    shown = [name for name in attack.drawn if (means["measure"] == name).any()]
    groups = list(dict.fromkeys(means[settings].itertuples(index=False, name=None)))
    width = 0.8 / len(names)
    across = 1.6 + 0.6 * len(groups) + 0.14 * len(groups) * len(names)
    with picture(max(4.0, across * len(shown)), 3.2, {"means": means}) as figure:
        panels = figure.subplots(1, len(shown), squeeze=False)[0]
        for axes, measure in zip(panels, shown, strict=True):
            of_measure = means[means["measure"] == measure]
            for place, name in enumerate(names):
                mine = of_measure[of_measure["protocol"] == name]
                group = [groups.index(key) for key in mine[settings].itertuples(index=False, name=None)]
                at = np.array(group) + (place - (len(names) - 1) / 2) * width
                bars(axes, at, mine, styles[name].color, width)
                axes.hlines(mine["chance"], at - width / 2, at + width / 2, color="black", linewidth=1.2)
            axes.set_xticks(range(len(groups)), [_label(settings, key) for key in groups])
            axes.set_ylabel(attack.measures[measure])
            if (of_measure["mean"] >= 0).all():
                axes.set_ylim(bottom=0)
            axes.set_title(attack.title if axes is panels[0] else " ", loc="left")
            seeds = len(table["seed"].unique())
            line = "; line: chance level" if of_measure["chance"].notna().any() else ""
            remark(axes, (f"mean and 95 % interval, {seeds} seeds" if seeds > 1 else "one seed") + line)
        legend(figure, [Patch(facecolor=styles[name].color) for name in names], names)
    return figure


def _label(settings: list[str], key: tuple[object, ...]) -> str:
    pairs = zip(settings, key, strict=True)
    words = (f"{name} {value:g}" if isinstance(value, float | int) else f"{value}" for name, value in pairs)
    return "\n".join(words) or "all"
