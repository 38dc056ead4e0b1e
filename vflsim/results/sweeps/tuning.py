"""The choice at the end of a tuning: score every run, then choose one value per protocol and one for all.

Scores come from validation rows alone. A failed run (for example diverged) has no score and rules its value out for
that protocol.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import isnan
from pathlib import Path
from typing import Any, Literal, Self, get_args

import numpy as np
import pandas as pd
import pyarrow as pa
from pydantic import BaseModel

from vflsim.errors import ResultsError
from vflsim.results.statistics.doubts import distinct, plateau_of
from vflsim.results.store.pages import read_page
from vflsim.results.sweeps import Sweep
from vflsim.tables import Cell, DataTable
from vflsim.tables.formats import markdown
from vflsim.vocabulary.amounts import Amount
from vflsim.vocabulary.metrics import higher_is_better
from vflsim.vocabulary.plain_yaml import flow

Score = Literal["plateau", "area"]
SCORES: Mapping[Score, str] = {
    "plateau": "the mean over the last tenth of a run's evaluations",
    "area": "the mean over a run's virtual time (the area under the curve, divided by the time)",
}
PREFIX = "validation_"
TUNING = "tuning.json"
COMMON, OWN = "common", "tuned"


class TuningPage(BaseModel, frozen=True, extra="forbid"):
    """Content of ``tuning.json``: how runs were scored, and the chosen values (null if every value failed)."""

    metric: str
    score: Score
    chosen: dict[str, Any]
    common: Any


@dataclass(frozen=True)
class Tuning:
    """A finished sweep over keys of ``training``, with its choice.

    ``metric`` is a column of the metrics tables, on validation rows; ``score`` is how a run's values become one number.
    """

    sweep: Sweep
    metric: str
    score: Score = "plateau"

    def __post_init__(self) -> None:
        """Raise ResultsError if the sweep has not finished, or did not evaluate the metric."""
        folder = str(self.sweep.folder)
        if self.sweep.pending:
            pending = ", ".join(flow(value) for (value,) in self.sweep.pending)
            raise ResultsError(
                f"{self.sweep.key} = {pending} has not finished", folder, remedy="resume it with --resume"
            )
        for study in self.sweep.results:
            if self.metric not in study.evaluated:
                raise ResultsError(f"{self.metric!r} was not evaluated", folder, ", ".join(study.evaluated) or "none")

    @classmethod
    def open(cls, folder: Path | str) -> Self:
        """Open the folder of a finished tuning. Raises ResultsError if it is not one, or is damaged."""
        try:
            page = read_page(TuningPage, Path(folder) / TUNING)
        except FileNotFoundError as error:
            raise ResultsError(f"no {TUNING} in it", str(folder), "a folder that vflsim tune has finished") from error
        return cls(Sweep.open(folder), page.metric, page.score)

    @cached_property
    def runs(self) -> pd.DataFrame:
        """One row per run: position (of the value, from 0), value, protocol, seed, score (NaN if it failed), error."""
        rows = [
            {
                "position": position,
                "value": value,
                "protocol": run.protocol,
                "seed": run.seed,
                "score": np.nan if run.failed else score_of(run.table("metrics").to_pandas(), self.metric, self.score),
                "error": (run.info.error or "?").splitlines()[0] if run.failed else None,
            }
            for position, (value, study) in enumerate(self.sweep)
            for run in study.runs
        ]
        return pd.DataFrame(rows).astype({"value": object, "error": object})

    @cached_property
    def scores(self) -> pd.DataFrame:
        """Mean scores over the tuning seeds: a row per position, a column per protocol; NaN if any run failed."""
        each = self.runs.groupby(["position", "protocol"])["score"]
        table = each.agg(lambda scores: scores.mean(skipna=False)).unstack("protocol")
        return table.reindex(index=range(len(self.sweep)), columns=list(self.sweep.protocols))

    @cached_property
    def chosen(self) -> dict[str, int | None]:
        """Position of each protocol's best value, the first of equal ones; None if every value failed."""
        return {name: _best(self._signed[name]) for name in self.sweep.protocols}

    @cached_property
    def common(self) -> int | None:
        """Position of the value with the best mean score over protocols; None if each value fails for some protocol.

        It also minimises the protocols' average distance from their own best scores.
        """
        return _best(self._signed.mean(axis=1, skipna=False))

    @property
    def _signed(self) -> pd.DataFrame:
        return self.scores if higher_is_better(self.metric, self.sweep.own_metrics) else -self.scores

    def warnings(self) -> Iterator[str]:
        """Yield warnings about the choice: edges of the grid, failures, ties."""
        values, name = [flow(value) for value in self.sweep.values], leaf(self.sweep.key)
        for protocol, position in self.chosen.items():
            if position is None:
                yield f"{protocol} failed at every value: it keeps the scenario's own training"
                continue
            if side := _edge(self.sweep.values, position):
                yield (
                    f"{protocol}: its best, {name} = {values[position]}, is the {side} of the grid; "
                    f"{'larger' if side == 'largest' else 'smaller'} values may be better still"
                )
            scores = self.scores[protocol]
            if len(equal := [values[k] for k in scores.index if scores[k] == scores[position]]) > 1:
                yield f"{protocol}: {name} = {', '.join(equal)} score the same; the first was chosen"
        for _, row in self.runs[self.runs["score"].isna()].iterrows():
            why = row["error"] or f"{self.metric} is not a number"
            where = f"{row['protocol']}, seed {row['seed']}, {name} = {flow(row['value'])}"
            yield f"{where}: failed, which rules the value out there: {why}"
        if self.common is None:
            yield "no value works for every protocol: there is no common value"

    def page(self) -> str:
        """Return the text of ``tuning.json``."""
        chosen = {name: None if at is None else self.sweep.values[at] for name, at in self.chosen.items()}
        common = None if self.common is None else self.sweep.values[self.common]
        page = TuningPage(metric=self.metric, score=self.score, chosen=chosen, common=common)
        return json.dumps(page.model_dump(mode="json"), indent=2, ensure_ascii=False) + "\n"

    def table(self) -> pa.Table:
        """Convert ``runs`` for Parquet, with ``chosen`` (the protocol's own value) and ``common``; values as YAML."""
        frame = self.runs.assign(
            value=[flow(value) for value in self.runs["value"]],
            chosen=[
                self.chosen[name] == at for name, at in zip(self.runs["protocol"], self.runs["position"], strict=True)
            ],
            common=self.runs["position"] == (-1 if self.common is None else self.common),
        )
        kinds = {"position": pa.int64(), "seed": pa.int64(), "score": pa.float64()}
        kinds |= {"chosen": pa.bool_(), "common": pa.bool_()}
        schema = pa.schema([pa.field(name, kinds.get(name, pa.string())) for name in frame.columns])
        return pa.table([pa.array(frame[f.name], f.type, from_pandas=True) for f in schema], schema=schema)


