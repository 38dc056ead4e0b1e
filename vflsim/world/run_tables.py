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

from vflsim.books.counts import BYTES, Counts
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
    before; ``settles``: counts what ends with the run itself, so that the last row is brought up to date.
    """

    name: str
    type: pa.DataType
    span: ValueRange = _NONNEGATIVE
    of: Callable[[Any], Any] | None = None
    nullable: bool = False
    metered: bool = False
    grows: bool = False
    settles: bool = False

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
    Column("round", _INTEGER),
    Column("start_s", _NUMBER),
    Column("end_s", _NUMBER),
    Column("used", _CLIENTS, _CLIENT, attrgetter("facts.used")),
    Column("missing", _CLIENTS, _CLIENT, attrgetter("facts.missing")),
    Column("fresh", _CLIENTS, _CLIENT, attrgetter("facts.fresh")),
    Column(ENERGY, _NUMBER, metered=True),
)
"""One row per server step: its round's start and end, clients used, clients missing, clients with client age 0."""


EVENTS = (
    Column("start_s", _NUMBER),
    Column("end_s", _NUMBER),
    Column("party", _NAME, ANY),
    Column("kind", _NAME, ANY),
    Column("round", _INTEGER, ValueRange(-1)),
    Column("peer", _NAME, ANY, nullable=True),
    Column("bytes", _INTEGER),
    Column("index", _INTEGER),
    Column("drawn_s", _NUMBER, _ABSENT),
    Column("sent_s", _NUMBER, _ABSENT),
    Column("outcome", _NAME, ANY),
)
"""One row per activity of a party. In a transfer, ``party`` sends and ``peer`` receives; ``bytes`` is the amount sent;
``sent_s`` is the time of sending. Between ``sent_s`` and ``start_s`` it waits: first its latency, then for the
links."""


@dataclass(eq=False)
class MetricsRow(Counts):
    """What a run has counted until a row of metrics; losses and ages are of the steps since the row before."""

    time_s: float = 0.0
    energy_j: float = 0.0
    train_loss: float = math.nan
    row_ages: Ages = NO_AGES
    client_ages: Ages = NO_AGES


COUNTS = (
    Column("time_s", _NUMBER),
    Column("round", _INTEGER, of=attrgetter("rounds"), grows=True),
    Column("updates", _INTEGER, grows=True),
    *(Column(name, _INTEGER, grows=True, settles=True) for name in BYTES),
    Column(ENERGY, _NUMBER, metered=True, grows=True, settles=True),
    Column("train_loss", _NUMBER, ANY),
)
"""The columns of metrics before the scores of the model."""
AGES = (
    Column("row_age_mean", _NUMBER, _ABSENT, lambda row: row.row_ages.mean),
    Column("row_age_max", _NUMBER, _ABSENT, lambda row: row.row_ages.maximum),
    Column("client_age_mean", _NUMBER, _ABSENT, lambda row: row.client_ages.mean),
    Column("client_age_max", _NUMBER, _ABSENT, lambda row: row.client_ages.maximum),
)
"""Those after the scores."""
SPENT = Column(EPSILON, _NUMBER, ValueRange(infinite=True), grows=True)
"""The last of the scores: whoever evaluates computes it."""


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
