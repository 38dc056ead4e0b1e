"""Read results: all runs of a scenario as pandas frames, each loaded on first use."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from vflsim.errors import ResultsError, no_results
from vflsim.files import content, opened
from vflsim.results.pages import damaged, read_info, read_scenario
from vflsim.results.schema import RunInfo, RunTables, TableName, columns_of, split_of
from vflsim.results.statistics import Floats
from vflsim.results.write import SCENARIO, SWEEP, VIEWS, WEIGHTS

if TYPE_CHECKING:
    import torch

    from vflsim.results.views import RecordedViews

_SEED = re.compile(r"seed-(\d+)")


class NotRecordedError(ResultsError):
    """The results are intact, but do not contain the requested data: not kept (``record``) or never measured."""


@final
@dataclass(frozen=True)
class StoredRun:
    """One protocol with one seed, on disk."""

    folder: Path
    info: RunInfo

    @property
    def protocol(self) -> str:
        """Name of the protocol in the scenario."""
        return self.info.protocol

    @property
    def seed(self) -> int:
        """The seed of this run."""
        return self.info.seed

    @property
    def failed(self) -> bool:
        """Whether the run ended in an error (diverging included); its tables, if any, end there."""
        return self.info.status != "finished"

    @property
    def diverged(self) -> bool:
        """Whether the run ended because training diverged: it will never reach a target."""
        return self.info.status == "diverged"

    def has(self, name: TableName) -> bool:
        """Whether a table was kept."""
        return self._path(name).is_file()

    def table(self, name: TableName, columns: Sequence[str] | None = None) -> pa.Table:
        """Read one table, or some of its columns, from disk.

        Raises NotRecordedError if it was not kept, ResultsError if it is damaged.
        """
        if not self.has(name):
            if name == "metrics":  # which every run keeps
                raise damaged(self._path(name), "no such file")
            raise NotRecordedError(
                f"the {name} of this run were not kept",
                where=str(self.folder),
                remedy="run the scenario with record: events (rounds keeps metrics and rounds, summary metrics alone)",
            )
        try:
            with opened(self._path(name)) as file:
                table = pq.read_table(file, partitioning=None, columns=columns and list(columns))
        except (pa.ArrowException, OSError) as error:
            raise damaged(self._path(name), str(error)) from error
        wanted = columns or columns_of(name, table.column_names)
        if missing := [column for column in wanted if column not in table.column_names]:
            raise damaged(self._path(name), f"no column {missing[0]}")
        return table

    def frame(self, name: TableName) -> pd.DataFrame:
        """Read one table as a pandas frame with ``protocol`` and ``seed`` in front."""
        frame: pd.DataFrame = self.table(name).to_pandas()
        frame.insert(0, "protocol", pd.Series([self.protocol] * len(frame), dtype=pd.CategoricalDtype([self.protocol])))
        frame.insert(1, "seed", self.seed)
        return frame

    def round_durations(self) -> Floats:
        """Return the seconds of each round, shape (rounds,). Raises NotRecordedError if rounds were not kept."""
        rounds = self.table("rounds", ("start_s", "end_s"))
        lasted: Floats = rounds["end_s"].to_numpy() - rounds["start_s"].to_numpy()
        return lasted

    def tables(self) -> RunTables:
        """Read all tables and check them against the schemas. Raises ResultsError if one is damaged."""
        metrics = self.table("metrics")
        kept = {name: self.table(name) if self.has(name) else None for name in ("rounds", "events")}
        try:
            return RunTables(metrics, **kept)
        except ResultsError as error:
            raise damaged(self.folder, error.what) from error

    def weights(self) -> dict[str, torch.Tensor]:
        """Read the final weights by ``party.parameter``. Raises ResultsError if the file is absent or damaged."""
        from safetensors import SafetensorError
        from safetensors.torch import load

        path = self.folder / WEIGHTS
        try:
            return load(content(path))
        except (SafetensorError, OSError) as error:
            raise damaged(path, str(error)) from error

    def views(self) -> RecordedViews:
        """Read what every party received about the recorded rows.

        Raises NotRecordedError if views were not kept, ResultsError if the file is damaged.
        """
        from vflsim.results.views import RecordedViews

        if not (self.folder / VIEWS).is_file():
            raise NotRecordedError(
                "the views of this run were not kept",
                where=str(self.folder),
                remedy="run the scenario with record: {views: 512 rows}",
            )
        return RecordedViews.read(self.folder / VIEWS)

    def _path(self, name: TableName) -> Path:
        return self.folder / f"{name}.parquet"


@final
class Results:
    """All runs of one scenario: frames, weights and summaries.

    ``runs`` are in the scenario's order of protocols, then by seed. Runs and frames include failed runs (see
    ``info.status`` and :attr:`failed`); summaries and figures leave them out and say so.
    """

    def __init__(self, folder: Path, scenario: Mapping[str, Any], runs: tuple[StoredRun, ...]) -> None:
        self.folder, self.scenario, self.runs = folder, scenario, runs
        self._frames: dict[TableName, pd.DataFrame] = {}

    @classmethod
    def open(cls, folder: Path | str) -> Results:
        """Open a results folder; this reads only the scenario and every ``run.json``.

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
            StoredRun(place, read_info(place))
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
        """Activities of all parties in all runs. Large: ``run(protocol, seed).frame("events")`` reads one run."""
        return self._frame("events")

    @cached_property
    def info(self) -> pd.DataFrame:
        """One row per run, from ``run.json``: protocol, seed, status, stop_reason, error, wall_clock_s, counts, …."""
        rows = [run.info.model_dump() for run in self.runs]
        front = ["protocol", "seed", "status", "stop_reason", "error"]
        return pd.DataFrame(rows)[[*front, *(name for name in rows[0] if name not in front)]]

    @cached_property
    def closed_forms(self) -> pd.DataFrame | None:
        """Closed-form distributions on grids: protocol, quantity, client (−1: none), x, cdf; None if there are none."""
        from vflsim.results.closed_forms import read_closed_forms

        return read_closed_forms(self.folder)

    @cached_property
    def closed_forms_left_out(self) -> pd.DataFrame:
        """Missing closed forms: protocol, quantity, reason, failed (an error is the reason)."""
        from vflsim.results.closed_forms import LeftOut, read_left_out

        rows = [asdict(each) for each in read_left_out(self.folder)]
        return pd.DataFrame(rows, columns=[field.name for field in fields(LeftOut)])

    @cached_property
    def evaluated(self) -> tuple[str, ...]:
        """Evaluated columns of the metrics, in their order: validation_…, test_…."""
        return tuple(name for name in self.metrics.columns if split_of(name) and name != "train_loss")

    @cached_property
    def main_metric(self) -> str:
        """The column to compare: the target's, or else the first of test_…, validation_… that is not a loss.

        Raises NotRecordedError if nothing was evaluated (timing only).
        """
        from vflsim.results.targets import targets_of

        wanted = [target.metric for target in targets_of(self)]
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

    def weights(self, protocol: str, seed: int) -> dict[str, torch.Tensor]:
        """Read the final weights of one run, by ``party.parameter``."""
        return self.run(protocol, seed).weights()

    def summary(self, targets: Mapping[str, Any] | None = None) -> pd.DataFrame:
        """Compute means, costs to targets and paired differences: see :func:`vflsim.results.summary.summarise`."""
        from vflsim.results.summary import summarise

        return summarise(self, targets)

    def steady_rounds(self) -> pd.DataFrame:
        """Compute mean round durations after warm-up: see :func:`vflsim.results.replication.steady_rounds`."""
        from vflsim.results.replication import steady_rounds

        return steady_rounds(self)

    def round_pairs(self) -> pd.DataFrame:
        """Pair runs round by round: see :func:`vflsim.results.replication.round_pairs`."""
        from vflsim.results.replication import round_pairs

        return round_pairs(self)

    def round_quantiles(self, levels: Sequence[float] | None = None) -> pd.DataFrame:
        """Compute quantiles of round durations: see :func:`vflsim.results.quantiles.round_quantiles`."""
        from vflsim.results.quantiles import LEVELS, round_quantiles

        return round_quantiles(self, LEVELS if levels is None else levels)

    def has(self, name: TableName) -> bool:
        """Whether at least one run kept this table."""
        return any(run.has(name) for run in self.runs)

    def __repr__(self) -> str:
        failed = f", {len(self.failed)} failed" if self.failed else ""
        return f"Results({self.name!r}: {', '.join(self.protocols)}; {len(self.runs)} runs{failed}; {self.folder})"

    def _repr_html_(self) -> str:
        from vflsim.results.report import html

        return html(self)

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
    return pd.concat(frames, ignore_index=True)
