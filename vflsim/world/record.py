"""The results of a run: events, rounds and metrics, in columns."""

from __future__ import annotations

import math
import struct
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from vflsim.books import RADIO, Bounds, Counts
from vflsim.books.energy import Energy
from vflsim.learning.execution.operations import Handle
from vflsim.learning.learners.staleness import NO_AGES, Ages, StepFacts
from vflsim.tables.arrow import lists
from vflsim.timing.party import Power
from vflsim.world.messages import Message
from vflsim.world.own_tables import OwnTables
from vflsim.world.run_tables import COUNTS, ROUNDS, MetricsRow, RoundRow, metrics_row, present, values_of

_BOUND = np.dtype([("time", "f8"), ("amount", "i8"), ("party", "i4"), ("slot", "i4"), ("state", "i1"), ("sign", "i1")])
_PACK_BOUND = struct.Struct("=dqiibb").pack
_FULL = _BOUND.itemsize * 2**14
"""Bytes of rows that are kept before they are settled."""


class Meter:
    """Notes the spans of parties that have a ``Power`` as these begin and end, and gives the energy until then."""

    def __init__(self, powers: Mapping[int, Power]) -> None:
        self._powers, self._energy = powers, Energy(powers)
        self._rows, self._ends = bytearray(), array("d")
        self.rounds = array("d")
        """The energy of all parties until the end of each round (J), of those that have been settled."""

    def counts_flops(self, party: int) -> bool:
        """Whether the operations of a party have an energy."""
        return party in self._powers and self._powers[party].per_flop > 0

    def begin(self, state: int, now: float, *parties: int) -> None:
        """Note that spans of these parties begin."""
        for party in parties:
            if party in self._powers:
                self._rows += _PACK_BOUND(now, 0, party, len(self._ends), state, 1)

    def end(self, state: int, now: float, *parties: int, amount: int = 0) -> None:
        """Note that spans of these parties end, after ``amount`` bytes or operations."""
        for party in parties:
            if party in self._powers:
                self._rows += _PACK_BOUND(now, amount, party, len(self._ends), state, -1)
        if len(self._rows) > _FULL:
            self.settle()

    def end_round(self, now: float) -> None:
        """Note that a round ends: ``rounds`` will have the energy until then, of what has been noted so far."""
        self._ends.append(now)

    def settle(self, *moments: float) -> list[float]:
        """Add up what has been noted; return the energy until ``moments``, which are no earlier."""
        rows, rounds = np.frombuffer(self._rows, _BOUND), len(self._ends)
        bounds = Bounds(*(rows[name] for name in ("time", "sign", "state", "party", "amount", "slot")))
        energies = self._energy.take(bounds, [*self._ends, *moments])
        self.rounds.extend(energies[:rounds])
        self._rows, self._ends = bytearray(), array("d")
        return energies[rounds:]

    def by_party(self, now: float) -> dict[str, list[Any]]:
        """Return the columns of the table of energy by party and state until ``now``, when all has ended."""
        self.settle()
        return self._energy.by_party(now)


# --- tables of a run --------------------------------------------------------------------------------------------------


OUTCOMES = ("done", "abandoned", "unfinished", "lost")


_ROW = np.dtype(
    [
        ("start_s", "f8"), ("end_s", "f8"), ("drawn_s", "f8"), ("sent_s", "f8"),
        ("round", "i8"), ("bytes", "i8"), ("index", "i8"),
        ("party", "i4"), ("kind", "i4"), ("peer", "i4"), ("outcome", "i1"),
    ]
)  # fmt: skip
_PACK = struct.Struct("=ddddqqqiiib").pack
_NAN = float("nan")
_OUTCOME_CODES = {outcome: code for code, outcome in enumerate(OUTCOMES)}


@cache
def purpose_of(family: str, about: str) -> str:
    """Name a kind of events: ``compute.embed``."""
    return f"{family}.{about}"


