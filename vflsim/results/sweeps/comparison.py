"""Protocols of a sweep in pairs: within every point and seed, then over all points and seeds together.

Points are what a user has chosen, seeds are a sample. So a pair's ratios (or differences) are averaged over the points
of each seed, and the interval is that of the mean over seeds.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import pandas as pd

from vflsim.errors import ResultsError
from vflsim.results.read import Results
from vflsim.results.statistics import estimated, outcomes
from vflsim.results.statistics.costs import as_outcomes, standings
from vflsim.results.statistics.estimates import Estimate, SeedSample, describe, paired
from vflsim.results.statistics.pairs import Ratio, ratio
from vflsim.results.sweeps import ShownMeasure, Sweep, level_of, shown_measure
from vflsim.results.tables import pairing as gain
from vflsim.results.tables.footnotes import BOUNDED, final_label
from vflsim.results.tables.ranking import ranking_table
from vflsim.tables import Cell, DataTable
from vflsim.vocabulary.budgets import Budget
from vflsim.vocabulary.metrics import is_share
from vflsim.vocabulary.plain_yaml import flow

_METRICS = ("end_", "plateau_", "best_")
"""What measures begin with that are metrics, whose differences are compared, not ratios."""
_COSTS = ("time_to_target", "bytes_to_target", "energy_to_target")


@final
@dataclass(frozen=True)
class PointPair:
    """One protocol against the baseline in one measure, over the points with common seeds.

    ``overall`` is over points and seeds; ``by_point`` has the comparison of each point, by its position. Both are the
    baseline's amount ÷ the protocol's, or for metrics the protocol's − the baseline's. ``narrower`` is the gain from
    pairing.
    """

    protocol: str
    overall: Ratio | Estimate
    by_point: dict[int, Ratio | Estimate]
    narrower: float = float("nan")


def pairs_of(sweep: Sweep, shown: ShownMeasure, baseline: str) -> list[PointPair]:
    """Compare every protocol but references with the baseline; those without a common point and seed are left out."""
    rows = [_rows(study, sweep, shown) for study in sweep.results]
    measured = pd.concat([each.assign(position=place) for place, each in enumerate(rows)], ignore_index=True)
    ratios = not shown.measure.startswith(_METRICS) and bool((measured["value"] >= 0).all())
    references = {run.protocol for study in sweep.results for run in study.runs if run.info.reference}
    names = [name for name in sweep.protocols if name != baseline and name not in references]
    pairs = (_pair(measured, name, baseline, ratios) for name in names)
    return [pair for pair in pairs if pair is not None]


def _rows(study: Results, sweep: Sweep, shown: ShownMeasure) -> pd.DataFrame:
    rows = outcomes(study, sweep.targets)
    rows = rows[(rows["measure"] == shown.measure)]
    rows = rows[rows["target"].isna() if shown.target is None else rows["target"] == shown.target]
    return rows[["protocol", "seed", "value", "lower", "censored"]]


def _pair(measured: pd.DataFrame, name: str, baseline: str, ratios: bool) -> PointPair | None:
    cells, others = (measured[measured["protocol"] == each][["position", "seed"]] for each in (name, baseline))
    common = cells.merge(others)
    if common.empty:
        return None
    both = measured[measured["protocol"].isin([name, baseline])].merge(common)
    pooled = _over_points(both, ratios)
    overall = _compared(pooled, name, baseline, ratios)
    by_point = {
        int(str(position)): each
        for position, rows in both.groupby("position", sort=True)
        if (each := _compared(rows, name, baseline, ratios)) is not None
    }
    if overall is None:
        return None
    own, its = (_sample(pooled, each, logarithms=ratios) for each in (name, baseline))
    return PointPair(name, overall, by_point, paired(own, its).narrower)


def _over_points(rows: pd.DataFrame, ratios: bool) -> pd.DataFrame:
    """Average every run's amount over the points of its seed: geometric means for ratios; one censored censors all."""
    with np.errstate(divide="ignore"):  # a cost of 0
        logs = rows.assign(value=np.log(rows["value"]), lower=np.log(rows["lower"])) if ratios else rows
    means = logs.groupby(["protocol", "seed"], sort=False, as_index=False).agg(
        {"value": "mean", "lower": "mean", "censored": "any"}
    )
    return means.assign(value=np.exp(means["value"]), lower=np.exp(means["lower"])) if ratios else means


