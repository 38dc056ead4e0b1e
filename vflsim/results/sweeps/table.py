"""Tables of a sweep or a tuning, and both as users hold them: with tables, which notebooks show, and answers."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from vflsim.results.read import Results
from vflsim.results.statistics import STEADY, outcomes
from vflsim.results.statistics.costs import wanted_targets
from vflsim.results.statistics.doubts import heavy_tail_notes, past_best_note
from vflsim.results.statistics.estimates import Estimate, describe, resolution_note
from vflsim.results.statistics.quantiles import LEVELS, QUANTILES, too_slow
from vflsim.results.statistics.rounds import OPEN, open_notes
from vflsim.results.sweeps import ShownMeasure, Sweep, has_values, level_of, percentile, shown_measure
from vflsim.results.sweeps.answers import answers_frame
from vflsim.results.sweeps.answers_table import answer_tables
from vflsim.results.sweeps.axis import key_column
from vflsim.results.sweeps.comparison import budget_tables, comparison_tables, points_table
from vflsim.results.sweeps.tuning import TUNING, Tuning, tuning_table
from vflsim.results.tables.footnotes import AT_LEAST, MEANS, about_means, final_label, round_measure
from vflsim.results.tables.ranking import budgets_from
from vflsim.tables import DataTable
from vflsim.vocabulary.budgets import Budget
from vflsim.vocabulary.metrics import is_share


def sweep_tables(
    sweep: Sweep,
    metric: str | None = None,
    quantiles: bool = False,
    *,
    budgets: Sequence[Budget] | None = None,
    baseline: str | None = None,
    pairing: bool = False,
) -> list[DataTable]:
    """Tabulate what was measured at every point, protocols in pairs and within budgets, and what the sweep answers.

    ``metric`` is shown alone: a metric, a measure, or a percentile of the rounds such as ``p99``; or ``quantiles`` of
    the rounds. ``budgets`` are instead of the scenario's, ``baseline`` is the protocol of all pairs. See
    ``measure_tables``, :mod:`~vflsim.results.sweeps.comparison` and
    :func:`~vflsim.results.sweeps.answers_table.answer_tables`. Raises NotRecordedError for what runs do not have,
    ResultsError for an unknown baseline, or a metric of a budget that was not evaluated. Of a tuning, the table has its
    scores, unless a ``metric`` or ``quantiles`` are asked for.
    """
    if (sweep.folder / TUNING).is_file() and metric is None and not quantiles:
        return [tuning_table(Tuning.open(sweep.folder))]
    within = [] if quantiles and not budgets else budget_tables(sweep, budgets, metric)
    if quantiles:
        every = [shown_measure(percentile(level), sweep.measures, "--quantiles") for level in LEVELS]
        every = [each for each in every if has_values(sweep.estimates(each.measure))] or every[:1]
        return [*_alone(sweep, every), *within]
    pairs = comparison_tables(sweep, metric, baseline, pairing)
    if metric is not None:
        return [*_alone(sweep, [shown_measure(metric, sweep.measures, "--metric")]), *pairs, *within]
    return [*measure_tables(sweep), *pairs, *within, *answer_tables(sweep)]


def measure_tables(sweep: Sweep) -> list[DataTable]:
    """Tabulate the mean round duration and, if there was training, the time to each target at every point.

    Where some run did not reach the first target, or there is none, the final level of the main metric is added.
    """
    measures = {round_measure(summary) for summary in sweep.summaries}
    single = measures == {STEADY}
    tables = [_table(sweep, STEADY if single else "round_duration", None, "mean round")]
    targets = dict.fromkeys(target for summary in sweep.summaries for target in summary["target"].dropna())
    tables += [_table(sweep, "time_to_target", target, f"time to {target}") for target in targets]
    if not _all_reached(sweep, [*targets][:1]) and (metric := _main_metric(sweep)):
        tables.append(_table(sweep, f"plateau_{metric}", None, final_label(metric)))
    tables[-1].notes = [*_notes(sweep, single)]
    return tables


def _alone(sweep: Sweep, shown: Sequence[ShownMeasure]) -> list[DataTable]:
    """Tabulate measures, without what the sweep answers."""
    tables = [_table(sweep, each.measure, each.target, each.label) for each in shown]
    if shown[0].measure in sweep.measures:
        rounds, about_target = shown[0].measure in ("round_duration", STEADY), shown[0].target is not None
        notes = _notes(sweep, shown[0].measure == STEADY) if rounds or about_target else _about_other(sweep)
    else:
        notes = _about_quantiles(sweep, any("—" in row for table in tables for row in table.rows))
    tables[-1].notes = [*notes]
    return tables


def _all_reached(sweep: Sweep, targets: Sequence[str]) -> bool:
    costs = [sweep.estimates("time_to_target", target) for target in targets]
    return bool(costs) and all((each["reached"] == each["n"]).all() for each in costs)


def _main_metric(sweep: Sweep) -> str | None:
    """Return the metric to compare, if any point was evaluated."""
    return next((study.main_metric for study in sweep.results if study.evaluated), None)


def _table(sweep: Sweep, measure: str, target: str | None, title: str) -> DataTable:
    # Where rounds were not kept there is no mean round, and the table shows dashes.
    known = measure in sweep.measures or level_of(measure) is not None
    cells = {
        (row["position"], row["protocol"]): describe(
            Estimate.of(row), row["unit"], share=is_share(measure.removeprefix("plateau_"), sweep.own_metrics)
        )
        for _, row in (sweep.estimates(measure, target).iterrows() if known else ())
    }
    return points_table(sweep, cells, title)


def _notes(sweep: Sweep, single: bool) -> Iterator[str]:
    if single:
        yield "Mean rounds of single runs after their warm-up, ± 95 % by batch means where there is a sound interval."
    if any((summary["n"] > 1).any() for summary in sweep.summaries):
        yield from about_means(sweep.summaries)
        yield from heavy_tail_notes([*zip(sweep.results, sweep.summaries, strict=True)], means=True)
        if any(study.evaluated for _, study in sweep):
            yield "± leaves out the sampling error of the test and validation rows: all seeds share one split."
    if any(OPEN in open_notes(study) for study in sweep.results):
        yield OPEN
    yield from _by_points(sweep, lambda study: (note for note in open_notes(study) if note != OPEN))
    if any((summary["reached"] < summary["n"]).any() for summary in sweep.summaries):
        yield AT_LEAST
    yield from _by_points(sweep, lambda study: _too_rough(study, sweep))
    yield from _by_points(sweep, past_best_note)
    yield from _missing(sweep)


def _about_other(sweep: Sweep) -> Iterator[str]:
    if any((summary["n"] > 1).any() for summary in sweep.summaries):
        yield MEANS
    yield from _missing(sweep)


def _about_quantiles(sweep: Sweep, lacking: bool) -> Iterator[str]:
    yield QUANTILES
    if lacking:
        yield "“—”: too few rounds for an interval, and so for a number."
    yield from _by_points(sweep, too_slow)
    yield from _missing(sweep)


def _missing(sweep: Sweep) -> Iterator[str]:
    """Name the runs that failed, and the points that have not finished."""
    for point, study in zip(sweep.points, sweep.results, strict=True):
        for run in study.failed:
            problem = (run.info.error or "?").splitlines()[0]
            what = "Diverged" if run.diverged else "Failed and left out"
            yield f"{what}: {sweep.setting(point)}, {run.protocol}, seed {run.seed}: {problem}"
    if sweep.pending:
        yield f"Not finished: {'; '.join(map(sweep.setting, sweep.pending))}."


def _too_rough(study: Results, sweep: Sweep) -> Iterator[str]:
    """Yield the notes on evaluations that are too far apart."""
    summary, measured = sweep.summaries[sweep.results.index(study)], outcomes(study, sweep.targets)
    for target in wanted_targets(study, sweep.targets):
        yield from resolution_note(study, summary, target, measured)


def _by_points(sweep: Sweep, notes: Callable[[Results], Iterable[str]]) -> Iterator[str]:
    """Yield every note on the results of points once, with the points that it is about."""
    points: dict[str, list[str]] = {}
    for point, study in zip(sweep.points, sweep.results, strict=True):
        for note in notes(study):
            points.setdefault(note, []).append(sweep.setting(point))
    for note, settings in points.items():
        yield f"{'every point' if len(settings) == len(sweep.points) > 1 else '; '.join(settings)}: {note}"


_RUN = ["protocol", "seed", "status", "error"]
_TO_TARGET = ("time_to_target_s", "rounds_to_target", "bytes_to_target", "energy_to_target")


def sweep_frame(sweep: Sweep) -> pd.DataFrame:
    """Return one row per run: a column per key, then protocol, seed, status, error and the run's measures.

    Measures are those of :func:`~vflsim.results.statistics.outcomes`, with ``_s`` behind those in seconds;
    ``reached`` says whether the run reached the (first) target, and the costs until then are NaN if not. A cost lies
    above the one with ``_lower`` behind its name, which the evaluation before, or the end, tells. Keys whose values are
    all numbers are numbers in the unit of the first value, which their column names: ``up_Mbps``.
    """
    frames = [
        _measures(study, sweep).assign(position=position) for position, study in enumerate(sweep.results) if study.runs
    ]
    runs = pd.concat(frames, ignore_index=True)
    taken = {*runs.columns}
    for place, axis in enumerate(sweep.axes):
        name, values = key_column(axis, taken)
        runs.insert(place, name, pd.Series(values)[runs["position"]].to_numpy())
    return runs.drop(columns="position")


def _measures(results: Results, sweep: Sweep) -> pd.DataFrame:
    runs = pd.DataFrame(
        [(run.protocol, run.seed, run.info.status, run.info.error) for run in results.runs], columns=_RUN
    )
    rows = outcomes(results, sweep.targets)
    first = rows["target"].dropna().unique()[:1]
    rows = rows[rows["target"].isna() | rows["target"].isin(first)]
    rows = rows.assign(measure=rows["measure"] + rows["unit"].map(lambda unit: "_s" if unit == "s" else ""))
    wide = rows.pivot(index=["protocol", "seed"], columns="measure", values="value")
    wide = wide[list(dict.fromkeys(rows["measure"]))]
    if len(first):
        lower = rows.pivot(index=["protocol", "seed"], columns="measure", values="lower")
        costs = [cost for cost in _TO_TARGET if cost in wide]
        wide = wide.join(lower[costs].add_suffix("_lower"))
        censored = rows[rows["measure"] == _TO_TARGET[0]].set_index(["protocol", "seed"])["censored"].astype(bool)
        wide["reached"] = ~censored
        wide.loc[censored[censored].index, costs] = float("nan")
    return runs.merge(wide.reset_index(), on=["protocol", "seed"], how="left")


class SweepResults(Sweep):
    """The finished part of a sweep, with tables and frames.

    Example: ``SweepResults.open("results/batches").tables()``
    """

    def tables(
        self,
        metric: str | None = None,
        *,
        budgets: Sequence[Mapping[str, Any] | str] | None = None,
        baseline: str | None = None,
        pairing: bool = False,
    ) -> list[DataTable]:
        """Make the tables that ``vflsim sweep`` prints: what was measured, comparisons, and what the sweep answers.

        ``metric`` is shown alone: a metric, a measure, or a percentile of the rounds such as ``p99``. ``budgets``,
        ``baseline`` and ``pairing`` are those of ``vflsim compare``.

        Example: ``sweep.tables(budgets=["10 min", "20 MB"])``
        """
        wanted = None if budgets is None else budgets_from(budgets, "tables")
        return sweep_tables(self, metric, budgets=wanted, baseline=baseline, pairing=pairing)

    def runs(self) -> pd.DataFrame:
        """Return a row per run: see :func:`~vflsim.results.sweeps.table.sweep_frame`."""
        return sweep_frame(self)

    def answers(self) -> pd.DataFrame:
        """Say which values are best: see :func:`~vflsim.results.sweeps.answers.answers_frame`."""
        return answers_frame(self)

    def _repr_html_(self) -> str:
        return "\n".join(table._repr_html_() for table in self.tables())


class TuningResults(Tuning):
    """A finished tuning, with its table."""

    def table(self) -> DataTable:
        """Make the table that ``vflsim tune`` prints."""
        return tuning_table(self)

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()