class Events:
    """The event table as packed rows of 69 bytes: no Python object is kept per event.

    ``party`` and ``peer`` are party numbers (-1: none), ``kind`` and ``outcome`` codes into ``kinds`` and ``OUTCOMES``.
    A column is a field: ``events.table["start_s"]``.
    """

    row = _ROW
    """The dtype of a row of ``table``."""

    def __init__(self) -> None:
        self._rows = bytearray()
        self.kinds: dict[str, int] = {}
        self.steps = set[str]()
        """The kinds of operations that count as steps of a client, whether they leave events or not."""

    def __len__(self) -> int:
        return len(self._rows) // _ROW.itemsize

    def add(
        self, start: float, end: float, party: int, kind: str, round_: int, peer: int, size: int, index: int,
        drawn: float, outcome: str = "done", sent: float = _NAN,
    ) -> None:  # fmt: skip
        """Append a row: an activity of ``party``, from ``start`` to ``end``; a message has a time ``sent``, too."""
        kinds = self.kinds
        try:
            code = kinds[kind]
        except KeyError:
            code = kinds[kind] = len(kinds)
        self._rows += _PACK(start, end, drawn, sent, round_, size, index, party, code, peer, _OUTCOME_CODES[outcome])

    def extend(self, rows: NDArray[np.void], kinds: Sequence[str]) -> None:
        """Append rows of another table, whose codes of kinds are places in ``kinds``."""
        codes = np.array([self.kinds.setdefault(kind, len(self.kinds)) for kind in kinds], rows["kind"].dtype)
        copy = rows.copy()
        copy["kind"] = codes[rows["kind"]] if len(rows) else rows["kind"]
        self.append(copy)

    def append(self, rows: NDArray[np.void]) -> None:
        """Append rows with the codes of ``kinds``."""
        self._rows += rows.tobytes()

    def end_at(self, end: float) -> None:
        """Cut what other clocks saw beyond the run's ``end``, and order the rows by their end, and then by party.

        What began later is left out; what ended later, or had not ended, is unfinished at ``end``.
        """
        table = self.table[self.table["start_s"] <= end].copy()
        unfinished = _OUTCOME_CODES["unfinished"]
        open_ = (table["end_s"] > end) | (table["outcome"] == unfinished)
        table["end_s"][open_], table["outcome"][open_] = end, unfinished
        self._rows = bytearray(table[np.lexsort((table["party"], table["end_s"]))].tobytes())

    @property
    def named_steps(self) -> tuple[str, ...]:
        """The kinds of the events that are steps of clients."""
        return tuple(sorted({f"compute.{kind}" for kind in self.steps} & self.kinds.keys()))

    @property
    def table(self) -> NDArray[np.void]:
        """The rows as a structured array, one field a column: a view, so no row can be added while it is held."""
        return np.frombuffer(self._rows, _ROW)


