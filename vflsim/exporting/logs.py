"""Export finished runs to a tracker, from their tables: names, parameters, series, and numbers about a whole run."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from vflsim.finished import Results, StoredRun, Sweep, open_folder, outcomes
from vflsim.scenario import flow

AXES = ("time_s", "round")
"""The columns of the metrics that series are drawn against: virtual time and server steps."""
BY_TIME = "by_time/"
"""How the series begin whose steps are virtual milliseconds."""
STEP_S = 1e-3
"""Virtual seconds of such a step: trackers count steps in whole numbers."""


@dataclass(frozen=True)
class Log:
    """One run for a tracker.

    ``study`` is the scenario's name, ``group`` the point of a sweep (else empty), ``name`` is unique in the study.
    ``rows`` are the metrics in order, with the columns ``AXES`` first; cells may be NaN. ``totals`` has costs to the
    target that were paid, the mean round and the like, in SI units.
    """

    study: str
    group: str
    name: str
    parameters: dict[str, str | int | float]
    rows: pd.DataFrame
    totals: dict[str, float]
    finished: bool

    @property
    def series(self) -> list[str]:
        """The columns that are drawn."""
        return [name for name in self.rows.columns if name not in AXES]

    def points(self) -> Iterator[tuple[float, int, dict[str, float]]]:
        """Yield virtual time, round and the values of every evaluation; what was not measured is left out."""
        for row in self.rows.to_dict("records"):
            values = {name: float(row[name]) for name in self.series if math.isfinite(float(row[name]))}
            yield float(row["time_s"]), int(row["round"]), values


def step_of(time_s: float) -> int:
    """Return virtual time as a step: whole milliseconds."""
    return round(time_s / STEP_S)


def logs_of(folder: Path) -> Iterator[Log]:
    """Yield every run of a results folder, or of all finished points of a sweep. Raises ResultsError."""
    opened = open_folder(folder)
    if isinstance(opened, Results):
        yield from _logs(opened, {})
        return
    for position, results in enumerate(opened.results):
        yield from _logs(results, {axis.name: _plain(axis.values[position]) for axis in opened.axes}, opened)


def _plain(value: Any) -> str | int | float:
    return value if isinstance(value, int | float | str) else flow(value)


def _logs(results: Results, values: Mapping[str, str | int | float], sweep: Sweep | None = None) -> Iterator[Log]:
    group = ", ".join(f"{name} = {value}" for name, value in values.items())
    measured = outcomes(results)
    for run in results.runs:
        rows = run.frame("metrics").drop(columns=["protocol", "seed"])
        rows = rows[[*AXES, *(name for name in rows.columns if name not in AXES)]]
        yield Log(
            study=sweep.scenario if sweep is not None else results.name,
            group=group,
            name=", ".join(filter(None, [run.protocol, group, f"seed {run.seed}"])),
            parameters={**_parameters(results, run), **values},
            rows=rows,
            totals=_totals(measured[(measured["protocol"] == run.protocol) & (measured["seed"] == run.seed)]),
            finished=not run.failed,
        )


def _parameters(results: Results, run: StoredRun) -> dict[str, str | int | float]:
    """Return what a run was: protocol and its own settings, seed, how it ended, versions."""
    settings: Mapping[str, Any] = results.scenario["protocols"].get(run.protocol) or {}
    info = run.info
    parameters: dict[str, str | int | float] = {
        **{"scenario": results.name, "protocol": run.protocol, "seed": run.seed},
        **{f"protocol.{key}": _plain(value) for key, value in settings.items()},
        **{"status": info.status, "stop_reason": info.stop_reason or "", "error": info.error or ""},
        **{f"version.{name}": version for name, version in info.versions.items()},
    }
    return {key: value for key, value in parameters.items() if value != ""}


def _totals(outcomes_of_run: pd.DataFrame) -> dict[str, float]:
    """Return a run's numbers; with several targets, costs of the first one. Costs that were not paid are left out.

    A cost lies above the one with ``_lower`` behind its name, which the evaluation before tells.
    """
    target, censored = outcomes_of_run["target"], outcomes_of_run["censored"].astype(bool)
    shown = outcomes_of_run[(target.isna() | target.isin(target.dropna().unique()[:1])) & ~censored]
    costs = shown[shown["target"].notna()]
    pairs = [*zip(shown["measure"], shown["value"], strict=True)]
    pairs += zip(costs["measure"] + "_lower", costs["lower"], strict=True)
    return {str(name): float(value) for name, value in pairs if math.isfinite(float(value))}
