"""Protocols by a measure, best first, which of them the seeds do not tell apart, and a ranking within each budget."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, final

import pandas as pd
from pydantic import ValidationError

from vflsim.errors import ResultsError
from vflsim.intervals import CONFIDENCE, holm
from vflsim.results.run_set import RunSet
from vflsim.results.statistics import estimated
from vflsim.results.statistics.costs import as_outcomes, evaluated_too_seldom, standings
from vflsim.results.statistics.estimates import WIDE, Estimate, describe
from vflsim.results.tables.footnotes import MEANS, lost_runs, select
from vflsim.tables import Cell, DataTable
from vflsim.vocabulary.amounts import Amount
from vflsim.vocabulary.budgets import UNITS, Budget, Budgets, budget_from_text
from vflsim.vocabulary.metrics import higher_is_better, is_share, unit_of


@final
@dataclass(frozen=True)
class Ranking:
    """Protocols by a measure, best first.

    ``order`` has those of which every run has a value; ``close`` are those not clearly behind the first: t tests of
    all pairs, with Holm's correction for their number (5 %), do not tell them apart. ``estimates`` has all protocols.
    """

    order: tuple[str, ...]
    close: tuple[str, ...]
    estimates: dict[str, Estimate]
    unit: str

    @property
    def best(self) -> str:
        """The first protocol."""
        return self.order[0]

    def text(self, protocol: str, share: bool = False) -> str:
        """Format a protocol's value with its interval, or with three digits."""
        estimate = self.estimates[protocol]
        if not share and not estimate.censored and not estimate.wide and math.isnan(estimate.low):
            return str(Amount(estimate.mean, self.unit, form="three"))
        return str(describe(estimate, self.unit, share))


def ranking(
    results: RunSet, summary: pd.DataFrame, measure: str, target: str | None = None, highest: bool = False
) -> Ranking | None:
    """Rank the protocols by a measure, the lowest first; None if no protocol has a mean. References do not compete."""
    rows = select(summary, measure, target)
    references = {run.protocol for run in results.runs if run.info.reference}
    means = rows[rows["baseline"].isna() & ~rows["protocol"].isin(references)]
    estimates = {row["protocol"]: Estimate.of(row) for _, row in means.iterrows()}
    known = [name for name, each in estimates.items() if not each.censored]
    if not known:
        return None
    order = tuple(sorted(known, key=lambda name: estimates[name].mean, reverse=highest))
    pairs = rows[rows["protocol"].isin(order) & rows["baseline"].isin(order) & rows["p"].notna()]
    # All pairs count, not only those with the first: which is first is seen in the same runs.
    corrected = holm(pairs["p"].to_numpy(dtype=float))
    names = map(frozenset, zip(pairs["protocol"], pairs["baseline"], strict=True))
    p_values = dict(zip(names, corrected, strict=True))
    close = tuple(name for name in order[1:] if p_values.get(frozenset((name, order[0])), 0.0) >= 1 - CONFIDENCE)
    return Ranking(order, close, estimates, str(means["unit"].iloc[0]))


_LAST = (
    "The value at the last evaluation before the budget is spent, not the best one, which would be chosen on the rows "
    "that it is measured on."
)
_ENDED = "Ended before: runs that ended before they had spent the budget; they keep their last value."
_TOLD_APART = "Told apart from the best: by t tests of all pairs over common seeds, with Holm's correction (5 %)."
_ONE_SEED = "One seed does not tell protocols apart."


def budgets_from(given: Iterable[Mapping[str, Any] | str], where: str) -> list[Budget]:
    """Read budgets, in a scenario's form or as texts: ``{"time": "10 min"}`` or ``10 min``.

    Raises ResultsError, which names ``where`` they come from.
    """
    try:
        plain = [budget_from_text(each) if isinstance(each, str) else dict(each) for each in given]
        budgets = [budget for each in plain for budget in Budgets.model_validate(each).each]
    except ValidationError as error:
        what, _, allowed = error.errors()[0]["msg"].removeprefix("Value error, ").partition("; allowed: ")
        raise ResultsError(f"no budget: {what}", where, allowed or "{time: 10 min}") from error
    except ValueError as error:
        what, _, allowed = str(error).partition("; allowed: ")
        raise ResultsError(what, where, allowed) from error
    return budgets