def score_of(metrics: pd.DataFrame, metric: str, score: Score) -> float:
    """Compute a run's score from its metrics table.

    ``plateau``: the mean over the last tenth of the evaluations. ``area``: the time average of the step function that
    holds each value until the next evaluation; if no time passes, the mean over the evaluations. NaN if there is none.
    """
    if score not in get_args(Score):
        raise ResultsError(f"there is no score {score!r}", "score", ", ".join(get_args(Score)))
    if score == "plateau":
        return plateau_of(distinct(metrics), metric)
    values, times = metrics[metric].to_numpy(dtype=float), metrics["time_s"].to_numpy(dtype=float)
    if times[-1] == times[0]:
        return float(values.mean())
    return float(values[:-1] @ np.diff(times) / (times[-1] - times[0]))


def main_validation_metric(evaluated: tuple[str, ...]) -> str:
    """Return the first validation metric that is not a loss, like ``Results.main_metric`` for test metrics."""
    known = [name for name in evaluated if name.startswith(PREFIX)]
    return sorted(known, key=lambda name: name.endswith("loss"))[0]


def leaf(key: str) -> str:
    """Return the last part of a dotted key (the last of tied keys): ``lr``."""
    return key.rpartition(".")[2]


def _best(scores: pd.Series) -> int | None:
    """Return the position of the highest score, the first of equal ones; None if there is none."""
    return None if scores.isna().all() else int(np.nanargmax(scores.to_numpy(dtype=float)))


def _edge(values: tuple[Any, ...], position: int) -> str:
    """Return "smallest" or "largest" for a value at an edge of those that differ in one number alone; else ""."""
    (kind, number), others = _number(values[position]), [_number(value) for value in values]
    alike = [each for other, each in others if other == kind and each is not None]
    if number is None or len(alike) < 2 or min(alike) < number < max(alike):
        return ""
    return "largest" if number == max(alike) else "smallest"


def _number(value: Any) -> tuple[str, float | None]:
    """Split a value into its other keys and its number: the value itself, or the learning rate of an optimiser."""
    if isinstance(value, Mapping):
        rest, value = {key: item for key, item in value.items() if key != "lr"}, value.get("lr")
        return flow(rest), _number(value)[1]
    return "", float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def tuning_table(tuning: Tuning) -> DataTable:
    """Tabulate all scores (a row per value, a column per protocol), with the procedure and warnings as notes."""
    rows: list[tuple[Cell, ...]] = []
    table = tuning.scores.to_numpy(dtype=float)
    for position, value in enumerate(tuning.sweep.values):
        common = position == tuning.common
        best = [*(tuning.chosen[name] == position for name in tuning.sweep.protocols), common]
        scores = zip([*table[position].tolist(), float(table[position].mean())], best, strict=True)
        cells = [Amount(score, form=".4g", before="* " * (first and not isnan(score))) for score, first in scores]
        rows.append((flow(value) + " (common)" * common, *cells))
    notes = [*procedure(tuning), *(f"Warning: {each}." for each in tuning.warnings())]
    header = (leaf(tuning.sweep.key), *tuning.sweep.protocols, "mean")
    return DataTable(header, rows, f"{tuning.sweep.scenario}: {tuning.metric}", notes)


def tuning_markdown(tuning: Tuning) -> str:
    """Return the same table as Markdown, the text of ``tuning.md``."""
    table = tuning_table(tuning)
    return markdown([table], table.title)


def procedure(tuning: Tuning) -> Iterator[str]:
    """Describe in sentences how the values were compared."""
    seeds = tuple(dict.fromkeys(seed for study in tuning.sweep.results for seed in study.seeds))
    runs = len(tuning.sweep) * len(seeds)
    yield (
        f"{tuning.sweep.key}: {len(tuning.sweep)} values, {runs} runs a protocol "
        f"({'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))})."
    )
    yield f"Score: {SCORES[tuning.score]} of {tuning.metric}."
    yield "* marks each protocol's best value; the common value has the best mean over protocols."
    yield "The best of several scores is best partly by chance: expect less of a chosen value on other seeds and rows."
