"""Links: bandwidths over time, constant or in steps, inline or from a file; latencies; matrices of latencies.

To add a kind: a final class like those below, and its name in ``CapacityKind`` at the end.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeAlias, final, get_args

import numpy as np
from pydantic import Discriminator, Field, Tag, ValidationInfo, model_validator
from typing_extensions import override

from vflsim.timing.delays import AnyDelay, Constant
from vflsim.timing.floats import Floats
from vflsim.timing.profile import Flat, StepProfile, tried_profile
from vflsim.timing.readers import Stamp, packet_trace, rate_trace, stamp_of, table_of, text_of
from vflsim.vocabulary import BitsPerSecond, Index, Part, PositiveSeconds, Seconds, Shorthand
from vflsim.vocabulary.imported import OrModule
from vflsim.vocabulary.quantities import BANDWIDTH, PLAIN_FROM, TIME, Period, Quantity
from vflsim.vocabulary.trial import Trial

# --- capacity ---------------------------------------------------------------------------------------------------------


Rate = Annotated[float, Quantity(BANDWIDTH, at_least=0, unlimited=True, plain_from=PLAIN_FROM)]
TimeUnit = Literal["s", "ms", "us"]
RateUnit = Literal["bps", "kbps", "Mbps", "Gbps", "bit/s", "kbit/s", "Mbit/s", "Gbit/s", "B/s", "kB/s", "MB/s", "GB/s"]


class Capacity(Part, ABC):
    """A bandwidth that changes in time; a kind of capacity is a final subclass with its own ``kind``.

    Example of a class of your own, for a link that others use in turn. A scenario names it by
    ``link: {up: {kind: module, path: "mine:Shared", rate: 20 Mbps, others: 3}}``::

        class Shared(Capacity):
            kind: Literal["shared"] = "shared"
            rate: BitsPerSecond
            others: Count

            def profile(self) -> StepProfile:
                return StepProfile([0.0, 1.0], [self.rate, self.rate / (1 + self.others)], period=2.0)
    """

    kind: str
    """The name of this kind, as scenarios write it."""

    @abstractmethod
    def profile(self) -> StepProfile | Flat:
        """Return the bandwidth in bit/s as a function of time. Raises ValueError for impossible ones."""

    @model_validator(mode="after")
    def _must_be_possible(self) -> Self:
        if not type(self).__module__.startswith("vflsim."):
            return self  # the contract says so
        if self.profile().finish(0.0, 0.0) == float("inf"):
            raise ValueError("every rate is 0: nothing would ever move; allowed: at least one rate above 0")
        return self

    def _contract(self, trial: Trial) -> None:
        allowed = "StepProfile(times, rates) in bit/s, or Flat(rate)"
        tried_profile(trial, self.profile, (StepProfile, Flat), allowed, "")
        what, moves = f"{trial.name}.profile is 0 at all times: nothing would ever move", self.profile()
        trial.must(moves.finish(0.0, 0.0) < float("inf"), what, "at least one rate above 0", "profile")


@final
class CapacitySteps(Capacity):
    """A bandwidth that changes at given times; the last rate stays, unless all repeats.

    Example: ``{kind: steps, steps: [[0 s, 20 Mbps], [30 s, 2 Mbps]], period: 60 s}``
    """

    kind: Literal["steps"] = "steps"
    steps: Annotated[tuple[tuple[Seconds, Rate], ...], Field(min_length=1)]
    """From when on which rate (0: nothing moves); from 0 s on."""
    period: Period | None = None
    """The steps repeat after this long; without it the last rate lasts for ever."""

    @override
    def profile(self) -> StepProfile:
        times, rates = zip(*self.steps, strict=True)
        return StepProfile(times, rates, self.period)


@final
class CapacityTrace(Capacity):
    """A measured bandwidth: a CSV file with the columns time and rate; the last rate stays, unless all repeats.

    Example: ``{kind: trace, file: rates.csv, time_unit: s, rate_unit: Mbps, period: 10 min}``
    """

    kind: Literal["trace"] = "trace"
    file: Annotated[str, Field(min_length=1)]
    """Rows of time and rate (from then on), the first at time 0; with or without a header. Relative to the scenario."""
    time_unit: TimeUnit = "s"
    """Unit of the times in the file."""
    rate_unit: RateUnit = "bps"
    """Unit of the rates in the file."""
    period: Period | None = None
    """The steps repeat after this long; without it the last rate lasts for ever."""

    @model_validator(mode="after")
    def _needs_its_unit(self, info: ValidationInfo) -> Self:
        highest = self.profile().highest
        if info.context is not None and "rate_unit" not in self.model_fields_set and highest < PLAIN_FROM:
            raise ValueError(
                f"{self.file}: without a rate_unit its highest rate is {highest:g} bps; allowed: at least "
                f"{PLAIN_FROM:g} without a unit, less with one; say `rate_unit: Mbps`, say, or insist: `rate_unit: bps`"
            )
        return self

    @override
    def profile(self) -> StepProfile:
        return rate_trace(self.file, self.time_unit, self.rate_unit, self.period)


@final
class CapacityMahimahi(Capacity):
    """A packet trace of Mahimahi (mm-link): a line for each opportunity to deliver 1500 bytes, in milliseconds.

    A window's rate is the bytes of its opportunities ÷ its length; an opportunity at the end of a window counts for it,
    one at 0 for the first. The trace thus carries all of its bytes, each at most one window too early.

    Example: ``{kind: mahimahi, file: cellular.trace, window: 0.5 s, repeated: false}``
    """

    kind: Literal["mahimahi"] = "mahimahi"
    file: Annotated[str, Field(min_length=1)]
    """The trace. Relative to the scenario."""
    window: PositiveSeconds = 0.1
    """The length of the averages; the last window ends with the trace."""
    repeated: bool = True
    """Begin again at the last time stamp, as mm-link does; otherwise the last window's rate lasts for ever."""

    @override
    def profile(self) -> StepProfile:
        return packet_trace(self.file, self.window, self.repeated)


