"""One run in a results folder: its page, tables, weights and views, each read when it is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, final

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike

from vflsim.errors import ResultsError
from vflsim.files import opened, parsed_json
from vflsim.results.store.folder import SEED, VIEWS, WEIGHTS
from vflsim.results.store.pages import RunInfo, damaged, read_tensors
from vflsim.results.store.schema import ENERGY_BY_PARTY, RunTables, TableName, read_table, split_of
from vflsim.timing.floats import Floats
from vflsim.vocabulary.metrics import facts_of, is_known
from vflsim.vocabulary.on_demand import pd, torch

if TYPE_CHECKING:
    from vflsim.results.store.views import RecordedViews


class NotRecordedError(ResultsError):
    """The results are intact, but do not contain the requested data: not kept (``record``) or never measured."""


class RecordedRun(Protocol):
    """One protocol with one seed and what its run has recorded, on disk or not yet."""

    @property
    def protocol(self) -> str:
        """Name of the protocol."""

    @property
    def seed(self) -> int:
        """The seed."""

    @property
    def info(self) -> RunInfo:
        """The facts about the run."""

    @property
    def folder(self) -> Path:
        """Where the run is on disk, or would be."""

    def has(self, name: TableName) -> bool:
        """Whether a table was kept."""

    def table(self, name: TableName, columns: Sequence[str] | None = None) -> pa.Table:
        """Return one table, or some of its columns. Raises NotRecordedError if it was not kept."""


@final
@dataclass(frozen=True)
class StoredRun:
    """One protocol with one seed, on disk; ``label`` renames the protocol beside other studies.

    ``trusted``: the modules that its scenario names may be imported, which runs their code.
    """

    folder: Path
    info: RunInfo
    label: str | None = None
    trusted: bool = False

    @property
    def protocol(self) -> str:
        """Name of the protocol: in the scenario, or its label."""
        return self.label or self.info.protocol

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
            remedy = "run the scenario with record: events (rounds keeps metrics and rounds, summary metrics alone)"
            if name in ("answers", "arrivals"):
                remedy = "train with evaluate: {deadline: [10 ms, 50 ms]}, say"
            raise NotRecordedError(f"the {name} of this run were not kept", where=str(self.folder), remedy=remedy)
        return read_table(self._path(name), name, columns)

    def frame(self, name: TableName) -> pd.DataFrame:
        """Read one table as a pandas frame with ``protocol`` and ``seed`` in front."""
        frame: pd.DataFrame = self.table(name).to_pandas()
        frame.insert(0, "protocol", pd.Series([self.protocol] * len(frame), dtype=pd.CategoricalDtype([self.protocol])))
        frame.insert(1, "seed", self.seed)
        return frame

    def energy(self) -> pd.DataFrame | None:
        """Read the energy by party and state, with ``protocol`` and ``seed`` in front; None where none was counted.

        Raises ResultsError if the file is damaged.
        """
        path = self.folder / f"{ENERGY_BY_PARTY}.parquet"
        if not path.is_file():
            return None
        frame: pd.DataFrame = read_table(path, ENERGY_BY_PARTY).to_pandas()
        frame.insert(0, "protocol", self.protocol)
        frame.insert(1, "seed", self.seed)
        return frame

    def round_durations(self) -> Floats:
        """Return the seconds of each round, shape (rounds,). Raises NotRecordedError if rounds were not kept."""
        return self._lasted

    @cached_property
    def _lasted(self) -> Floats:
        rounds = self.table("rounds", ("start_s", "end_s"))  # read once: every pair of runs needs them
        lasted: Floats = rounds["end_s"].to_numpy() - rounds["start_s"].to_numpy()
        lasted.flags.writeable = False
        return lasted

    def open_round(self) -> float | None:
        """Return for how long (s) a round had been in progress when the run stopped by time; None if none was.

        None, too, for other ends: they do not come sooner in a longer round. Raises NotRecordedError if rounds were not
        kept.
        """
        if self.info.stop_reason != "time":
            return None
        ends = self.table("rounds", ("end_s",))["end_s"]
        end = float(self.table("metrics", ("time_s",))["time_s"][-1].as_py())
        age = end - (ends[-1].as_py() if len(ends) else 0.0)
        return age if age > 0 else None

    def tables(self) -> RunTables:
        """Read all tables and check them against the schemas. Raises ResultsError if one is damaged."""
        metrics = self.table("metrics")
        optional = {name: self.table(name) if self.has(name) else None for name in ("rounds", "events")}
        try:
            return RunTables(metrics, **optional)
        except ResultsError as error:
            raise damaged(self.folder, error.what) from error

    def weights(self) -> dict[str, torch.Tensor]:
        """Read the final weights by ``party.parameter``. Raises ResultsError if the file is absent or damaged."""
        return read_tensors(self.folder / WEIGHTS)

    def weights_seed(self) -> str | None:
        """Return the seed that the weights name as theirs; None if they name none."""
        with opened(self.folder / WEIGHTS) as file:
            header = parsed_json(file.read(int.from_bytes(file.read(8), "little")))
        named = header.get("__metadata__", {}).get(SEED)
        return None if named is None else str(named)

    def views(self) -> RecordedViews:
        """Read what every party received about the recorded rows.

        Raises NotRecordedError if views were not kept, ResultsError if the file is damaged.
        """
        from vflsim.results.store.views import RecordedViews

        if not (self.folder / VIEWS).is_file():
            raise NotRecordedError(
                "the views of this run were not kept",
                where=str(self.folder),
                remedy="run the scenario with record: {views: 512 rows}",
            )
        return RecordedViews.read(self.folder / VIEWS)

    def _path(self, name: TableName) -> Path:
        return self.folder / f"{name}.parquet"


SHOWN = 3
"""Rows shown per column and rule."""


def improper_metrics(metrics: pd.DataFrame, info: RunInfo) -> Iterator[str]:
    """Yield a sentence for each of the first few rows of a run's ``metrics`` with an impossible value.

    A loss is at least 0, an accuracy between 0 and 1, and so on; all that was measured is finite. A run that failed or
    diverged may end in others.
    """
    for column in metrics.columns:
        if split_of(column) is None:
            continue
        if not is_known(column, info.metrics):
            yield f"metrics: {column} is no metric of the task, nor one that the scenario declares"
            continue
        facts, values = facts_of(column, info.metrics), metrics[column].to_numpy()
        least, most = facts.span
        span = f"from {least:g} to {most:g}" if most < np.inf else f"at least {least:g}"
        yield from broken_rows(metrics, column, (values < least) | (values > most), f"must be {span}")
        if info.status == "finished":
            wrong = np.isinf(values) if facts.undefined or column == "train_loss" else ~np.isfinite(values)
            yield from broken_rows(metrics, column, wrong, f"must be finite: the run {info.status}")


def broken_rows(metrics: pd.DataFrame, column: str, wrong: ArrayLike, rule: str) -> Iterator[str]:
    """Yield a sentence for each of the first few rows of the metrics that break a rule about a column."""
    for row in np.flatnonzero(wrong)[:SHOWN]:
        at, round_, value = (metrics[name].to_numpy()[row] for name in ("time_s", "round", column))
        yield f"metrics at {at} s (row {row}, round {round_}): {column} is {value:g}, and {rule}"
