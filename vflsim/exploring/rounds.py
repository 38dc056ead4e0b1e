"""Rounds of one protocol, simulated without training: what ``vflsim run --timing-only`` would write of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self, final

import numpy as np
import pyarrow as pa

from vflsim.learning.data.loaded_data import LoadedData
from vflsim.plotting.waits import step_waits
from vflsim.protocols.base import Protocol
from vflsim.recurrences.chunk import Bools, Chunk, Moves
from vflsim.recurrences.stages import Ints
from vflsim.results.events import expanded
from vflsim.results.read import NotRecordedError
from vflsim.results.store.pages import RunInfo
from vflsim.results.store.schema import RunTables, TableName
from vflsim.scenario.models import Scenario
from vflsim.simulation.run import Outcome
from vflsim.studies.checks.trials import by_arrays as tried_by_arrays, rounds_of, tried, used_in
from vflsim.timing.floats import Floats

NOBODY = 0
"""Stands for steps that wait for no client: all messages were there before, or a deadline began them."""


@dataclass(eq=False)
class UploadArrivals:
    """Collects when messages reached the server, and when its steps began, chunk by chunk.

    A step waited for a client if a message of that client, which it used, arrived in the instant in which the server's
    wait ended: the same question that :mod:`vflsim.plotting.waits` asks of events.
    """

    clients: tuple[int, ...]
    _arrived: list[Floats] = field(default_factory=list)
    _sender: list[Ints] = field(default_factory=list)
    _waited: list[Floats] = field(default_factory=list)
    _used: list[Bools] = field(default_factory=list)

    def take(self, chunk: Chunk, count: int) -> None:
        """Add the first ``count`` rounds of a chunk. Chunks come in order."""
        for moves in chunk.before:
            self._add(moves, len(moves.ends))
        for moves in (*chunk.during, *chunk.after):
            self._add(moves, count)
        self._waited.append(np.asarray(chunk.waited[:count], np.float64))
        everybody = np.ones((count, len(self.clients)), np.bool_)
        self._used.append(everybody if chunk.used is None else chunk.used[:count])

    def shares(self) -> Mapping[int, float]:
        """Return the share of steps that waited for each client, and for ``NOBODY``; 1 together.

        Clients whose messages arrive together share the step. Empty without a round.
        """
        if not sum(map(len, self._waited)):
            return {}
        waited, used = np.concatenate(self._waited), np.concatenate(self._used)
        arrived, sender = np.concatenate([np.empty(0), *self._arrived]), np.concatenate([[], *self._sender])
        order = np.argsort(arrived, kind="stable")
        arrived, sender = arrived[order], sender[order].astype(np.int64)
        first = np.searchsorted(arrived, waited, side="left")
        many = np.searchsorted(arrived, waited, side="right") - first
        step, message = expanded(first, many)
        place = sender[message]
        pairs = np.unique(np.stack([step, place], 1)[used[step, place]], axis=0)
        each = np.bincount(pairs[:, 0], minlength=len(waited))
        weights = np.bincount(pairs[:, 1], 1 / each[pairs[:, 0]], minlength=len(self.clients)) / len(waited)
        nobody = float(np.count_nonzero(each == 0) / len(waited))
        return {NOBODY: nobody, **dict(zip(self.clients, weights.tolist(), strict=True))}

    def _add(self, moves: Moves, count: int) -> None:
        if moves.direction == "up":
            ends = np.asarray(moves.ends[:count])
            places = np.arange(ends.shape[1]) if moves.places is None else moves.places[:count]
            there = np.isfinite(ends)
            self._arrived.append(ends[there])
            self._sender.append(np.broadcast_to(places, ends.shape)[there])


MESSAGES = 600
"""About how many messages rounds have that are simulated event by event, for a first look: some 16 µs each."""
FEWEST = 2
"""Fewest such rounds."""


@final
@dataclass(frozen=True, eq=False)
class SimulatedRounds:
    """Rounds of one protocol with one seed.

    ``ends`` (n,) are in seconds; ``moved`` are the bytes of all messages until the last of them, and ``used`` the
    embeddings that steps have used, altogether. ``waited`` are the shares of steps that waited for each client (0:
    for nobody); empty for a reference, whose clients send nothing. ``by_events`` says why the rounds were simulated
    event by event, and not by arrays. A run that failed has its ``error``, and the rounds until then.
    """

    ends: Floats
    moved: float
    used: int
    waited: Mapping[int, float]
    by_events: str = ""
    error: str = ""

    @property
    def durations(self) -> Floats:
        """The seconds of each round, shape (n,), as in ``rounds.parquet``."""
        return np.diff(self.ends, prepend=0.0)

    @property
    def step_s(self) -> float:
        """The mean round in seconds, as ``vflsim check`` gives it: the end of the last ÷ their number; NaN if none."""
        return float(self.ends[-1]) / len(self.ends) if len(self.ends) else float("nan")

    @property
    def round_bytes(self) -> float:
        """The bytes of all messages by round, as ``vflsim check`` gives them; NaN without a round."""
        return self.moved / len(self.ends) if len(self.ends) else float("nan")

    @property
    def used_per_s(self) -> float:
        """The embeddings that steps use per second; NaN without a round or where no time passes."""
        return self.used / float(self.ends[-1]) if len(self.ends) and self.ends[-1] > 0 else float("nan")


@final
@dataclass(frozen=True, eq=False)
class UnwrittenRun:
    """A run in memory, in the place of one on disk."""

    protocol: str
    seed: int
    info: RunInfo
    tables: RunTables
    folder: Path = Path()

    @classmethod
    def of(cls, outcome: Outcome) -> Self:
        """Take what a run has left."""
        return cls(outcome.info.protocol, outcome.info.seed, outcome.info, outcome.tables)

    def has(self, name: TableName) -> bool:
        """Whether a table was kept."""
        return name in ("metrics", "rounds", "events") and getattr(self.tables, name) is not None

    def table(self, name: TableName, columns: Sequence[str] | None = None) -> pa.Table:
        """Return one table, or some of its columns. Raises NotRecordedError if it was not kept."""
        if not self.has(name):
            raise NotRecordedError(f"the {name} of this run were not kept", self.protocol)
        table: pa.Table = getattr(self.tables, name)
        return table if columns is None else table.select(list(columns))


def simulated(
    scenario: Scenario,
    name: str,
    data: LoadedData,
    rounds: int,
    protocol: Protocol | None = None,
    messages: int = MESSAGES,
) -> SimulatedRounds:
    """Simulate ``rounds`` rounds with the scenario's first seed, or as many as have about so many ``messages``.

    The latter where only the event path can do it. ``protocol`` stands in the place of the one that the scenario calls
    ``name``.
    """
    its = protocol or scenario.protocols[name].protocol
    arrivals = UploadArrivals(tuple(its.participants(scenario.clients, scenario.symbols)))
    outcome, why = rounds_of(scenario, name, data, rounds, messages, FEWEST, "events", protocol, arrivals.take)
    if outcome.info.reference:
        return _rounds(outcome, {}, why)
    return _rounds(outcome, _waited(UnwrittenRun.of(outcome)) if why else arrivals.shares(), why)


def by_arrays(
    scenario: Scenario, name: str, data: LoadedData, rounds: int, protocol: Protocol | None = None
) -> SimulatedRounds | None:
    """Simulate ``rounds`` rounds by arrays alone; None where only events can tell."""
    some = tried(scenario, name, rounds, "rounds", protocol)
    outcome, why = tried_by_arrays(some, name, scenario.seeds[0], data)
    return None if outcome is None or why else _rounds(outcome, {})


def _waited(run: UnwrittenRun) -> dict[int, float]:
    """Return the shares of steps that waited for each client, and for nobody."""
    rounds, clients = run.tables.rounds, list(run.info.participants)
    if rounds is None or not rounds.num_rows:
        return {}
    try:
        shares = step_waits(run).shares(clients).tolist()
    except NotRecordedError:  # a run that failed between a step and the end of its round
        return {}
    return {NOBODY: max(0.0, 1 - sum(shares)), **dict(zip(clients, shares, strict=True))}


def _rounds(outcome: Outcome, waited: Mapping[int, float], by_events: str = "") -> SimulatedRounds:
    table, metrics = outcome.tables.rounds, outcome.tables.metrics
    assert table is not None, "record: rounds keeps them"
    last = metrics.slice(metrics.num_rows - 1).to_pylist()[0] if metrics.num_rows else {}
    moved = float(sum(last.get(f"bytes_{way}", 0) for way in ("up", "down", "peer")))
    error = "" if outcome.error is None else " ".join(str(outcome.error).split())
    return SimulatedRounds(table.column("end_s").to_numpy(), moved, used_in(table), waited, by_events, error)
