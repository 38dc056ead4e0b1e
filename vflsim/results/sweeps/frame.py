"""All runs of a sweep as one tidy frame."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from vflsim.results.read import Results
from vflsim.results.statistics.summary import outcomes
from vflsim.results.sweeps.axis import SweepAxis
from vflsim.results.sweeps.sweep import Sweep
from vflsim.vocabulary.plain_yaml import flow

_RUN = ["protocol", "seed", "status", "error"]
_TO_TARGET = ("time_to_target_s", "rounds_to_target", "bytes_to_target", "energy_to_target")


def sweep_frame(sweep: Sweep) -> pd.DataFrame:
    """Return one row per run: a column per key, then protocol, seed, status, error and the run's measures.

    Measures are those of :func:`~vflsim.results.statistics.summary.outcomes`, with ``_s`` behind those in seconds;
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


def key_column(axis: SweepAxis, taken: set[str]) -> tuple[str, Sequence[Any]]:
    """Return the name and the values of a key's column, point by point; the name is none of those ``taken``."""
    unit, factor = axis.unit
    values: Sequence[Any] = [value if isinstance(value, str) else flow(value) for value in axis.values]
    if (numbers := axis.numbers) is not None:
        values = [int(number) if number == value else number / factor
                  for number, value in zip(numbers, axis.values, strict=True)]  # fmt: skip
    name = axis.key if axis.name in taken else axis.name
    return f"{name}_{unit}" if unit and numbers is not None else name, values