CapacityKind: TypeAlias = CapacitySteps | CapacityTrace | CapacityMahimahi
CAPACITIES: tuple[type[Part], ...] = get_args(CapacityKind)
"""Every kind of capacity that changes in time."""


def _steps_from_list(value: Any) -> Any:
    """Expand a list of steps to a capacity."""
    return {"kind": "steps", "steps": value} if isinstance(value, list | tuple) else value


def _quantity_or_kind(value: Any) -> str:
    """Distinguish a quantity from a capacity that changes over time."""
    return "varying" if isinstance(value, Mapping | list | tuple | Capacity) else "quantity"


_STEPS = Shorthand(_steps_from_list, {"type": "array", "description": "steps: a list of [time, rate]"})

AnyCapacity = Annotated[
    Annotated[BitsPerSecond, Tag("quantity")]
    | Annotated[CapacityKind, Field(discriminator="kind"), OrModule(Capacity), _STEPS, Tag("varying")],
    Discriminator(_quantity_or_kind),
]
"""A field that takes a bandwidth, or any kind of capacity that changes in time, or a list of steps for ``steps``."""


def capacity_profile(capacity: float | Capacity) -> Flat | StepProfile:
    """Give a constant or changing bandwidth (bit/s) as a function of time."""
    return capacity.profile() if isinstance(capacity, Capacity) else Flat(capacity)


# --- link -------------------------------------------------------------------------------------------------------------


@final
class Link(Part):
    """The connection of a party to the network. Latency is paid first and does not occupy the link; then bandwidth.

    Example: ``{up: 20 Mbps, down: 100 Mbps, latency: 5 ms}``
    """

    up: AnyCapacity = math.inf
    """Bandwidth from the party into the network."""
    down: AnyCapacity = math.inf
    """Bandwidth from the network to the party."""
    latency: AnyDelay = Constant(value=0.0)
    """Latency of every message that passes the link; a message pays that of its sender's and of its receiver's link."""

    @property
    def limited(self) -> bool:
        """Whether its bandwidth is limited, so that transfers take time."""
        return not self.up == self.down == math.inf