def _compared(rows: pd.DataFrame, name: str, baseline: str, ratios: bool) -> Ratio | Estimate | None:
    if ratios:
        return ratio(rows, name, baseline)
    return paired(_sample(rows, name), _sample(rows, baseline))


def _sample(rows: pd.DataFrame, name: str, logarithms: bool = False) -> SeedSample:
    own = rows[rows["protocol"] == name].sort_values("seed")
    if logarithms:
        with np.errstate(divide="ignore"):
            own = own.assign(value=np.log(own["value"]), lower=np.log(own["lower"]))
    return SeedSample.of(own)


# --- tables -----------------------------------------------------------------------------------------------------------


def comparison_tables(
    sweep: Sweep, metric: str | None = None, baseline: str | None = None, pairing: bool = False
) -> list[DataTable]:
    """Tabulate every protocol against the baseline, paired over points and seeds: a table for each measure.

    Measures are what the first target costs, or without a target the mean round and the final level of the main metric;
    or ``metric`` alone. ``baseline`` defaults to the first protocol that waits for all clients; ``pairing`` adds by how
    much pairing narrows intervals. None for percentiles of rounds, which no single run has. Raises ResultsError for an
    unknown baseline.
    """
    first = sweep.results[0].first if baseline is None else baseline
    if first not in sweep.protocols:
        raise ResultsError(f"there is no protocol {first!r}", str(sweep.folder), ", ".join(sweep.protocols))
    compared = [(shown, pairs_of(sweep, shown, first)) for shown in _shown(sweep, metric)]
    tables = [_table(sweep, shown, pairs, first, pairing) for shown, pairs in compared if pairs]
    if tables:
        tables[-1].notes = [*_notes([pair for _, pairs in compared for pair in pairs], first, sweep)]
    return tables


def _shown(sweep: Sweep, metric: str | None) -> Iterator[ShownMeasure]:
    if metric is not None:
        if metric in sweep.measures or level_of(metric) is None:
            yield shown_measure(metric, sweep.measures, "--metric")
        return
    costs = [cost for cost in _COSTS if sweep.measures.get(cost)]
    if costs:
        target = sweep.measures[costs[0]][0]
        yield from (ShownMeasure(cost, target, f"{cost.partition('_')[0]} to {target}") for cost in costs)
        return
    if "round_duration" in sweep.measures:
        yield ShownMeasure("round_duration", None, "mean round")
    level = next((f"plateau_{study.main_metric}" for study in sweep.results if study.evaluated), "")
    if level in sweep.measures:
        yield ShownMeasure(level, None, final_label(level.removeprefix("plateau_")))


def _table(sweep: Sweep, shown: ShownMeasure, pairs: Sequence[PointPair], baseline: str, pairing: bool) -> DataTable:
    unit = next(iter(sweep.estimates(shown.measure, shown.target)["unit"]))
    share = is_share(shown.measure.partition("_")[2], sweep.own_metrics)

    def cell(each: Ratio | Estimate) -> Cell:
        return each.cell if isinstance(each, Ratio) else describe(each, unit, share)

    rows: list[tuple[Cell, ...]] = []
    for pair in pairs:
        least, most = (choose(pair.by_point, key=lambda at: pair.by_point[at].mean) for choose in (min, max))
        signs = [_sign(each) for each in pair.by_point.values()]
        counts = [signs.count(sign) for sign in (-1, 1, 0)]
        ends = [end for at in (least, most) for end in (cell(pair.by_point[at]), sweep.setting(sweep.points[at]))]
        worth = [gain(pair.narrower) or "—"] if pairing else []
        rows.append((pair.protocol, cell(pair.overall), *ends, *counts, *worth))
    header = ["protocol", f"vs {baseline}", "least", "least at", "most", "most at", "less", "more", "not apart"]
    header += ["by pairs"] if pairing else []
    title = f"{sweep.scenario}: {shown.label}{_paired(sweep)}"
    return DataTable(header, rows, title=title, left=(0, 3, 5))


def _paired(sweep: Sweep) -> str:
    return f", paired over {len(sweep)} point{'s' * (len(sweep) > 1)} and their seeds"