def within(results: RunSet, metric: str, stood: pd.DataFrame) -> Ranking | None:
    """Rank the protocols by the values in ``standings``; None if no protocol has one in all its runs."""
    summary = estimated(results, as_outcomes(results, stood, metric))
    return ranking(results, summary, f"within_{metric}", highest=higher_is_better(metric, results.own_metrics))


def budget_table(results: RunSet, budget: Budget, metric: str | None = None) -> DataTable:
    """Rank the protocols by a metric (default: the main one) when they had spent a budget, the best first.

    Columns: the mean over seeds with its interval, the paired difference from the best protocol and whether the seeds
    tell the two apart, the number of runs with a value, what they had spent at the evaluation that counts (a mean), and
    how many had ended before, if any had. Protocols of which a run has no value are last. Raises ResultsError for a
    metric that was not evaluated.
    """
    metric = metric or results.main_metric
    title = f"{results.name}: {metric.replace('_', ' ')} within {budget}"
    return ranking_table(results, standings(results, budget, metric), budget, metric, title)


def ranking_table(results: RunSet, stood: pd.DataFrame, budget: Budget, metric: str, title: str) -> DataTable:
    """Rank the protocols by what their runs had reached, rows as of ``standings``; columns as of ``budget_table``."""
    ranks = within(results, metric, stood)
    best = None if ranks is None else ranks.best
    compared = results.against(best)
    summary = estimated(compared, as_outcomes(compared, stood, metric))
    means, differences = (
        {row["protocol"]: Estimate.of(row) for row in summary[chosen].to_dict("records")}
        for chosen in (summary["baseline"].isna(), summary["baseline"] == best)
    )
    unit, share = unit_of(metric, results.own_metrics), is_share(metric, results.own_metrics)
    ended, rows = bool(stood["ended"].any()), list[tuple[Cell, ...]]()
    order = () if ranks is None else ranks.order
    counts = Counter(run.protocol for run in results.runs)
    for name in (*order, *sorted({*means} - {*order}), *(each for each in results.protocols if each not in means)):
        mine = stood[stood["protocol"] == name]
        value, difference = (describe(of[name], unit, share) if name in of else "—" for of in (means, differences))
        at = Amount(float(mine["at"].mean()), UNITS[budget.cost], form="three")
        verdict = _verdict(name, ranks, differences) if name in means else "no value"
        runs = f"{mine['value'].notna().sum()} of {counts[name]}{lost_runs(results, name)}"
        row = (name, value, difference, verdict, runs, at)
        rows.append((*row, *([int(mine["ended"].sum())] if ended else [])))
    label = metric.replace("_", " ")
    header = ["protocol", label, f"vs {best or 'best'}", "told apart", "runs", "evaluated at"]
    header += ["ended before"] if ended else []
    notes = [*_notes(results, summary, stood, budget)]
    return DataTable(header, rows, title, notes, (0, 3))


def budget_tables(
    results: RunSet, budgets: Iterable[Budget] | None = None, metric: str | None = None
) -> list[DataTable]:
    """Make a table for each budget; None: for those that the scenario names, if anything was evaluated."""
    wanted = (results.budgets if results.evaluated else ()) if budgets is None else budgets
    return [budget_table(results, budget, metric) for budget in wanted]


def _verdict(name: str, ranks: Ranking | None, differences: Mapping[str, Estimate]) -> str:
    """Say whether the seeds tell a protocol with a value apart from the best one."""
    if ranks is None or name not in ranks.order:
        return "reference"
    if name == ranks.best:
        return "best"
    if name in ranks.close:
        return "no"
    return "unknown" if math.isnan(differences[name].p) else "yes"


def _notes(results: RunSet, summary: pd.DataFrame, stood: pd.DataFrame, budget: Budget) -> Iterator[str]:
    yield _LAST
    if stood["ended"].any():
        yield _ENDED
    if (summary["n"] > 1).any():
        yield MEANS
    if summary["baseline"].notna().any():
        yield _TOLD_APART if summary["p"].notna().any() else _ONE_SEED
    if without := [name for name in results.protocols if name not in {*summary["protocol"]}]:
        yield f"Last, since not every run has a value within {budget}: {', '.join(without)}."
    if seldom := evaluated_too_seldom(stood, budget):
        yield (
            f"Evaluated too seldom to tell: {', '.join(seldom)}. The models may have changed after the evaluation that "
            f"counts, while they spent more than {100 * WIDE:g} % of the budget."
        )
