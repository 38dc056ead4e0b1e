"""A set of runs of one scenario, read from its results folder: frames and weights, each loaded on first use."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import asdict, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Self, TypeVar

import pandas as pd
from pydantic import BaseModel, TypeAdapter, ValidationError

from vflsim.errors import ResultsError, no_results
from vflsim.party_names import names_of
from vflsim.results.store.folder import SCENARIO, SWEEP
from vflsim.results.store.pages import read_info, read_scenario
from vflsim.results.store.run import NotRecordedError, StoredRun
from vflsim.results.store.schema import TableName, split_of
from vflsim.scenario.sections import Evaluate
from vflsim.streams import party_name
from vflsim.vocabulary.budgets import Budget, Budgets
from vflsim.vocabulary.metric import MetricFacts
from vflsim.vocabulary.metrics import is_known
from vflsim.vocabulary.on_demand import torch
from vflsim.vocabulary.quantities import Number
from vflsim.vocabulary.targets import Target, Targets, named

_NUMBER: TypeAdapter[float] = TypeAdapter(Number)
_Part = TypeVar("_Part", bound=BaseModel)
_SEED = re.compile(r"seed-(\d+)")


class RunSet:
    """All runs of one scenario: frames and weights. ``Results`` adds summaries.

    ``runs`` are in the scenario's order of protocols, then by seed. Runs and frames include failed runs (see
    ``info.status`` and :attr:`failed`); summaries and figures leave them out and say so. ``baseline`` is the protocol
    that the others are compared with, if :meth:`against` has chosen one.
    """

    baseline: str | None = None
    _chosen: tuple[Target, ...] | None = None

    def __init__(self, folder: Path, scenario: Mapping[str, Any], runs: tuple[StoredRun, ...]) -> None:
        self.folder, self.scenario, self.runs = folder, scenario, runs
        self._frames: dict[TableName, pd.DataFrame] = {}
        self._computed: dict[str, pd.DataFrame] = {}

    @classmethod
    def open(cls, folder: Path | str, trust: bool = False) -> Self:
        """Open a results folder; this reads only the scenario and every ``run.json``.

        With ``trust``, rebuilding models may import modules that the scenario names, which runs their code.
        Raises ResultsError if the folder is absent, is not a results folder, holds no run, or has a damaged page.
        """
        folder = Path(folder)
        if not (folder / SCENARIO).is_file():
            if (folder / SWEEP).is_file():
                problem, remedy = "holds a sweep, not the results of one scenario", f"vflsim compare {folder}"
                raise ResultsError(problem, str(folder), "one of the folders in it", remedy)
            problem = f"no {SCENARIO} in it" if folder.is_dir() else "no such folder"
            raise no_results(folder, problem)
        scenario = read_scenario(folder / SCENARIO)
        runs = [
            StoredRun(place, read_info(place), trusted=trust)
            for protocol in sorted(entry for entry in folder.iterdir() if entry.is_dir())
            for place in protocol.iterdir()
            if _SEED.fullmatch(place.name)
        ]
        if not runs:
            raise ResultsError("holds no run", str(folder), remedy=f"vflsim run {folder / SCENARIO}")
        order = {name: position for position, name in enumerate(scenario["protocols"])}
        runs.sort(key=lambda run: (order.get(run.protocol, len(order)), run.protocol, run.seed))
        return cls(folder, scenario, tuple(runs))

    @property
    def name(self) -> str:
        """Name of the scenario."""
        return str(self.scenario.get("name", self.folder.name))

    @cached_property
    def protocols(self) -> tuple[str, ...]:
        """Protocols with a run, in the scenario's order."""
        return tuple(dict.fromkeys(run.protocol for run in self.runs))

    @cached_property
    def seeds(self) -> tuple[int, ...]:
        """Seeds with a run, ascending."""
        return tuple(sorted({run.seed for run in self.runs}))

    @property
    def failed(self) -> tuple[StoredRun, ...]:
        """Runs that ended in an error, diverging included."""
        return tuple(run for run in self.runs if run.failed)

    @property
    def metrics(self) -> pd.DataFrame:
        """Metrics of all runs: protocol, seed, time_s, round, updates, bytes_…, train_loss, test_…, ``…_age_…``."""
        return self._frame("metrics")

    @property
    def rounds(self) -> pd.DataFrame:
        """Server steps of all runs: protocol, seed, round, start_s, end_s, used, missing, fresh."""
        return self._frame("rounds")

    @property
    def events(self) -> pd.DataFrame:
        """Activities of all parties in all runs, with the scenario's names of the parties.

        Large: ``run(protocol, seed).frame("events")`` reads one run, and says ``client-2`` as its file does.
        """
        frame = self._frame("events")
        names = {party_name(client): name for client, name in names_of(self.scenario).items()}
        return frame.assign(**{who: frame[who].cat.rename_categories(names) for who in ("party", "peer")})

    @property
    def answers(self) -> pd.DataFrame:
        """What servers answer under ``evaluate.deadline``: a row per run and deadline, see ``docs/inference.md``."""
        return self._frame("answers")

    @property
    def arrivals(self) -> pd.DataFrame:
        """When replies to the queries of ``answers`` arrive: protocol, seed, query, client, rows, arrival_s."""
        return self._frame("arrivals")

    @cached_property
    def energy(self) -> pd.DataFrame:
        """Energy of all runs by party and state, as in ``energy_by_party.parquet``; empty where none was counted."""
        frames = [frame for run in self.runs if (frame := run.energy()) is not None]
        return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=["protocol", "seed", "party"])

    @cached_property
    def info(self) -> pd.DataFrame:
        """One row per run, from ``run.json``: protocol, seed, status, stop_reason, error, wall_clock_s, counts, …."""
        rows = [run.info.model_dump() | {"protocol": run.protocol} for run in self.runs]
        front = ["protocol", "seed", "status", "stop_reason", "error"]
        return pd.DataFrame(rows)[[*front, *(name for name in rows[0] if name not in front)]]

    @cached_property
    def closed_forms(self) -> pd.DataFrame | None:
        """Closed-form distributions on grids: protocol, quantity, client (−1: none), x, cdf; None if there are none."""
        from vflsim.results.store.closed_forms import read_closed_forms

        return read_closed_forms(self.folder)

    @cached_property
    def closed_forms_left_out(self) -> pd.DataFrame:
        """Missing closed forms: protocol, quantity, reason, failed (an error is the reason)."""
        from vflsim.results.store.closed_forms import LeftOut, read_left_out

        rows = [asdict(each) for each in read_left_out(self.folder)]
        return pd.DataFrame(rows, columns=[field.name for field in fields(LeftOut)])

    @cached_property
    def own_metrics(self) -> dict[str, MetricFacts]:
        """What is known of the scenario's own metrics, by name, from every ``run.json``."""
        return {name: facts for run in self.runs for name, facts in run.info.metrics.items()}

    @property
    def own_measures(self) -> tuple[str, ...]:
        """The names of the scenario's own measures, from every ``run.json``."""
        return tuple(dict.fromkeys(name for run in self.runs for name in run.info.measures))

    @cached_property
    def declared(self) -> tuple[Target, ...]:
        """The targets that the scenario names: its own first, then ``stop``'s, then those of single protocols.

        All of them apply to every protocol. Raises ResultsError if one cannot be read.
        """
        protocols = self.scenario["protocols"].values()
        stops = [self.scenario.get("stop"), *((protocol or {}).get("stop") for protocol in protocols)]
        entries = [self.scenario.get("target"), *((stop or {}).get("target") for stop in stops)]
        return named([self._declared(Targets, "a target", each) for each in entries if each is not None])

    @cached_property
    def budgets(self) -> tuple[Budget, ...]:
        """The budgets that the scenario names. Raises ResultsError if they cannot be read."""
        entry = self.scenario.get("budget")
        return () if entry is None else self._declared(Budgets, "the budget", entry).each

    def _declared(self, kind: type[_Part], what: str, entry: Any) -> _Part:
        """Read a part of the stored scenario."""
        try:
            return kind.model_validate(entry, context={"symbols": self._symbols, "metrics": self.own_metrics})
        except ValidationError as error:
            problem = error.errors()[0]["msg"].removeprefix("Value error, ")
            raise ResultsError(f"{what} cannot be read: {problem}", f"{self.folder}: {SCENARIO}") from error

    @cached_property
    def _symbols(self) -> dict[str, float]:
        """The symbols of the scenario's formulas: its constants, and ``N`` if the scenario has it."""
        symbols: dict[str, float] = {}
        constants = dict(self.scenario.get("constants") or {})
        if (clients := (self.scenario.get("partition") or {}).get("clients")) is not None:
            constants["N"] = clients
        for name, value in constants.items():
            symbols[name] = _NUMBER.validate_python(value, context={"symbols": symbols})
        return symbols

    @property
    def targets(self) -> tuple[Target, ...]:
        """The targets to measure: those that the scenario names, unless :meth:`with_targets` has chosen others."""
        return self.declared if self._chosen is None else self._chosen

    @cached_property
    def evaluated(self) -> tuple[str, ...]:
        """Evaluated columns of the metrics, in their order: validation_…, test_…; without what is declared nowhere."""
        evaluated = (name for name in self.metrics.columns if split_of(name) and name != "train_loss")
        return tuple(name for name in evaluated if is_known(name, self.own_metrics))

    @cached_property
    def main_metric(self) -> str:
        """The column to compare: the target's, or else the first of test_…, validation_… that is not a loss.

        Raises NotRecordedError if nothing was evaluated (timing only).
        """
        wanted = [target.metric for target in self.declared]
        ranked = sorted(
            self.evaluated, key=lambda name: (name not in wanted, name.endswith("loss"), name[:4] != "test")
        )
        if not ranked:
            raise NotRecordedError("nothing was evaluated in these runs", str(self.folder))
        return ranked[0]

    def run(self, protocol: str, seed: int) -> StoredRun:
        """Return one run. Raises ResultsError if there is none."""
        for run in self.runs:
            if (run.protocol, run.seed) == (protocol, seed):
                return run
        raise ResultsError(
            f"no run of protocol {protocol!r} with seed {seed}",
            str(self.folder),
            f"protocols {', '.join(self.protocols)}; seeds {', '.join(map(str, self.seeds))}",
        )

    def evaluation(self, run: StoredRun) -> Evaluate | None:
        """Return when a run's models were evaluated; None if that cannot be read.

        None for a live run, too, whose clock is not on the scenario's grid.
        """
        if run.info.path == "live":
            return None
        block = (self.scenario["protocols"].get(run.info.protocol) or {}).get("evaluate")
        keys = {**(self.scenario.get("evaluate") or {}), **(block or {})}
        try:
            return Evaluate.model_validate(keys, context={"symbols": self._symbols})
        except ValidationError:
            return None

    def weights(self, protocol: str, seed: int) -> dict[str, torch.Tensor]:
        """Read the final weights of one run, by ``party.parameter``."""
        return self.run(protocol, seed).weights()

    def named(self, protocol: str) -> str:
        """Return the name of a protocol. Raises ResultsError if there is none."""
        if protocol not in self.protocols:
            raise ResultsError(f"there is no protocol {protocol!r}", str(self.folder), ", ".join(self.protocols))
        return protocol

    def against(self, baseline: str | None) -> Self:
        """Return the same results, compared with another protocol. Raises ResultsError if there is none."""
        copied = self._copy()
        if baseline is not None:
            copied.baseline = self.named(baseline)
        return copied

    @property
    def first(self) -> str:
        """The protocol to compare with: the ``baseline``, or the first that waits for all and has a finished run."""
        if self.baseline is not None:
            return self.baseline
        finished = [run for run in self.runs if not run.failed]
        waiting = [run for run in finished if run.info.waits_for_all]
        return next((run.protocol for run in (*waiting, *finished)), self.protocols[0])

    def only(self, protocols: Iterable[str]) -> Self:
        """Return the runs of some protocols alone. Raises ResultsError for a protocol without a run."""
        chosen, copied = {self.named(name) for name in protocols}, self._copy()
        copied._take(run for run in self.runs if run.protocol in chosen)
        copied.baseline = self.baseline if self.baseline in chosen else None
        return copied

    def ordered(self, protocols: Sequence[str]) -> Self:
        """Return the same runs with these protocols first, in this order; names without a run do not matter."""
        order, copied = {name: place for place, name in enumerate(protocols)}, self._copy()
        copied._take(sorted(self.runs, key=lambda run: order.get(run.protocol, len(order))))
        return copied

    def _take(self, runs: Iterable[StoredRun]) -> None:
        """Hold other runs, and forget what was read of those before."""
        self.runs, self._frames = tuple(runs), {}
        for cached in ("protocols", "seeds", "info", "energy"):
            self.__dict__.pop(cached, None)

    def reopened(self) -> Self:
        """Return the same results as if opened anew: without the tables read so far, with the summaries computed."""
        runs = (StoredRun(run.folder, run.info, run.label, run.trusted) for run in self.runs)
        results = type(self)(self.folder, self.scenario, tuple(runs))
        results._computed = self._computed
        return results

    def _copy(self) -> Self:
        """Copy without what was computed: it may differ in the copy."""
        results = copy(self)
        results._computed = {}
        return results

    def unpaired(self, protocol: str, other: str) -> str:
        """Say why two protocols' runs with the same seed do not share their draws; empty if they do."""
        return ""

    def remarks(self) -> Iterable[str]:
        """Return sentences on how these results came together, for the notes below tables."""
        return ()

    def once(self, name: str, compute: Callable[[], pd.DataFrame]) -> pd.DataFrame:
        """Return a copy of what ``compute`` returns; it is called the first time only."""
        if name not in self._computed:
            self._computed[name] = compute()
        return self._computed[name].copy()

    def has(self, name: TableName) -> bool:
        """Whether at least one run kept this table."""
        return any(run.has(name) for run in self.runs)

    def __repr__(self) -> str:
        failed = f", {len(self.failed)} failed" if self.failed else ""
        return f"Results({self.name!r}: {', '.join(self.protocols)}; {len(self.runs)} runs{failed}; {self.folder})"

    def _frame(self, name: TableName) -> pd.DataFrame:
        if name not in self._frames:
            frames = [run.frame(name) for run in self.runs if name == "metrics" or run.has(name)]
            if not frames:
                self.runs[0].table(name)  # raises the error that says how to record it
            self._frames[name] = _joined(frames)
        return self._frames[name]


def _joined(frames: list[pd.DataFrame]) -> pd.DataFrame:
    """Concatenate frames and unite their categories (plain concatenation would turn them into objects)."""
    for name in frames[0].select_dtypes("category"):
        # Not union_categoricals: it refuses an all-null column (a run without a message).
        together = pd.Index(dict.fromkeys(word for frame in frames for word in frame[name].cat.categories), dtype="str")
        for frame in frames:
            frame[name] = frame[name].cat.set_categories(together)
    return pd.concat(frames, ignore_index=True).copy()  # in one block: pandas warns who adds columns to many