def _sign(each: Ratio | Estimate) -> int:
    """Tell whether a protocol has less (−1) or more (1) than the baseline, with 95 %; 0: the seeds do not tell."""
    low, high = each.low, each.high
    if isinstance(each, Ratio):
        if each.bound in ("most", "least") and not np.isnan(each.of_bounds[0]):
            low, high = (0.0, each.of_bounds[1]) if each.bound == "most" else (each.of_bounds[0], np.inf)
        return -1 if low > 1 else 1 if high < 1 else 0
    return 1 if low > 0 else -1 if high < 0 else 0


def _notes(pairs: Sequence[PointPair], baseline: str, sweep: Sweep) -> Iterator[str]:
    every = [each for pair in pairs for each in (pair.overall, *pair.by_point.values())]
    if any(isinstance(each, Ratio) for each in every):
        yield (
            f"“vs {baseline}”: the amount of {baseline} ÷ that of the protocol, within each point and seed: geometric "
            "mean over the points of a seed, then over seeds with its 95 % interval."
        )
    if any(isinstance(each, Estimate) for each in every):
        yield (
            f"“vs {baseline}” of metrics: the protocol's − that of {baseline}, within each point and seed: mean over "
            "the points of a seed, then over seeds with its 95 % interval."
        )
    yield (
        "Less, more, not apart: the number of points at which the protocol has less or more of it, by a 95 % "
        "interval over seeds at each point."
    )
    if any(isinstance(each, Ratio) and each.bound in ("most", "least", "none") for each in every):
        yield BOUNDED
    if any(sweep.choices):
        chosen = [axis.name for axis, choice in zip(sweep.axes, sweep.choices, strict=True) if choice]
        yield f"All values of choices count alike ({', '.join(chosen)}); the answers say what the best ones give."
    if max(len(study.seeds) for study in sweep.results) < 2:
        yield "One seed tells nothing apart: run more (--seeds 0:5)."


# --- budgets ----------------------------------------------------------------------------------------------------------


def budget_tables(sweep: Sweep, budgets: Iterable[Budget] | None = None, metric: str | None = None) -> list[DataTable]:
    """Tabulate what protocols had reached within each budget: at every point, and over points and seeds together.

    ``budgets`` defaults to those that the scenario names, if anything was evaluated; ``metric`` to the main one. Raises
    ResultsError for a metric that was not evaluated.
    """
    study = sweep.results[0]
    wanted = (study.budgets if study.evaluated else ()) if budgets is None else budgets
    return [table for budget in wanted for table in _budget_tables(sweep, budget, metric or study.main_metric)]


def _budget_tables(sweep: Sweep, budget: Budget, metric: str) -> Iterator[DataTable]:
    stood = [standings(study, budget, metric) for study in sweep.results]
    cells: dict[tuple[int, str], Cell] = {}
    share, label = is_share(metric, sweep.own_metrics), metric.replace("_", " ")
    for position, (study, each) in enumerate(zip(sweep.results, stood, strict=True)):
        means = estimated(study, as_outcomes(study, each, metric))
        for row in means[means["baseline"].isna()].to_dict("records"):
            cells[position, row["protocol"]] = describe(Estimate.of(row), row["unit"], share)
    yield points_table(sweep, cells, f"{label} within {budget}")
    by_run = pd.concat(stood, ignore_index=True).groupby(["protocol", "seed"], sort=False)
    pooled = by_run.agg({"value": "mean", "at": "mean", "until": "min", "ended": "any"})
    pooled.loc[by_run["value"].count() < len(sweep), "value"] = np.nan
    title = f"{sweep.scenario}: {label} within {budget}{_paired(sweep)}"
    yield ranking_table(sweep.results[0], pooled.reset_index(), budget, metric, title)


def points_table(sweep: Sweep, cells: Mapping[tuple[int, str], Cell], title: str) -> DataTable:
    """Tabulate a cell for every point, by its position, and protocol; a dash where there is none."""
    rows = [
        (*map(flow, point), *(cells.get((position, name), "—") for name in sweep.protocols))
        for position, point in enumerate(sweep.points)
    ]
    return DataTable((*key_heads(sweep), *sweep.protocols), rows, title=f"{sweep.scenario}: {title}")


def key_heads(sweep: Sweep) -> list[str]:
    """Return a column's head for each key; where keys are of both sorts, with ``choice`` or ``world`` behind it."""
    both = len({*sweep.choices}) > 1
    sorts = [" (choice)" if chosen else " (world)" for chosen in sweep.choices]
    return [axis.label + sort * both for axis, sort in zip(sweep.axes, sorts, strict=True)]