class Lists:
    """Lists of client numbers, one after the other: no Python object is kept per list."""

    def __init__(self) -> None:
        self._values, self._ends = bytearray(), array("q", [0])

    def append(self, clients: Iterable[int]) -> None:
        """Add a list."""
        self._values += np.asarray(clients, np.int32).tobytes()
        self._ends.append(len(self._values) // 4)

    def tobytes(self) -> bytes:
        """Return all of them as bytes."""
        return self._ends.tobytes() + self._values

    def lists(self) -> pa.Array:
        """Return them as an Arrow array, a copy."""
        values = np.frombuffer(bytes(self._values), np.int32)
        return lists(self._ends, values)


GIVEN_UP_IN_A_ROW = 10_000
"""Consecutive rounds given up after which a run counts as stuck."""


_KEPT: Mapping[pa.DataType, Callable[[], Any]] = {pa.int64(): partial(array, "q"), pa.float64(): partial(array, "d")}
"""What keeps the values of a column, by its type: else lists of clients."""


class RoundTable:
    """One row a server step, by the columns of ``ROUNDS``."""

    def __init__(self) -> None:
        self._columns = {column.name: _KEPT.get(column.type, Lists)() for column in ROUNDS}
        self._adding = [(self._columns[column.name].append, column.value) for column in ROUNDS]

    def __len__(self) -> int:
        return len(self._columns["round"])

    def __getitem__(self, column: str) -> Any:
        return self._columns[column]

    def __setitem__(self, column: str, values: Any) -> None:
        self._columns[column] = values

    def add(self, row: RoundRow) -> None:
        """Append a row."""
        for append, value in self._adding:
            append(value(row))

    def packed(self) -> bytes:
        """All rows as bytes: equal for equal rows."""
        return b"".join(column.tobytes() for column in self._columns.values())

    def columns(self, metered: bool) -> dict[str, Any]:
        """Return the columns as arrays."""
        columns = {column.name: self._columns[column.name] for column in present(ROUNDS, metered)}
        return {name: data.lists() if isinstance(data, Lists) else np.array(data) for name, data in columns.items()}


class Recorder(Counts):
    """Counts, and keeps the tables that ``keep`` names: ``events``, ``rounds`` or only the ``summary``.

    Invariants: ``bytes_up + bytes_down + bytes_peer`` is the sum of ``bytes`` over the transfers that have ended;
    ``rounds`` is the number of server steps completed, ``updates`` that of client steps.
    """

    def __init__(self, keep: str = "events") -> None:
        super().__init__()
        self.keep = keep
        self.current_round = 0
        """The round in progress, from 0: how many are complete or given up."""
        self.skipped_in_a_row = 0
        """Rounds that were given up since the latest server step."""
        self.events = Events()
        self.event: Callable[..., None] = self.events.add if keep == "events" else lambda *row: None
        """Records an activity (``Events.add``), where events are kept."""
        self.round_rows = RoundTable()
        self._ends = array("d") if keep == "summary" else self.round_rows["end_s"]
        self.metric_rows: list[dict[str, float]] = []
        self.own = OwnTables()
        self.meter: Meter | None = None
        """Counts energy, where a party says what it draws."""
        self._round_start = 0.0
        self._losses: list[Handle[float]] = []
        self._row_ages = self._client_ages = NO_AGES  # since the latest row of metrics

    def transfer(self, message: Message, index: int, began: float, ended: float, sent: int, outcome: str) -> None:
        """Record a message that has left its link: delivered, abandoned on the way, or cut short by the run's end."""
        self.add_bytes(message.sender, message.receiver, sent)
        if self.meter is not None and began == began:
            self.meter.end(RADIO, ended, message.sender, message.receiver, amount=sent)
        start = began if began == began else ended  # NaN: it never got to move
        record, purpose = self.event, purpose_of("transfer", message.kind)
        record(
            start, ended, message.sender, purpose, message.round, message.receiver, sent, index, _NAN, outcome,
            message.sent,
        )  # fmt: skip

    def step(self, facts: StepFacts, now: float) -> None:
        """Record a complete server step: one round."""
        if self.keep == "summary":
            self._ends.append(now)
        else:
            self.round_rows.add(RoundRow(self.rounds, self._round_start, now, facts))
            if self.meter is not None:
                self.meter.end_round(now)
        self._round_start = now
        self.rounds += 1
        self.current_round += 1
        self.skipped_in_a_row = 0
        self.embeddings_used += len(facts.used)
        if facts.loss is not None:
            self._losses.append(facts.loss)
        self._row_ages = self._row_ages.plus(facts.row_ages)
        self._client_ages = self._client_ages.plus(Ages.of(np.asarray(facts.client_ages)))

    def steps_between(self, after: float, until: float = math.inf) -> int:
        """Return how many server steps were completed ``after`` one time and ``until`` another (s)."""
        return max(0, bisect_right(self._ends, until) - bisect_right(self._ends, after))

    def skip(self) -> None:
        """Count a round that is given up."""
        self.skipped += 1
        self.current_round += 1
        self.skipped_in_a_row += 1

    def metrics(self, now: float, evaluated: dict[str, float]) -> dict[str, float]:
        """Add a row of metrics: losses and ages are over the steps since the last row (their handles must be ready)."""
        losses = [handle.value for handle in self._losses if handle.ready]
        loss = sum(losses) / len(losses) if losses else math.nan
        facts = self._facts(now, train_loss=loss, row_ages=self._row_ages, client_ages=self._client_ages)
        row = metrics_row(facts, evaluated, self.metered)
        self._losses.clear()
        self._row_ages = self._client_ages = NO_AGES
        self.metric_rows.append(row)
        return row

    def recount(self) -> None:
        """Update bytes and energy of the latest metrics row when the run has ended, and with it all activities."""
        row = self.metric_rows[-1]
        settling = [column for column in COUNTS if column.settles]
        row |= values_of(settling, self._facts(row["time_s"]), self.metered)

    @property
    def metered(self) -> bool:
        """Whether rows of metrics have the energy."""
        return self.meter is not None

    def _facts(self, now: float, **since: Any) -> MetricsRow:
        joules = 0.0 if self.meter is None else self.meter.settle(now)[0]
        return MetricsRow(**self.counted(), time_s=now, energy_j=joules, **since)

    def losses_pending(self) -> list[Handle[float]]:
        """Return the handles of the losses that the next metrics row will average."""
        return self._losses