# --- latencies --------------------------------------------------------------------------------------------------------


_SEPARATORS = re.compile(r"[,;\s]+")


@final
class LatencyMatrix(Part):
    """A latency for every ordered pair of parties, added to that of their links: row = from, column = to.

    Party p is node p of the matrix (0 is the server), unless ``nodes`` says which one. The diagonal is ignored.

    Example: ``{file: latencies.csv, unit: ms, round_trip: true, nodes: [2, 0, 1]}``
    """

    file: Annotated[str, Field(min_length=1)]
    """A square matrix: text with commas, tabs or blanks between the numbers, or ``.npy``. Relative to the scenario."""
    unit: Literal["s", "ms", "us"] = "s"
    """Unit of the numbers in the file."""
    round_trip: bool = False
    """The numbers are round-trip times: a message takes half of one."""
    nodes: Annotated[tuple[Index, ...], Field(min_length=2)] | None = None
    """The node (from 0) of the server, of client 1, and so on."""

    @model_validator(mode="after")
    def _must_be_possible(self) -> Self:
        size = len(self._matrix())
        strange = [node for node in self.nodes or () if node >= size]
        if strange:
            raise ValueError(f"node {strange[0]} is not in {self.file}; allowed: nodes 0 to {size - 1}")
        return self

    def check(self, parties: int) -> None:
        """Raise ValueError unless there is a node for each of so many parties, the server included."""
        there = len(self._matrix()) if self.nodes is None else len(self.nodes)
        if there < parties:
            source = self.file if self.nodes is None else "nodes"
            raise ValueError(f"{source} has {there} nodes for {parties} parties; allowed: at least one for each")

    def seconds(self, sender: int, receiver: int) -> float:
        """Give the latency of a message from party ``sender`` to party ``receiver``, in seconds."""
        if self.nodes is not None:
            sender, receiver = self.nodes[sender], self.nodes[receiver]
        factor = TIME.units[self.unit]
        seconds = float(self._matrix()[sender, receiver]) * factor.numerator / factor.denominator
        return seconds / 2 if self.round_trip else seconds

    def _matrix(self) -> Floats:
        return _matrix(self.file, stamp_of(self.file))


@lru_cache(16)
def _matrix(file: str, _: Stamp) -> Floats:
    """The square matrix in ``file``, each number finite and at least 0."""
    try:
        matrix = table_of(Path(file), "a square matrix") if file.endswith(".npy") else _text(file)
    except OSError as error:
        raise ValueError(f"{file!r} cannot be used: {error}; allowed: a square matrix") from None
    rows, columns = matrix.shape
    if rows != columns or not rows:
        raise ValueError(f"{file} has {rows} rows and {columns} columns; allowed: a square matrix")
    wrong = ~(np.isfinite(matrix) & (matrix >= 0))
    np.fill_diagonal(wrong, False)
    if wrong.any():
        row, column = (int(index) for index in np.argwhere(wrong)[0])
        value = f"{matrix[row, column]:g} in row {row + 1}, column {column + 1}"
        raise ValueError(f"{file}: {value}; allowed: finite latencies of at least 0")
    return matrix


def _text(file: str) -> Floats:
    rows: list[list[float]] = []
    lines = text_of(file, "utf-8-sig", "a square matrix of numbers").splitlines()
    for number, line in enumerate(lines, start=1):
        words = _SEPARATORS.split(line.strip())
        if words == [""] or words[0].startswith("#"):
            continue
        try:
            rows.append([float(word) for word in words])
        except ValueError:
            what = f"{file}:{number}: not all of it is numbers"
            raise ValueError(f"{what}; allowed: a square matrix of numbers") from None
        if len(rows[-1]) != len(rows[0]):
            what = f"{len(rows[-1])} numbers after rows of {len(rows[0])}"
            raise ValueError(f"{file}:{number}: {what}; allowed: a square matrix")
    return np.array(rows, dtype=np.float64).reshape(len(rows), len(rows[0]) if rows else 0)
