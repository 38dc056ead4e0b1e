"""The tables of rounds and of metrics: each column once, with its type, its range, and where its values are from.

Recorder, arrays, schemas, empty tables and ``verify`` read these. A column has the value of the attribute with its
name, unless it says how to compute it: of one row on the event path, and of all rounds at once by arrays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from vflsim.books import BYTES, Counts
from vflsim.learning.learners.staleness import NO_AGES, Ages

ENERGY = "energy_j"
"""The column of metrics and rounds with the energy of all parties (J), present where one says what it draws."""
EPSILON = "epsilon"
"""The metrics column with the ε that the clients have spent, present where a mechanism protects training."""


@dataclass(frozen=True, slots=True)
class ValueRange:
    """The values of a column of numbers: from ``least`` to ``most``; NaN if ``absent``, infinity if ``infinite``."""

    least: float = 0
    most: float = math.inf
    absent: bool = False
    infinite: bool = False

    def outside(self, values: NDArray[Any]) -> NDArray[np.bool_]:
        """Mark values that are no numbers although they must be, infinite ones likewise, and those beyond the range."""
        outside: NDArray[np.bool_] = self.improper(values) | (values < self.least) | (values > self.most)
        return outside

    def improper(self, values: NDArray[Any]) -> NDArray[np.bool_]:
        """Mark NaN and infinite values that must not be."""
        if values.dtype.kind != "f":
            return np.zeros(len(values), bool)
        improper: NDArray[np.bool_] = np.zeros(len(values), bool) if self.absent else np.isnan(values)
        return improper if self.infinite else improper | np.isinf(values)

    def __str__(self) -> str:
        most = "" if self.most == math.inf else f" and at most {self.most:g}"
        least = "" if self.least == -math.inf else f" and at least {self.least:g}"
        finite = "" if self.infinite else "finite"
        return (finite + least + most).removeprefix(" and ") + (", or absent (NaN)" if self.absent else "")


ANY = ValueRange(-math.inf, absent=True, infinite=True)
"""A metric of the model: its range follows from the metric, and a run that diverges may leave it."""
_NONNEGATIVE, _ABSENT, _CLIENT = ValueRange(), ValueRange(absent=True), ValueRange(1)
_INTEGER, _NUMBER, _NAME = pa.int64(), pa.float64(), pa.dictionary(pa.int32(), pa.string())
_CLIENTS = pa.list_(pa.field("element", pa.int32(), nullable=False))


@dataclass(frozen=True, slots=True)
class Column:
    """One column: ``of`` computes its value, which is else the attribute of its name.

    ``nullable``: some rows have none; ``metered``: only where energy is counted; ``grows``: never less than in the row
    before; ``settles``: counts what ends with the run itself, so that the last row is brought up to date; ``meaning``:
    what the reference says of it.
    """

    name: str
    type: pa.DataType
    span: ValueRange = _NONNEGATIVE
    of: Callable[[Any], Any] | None = None
    nullable: bool = False
    metered: bool = False
    grows: bool = False
    settles: bool = False
    meaning: str = ""

    @property
    def value(self) -> Callable[[Any], Any]:
        """What computes the column."""
        return self.of or attrgetter(self.name)


@dataclass(slots=True)
class RoundRow:
    """A server step, and what it used; of arrays all, with a value a round in each field."""

    round: Any
    start_s: Any
    end_s: Any
    facts: Any
    """As ``StepFacts``."""
    energy_j: Any = 0.0


ROUNDS = (
    Column("round", _INTEGER, meaning="Number of the server step."),
    Column("start_s", _NUMBER, meaning="End of the previous server step, or the start of the run."),
    Column("end_s", _NUMBER, meaning="End of this server step."),
    Column("used", _CLIENTS, _CLIENT, attrgetter("facts.used"), meaning="Clients whose messages the step used."),
    Column("missing", _CLIENTS, _CLIENT, attrgetter("facts.missing"), meaning="Participants that it did not use."),
    Column(
        "fresh",
        _CLIENTS,
        _CLIENT,
        attrgetter("facts.fresh"),
        meaning="Clients of client age 0: used ones, those that answered a re-query, and all in a coded sum.",
    ),
    Column(ENERGY, _NUMBER, metered=True, meaning="Joules of all parties in the round; only where energy is counted."),
)
"""One row per server step."""


EVENTS = (
    Column("start_s", _NUMBER, meaning="Start of the activity."),
    Column("end_s", _NUMBER, meaning="End of the activity."),
    Column("party", _NAME, ANY, meaning="``server`` or ``client-3``; of a transfer the sender."),
    Column(
        "kind",
        _NAME,
        ANY,
        meaning="``compute.<operation>``, ``upload`` (the delay before an embedding), ``upload.<message>``, ``share`` "
        "(the delay before model shares), ``activation``, ``latency.<a>→<b>``, ``transfer.<message>`` or ``outage``.",
    ),
    Column("round", _INTEGER, ValueRange(-1), meaning="Round of the message; -1 without one."),
    Column("peer", _NAME, ANY, nullable=True, meaning="The receiver of a transfer."),
    Column("bytes", _INTEGER, meaning="Bytes that crossed the link."),
    Column("index", _INTEGER, meaning="Number of the draw: how often the party had begun this activity."),
    Column(
        "drawn_s",
        _NUMBER,
        _ABSENT,
        meaning="Value of the draw; NaN for transfers. It is the duration of a ``done`` activity up to rounding. "
        "Exceptions: with FLOPs it is the jitter factor; on a whole split the duration is multiplied by rows ÷ batch; "
        "for an activation it is the gap since the previous arrival.",
    ),
    Column(
        "sent_s",
        _NUMBER,
        _ABSENT,
        meaning="When a transfer was sent; NaN otherwise. Until ``start_s`` it waits: its latency, then the links.",
    ),
    Column(
        "outcome",
        _NAME,
        ANY,
        meaning="``done``; ``abandoned``: it had become useless; ``unfinished``: the run ended first; ``lost``: an "
        "outage ended it.",
    ),
)
"""One row per activity of a party."""


@dataclass(eq=False)
class MetricsRow(Counts):
    """What a run has counted until a row of metrics; losses and ages are of the steps since the row before."""

    time_s: float = 0.0
    energy_j: float = 0.0
    train_loss: float = math.nan
    row_ages: Ages = NO_AGES
    client_ages: Ages = NO_AGES


COUNTS = (
    Column("time_s", _NUMBER, meaning="Virtual time of the evaluation."),
    Column("round", _INTEGER, of=attrgetter("rounds"), grows=True, meaning="Server steps completed."),
    Column("updates", _INTEGER, grows=True, meaning="Client steps completed."),
    *(
        Column(name, _INTEGER, grows=True, settles=True, meaning=f"Bytes sent so far, {way}.")
        for name, way in zip(BYTES, ("client → server", "server → client", "client → client"), strict=True)
    ),
    Column(
        ENERGY,
        _NUMBER,
        metered=True,
        grows=True,
        settles=True,
        meaning="Joules of all parties so far; only where one says what it draws.",
    ),
    Column("train_loss", _NUMBER, ANY, meaning="Mean training loss of the server steps since the previous row."),
)
"""The columns of metrics before the scores of the model."""
AGES = (
    Column("row_age_mean", _NUMBER, _ABSENT, lambda row: row.row_ages.mean, meaning="Mean age of the rows used."),
    Column("row_age_max", _NUMBER, _ABSENT, lambda row: row.row_ages.maximum, meaning="Largest age of a row used."),
    Column("client_age_mean", _NUMBER, _ABSENT, lambda row: row.client_ages.mean, meaning="Mean age of the clients."),
    Column("client_age_max", _NUMBER, _ABSENT, lambda row: row.client_ages.maximum, meaning="Largest age of a client."),
)
"""Those after the scores."""
SPENT = Column(
    EPSILON,
    _NUMBER,
    ValueRange(infinite=True),
    grows=True,
    meaning="Largest ε that a client has spent so far, at its mechanism's δ; only with a mechanism.",
)
"""The last of the scores: whoever evaluates computes it."""


def schema_of(columns: Iterable[Column]) -> pa.Schema:
    """Make the schema of a table with these columns."""
    return pa.schema([pa.field(column.name, column.type, nullable=column.nullable) for column in columns])


def present(columns: Iterable[Column], metered: bool) -> list[Column]:
    """Select the columns of a run whose energy is counted, or is not."""
    return [column for column in columns if metered or not column.metered]


def values_of(columns: Iterable[Column], row: RoundRow | MetricsRow, metered: bool) -> dict[str, Any]:
    """Compute the columns of a row, or of arrays, that are present."""
    return {column.name: column.value(row) for column in present(columns, metered)}


def metrics_row(facts: MetricsRow, scores: Mapping[str, float], metered: bool) -> dict[str, float]:
    """Make a row of metrics around the model's ``scores``."""
    return values_of(COUNTS, facts, metered) | dict(scores) | values_of(AGES, facts, metered)


def metrics_columns(rows: list[dict[str, float]]) -> dict[str, NDArray[Any]]:
    """Make the columns of metrics of their rows, which may be none."""
    types = {column.name: column.type.to_pandas_dtype() for column in (*COUNTS, *AGES)}
    names = rows[0] if rows else [column.name for column in present((*COUNTS, *AGES), metered=False)]
    return {name: np.array([row[name] for row in rows], types.get(name)) for name in names}
