"""Bandwidths over time: constant, or changing in steps, inline or from a file.

To add a kind: a final class like those below, and its name in ``CapacityKind`` at the end.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, Literal, Self, TypeAlias, final, get_args

import numpy as np
from pydantic import Discriminator, Field, Tag, ValidationInfo, model_validator
from typing_extensions import override

from vflsim.timing.delays import AnyDelay, Constant
from vflsim.timing.profile import Flat, StepProfile, tried_profile
from vflsim.timing.readers import Stamp, columns_of, stamp_of, text_of
from vflsim.vocabulary import BitsPerSecond, Part, PositiveSeconds, Seconds, Shorthand
from vflsim.vocabulary.imported import OrModule
from vflsim.vocabulary.quantities import BANDWIDTH, PLAIN_FROM, TIME, Period, Quantity
from vflsim.vocabulary.trial import Trial

PACKET_BITS = 8 * 1500
"""The bits of one line of a Mahimahi trace."""
MAX_WINDOWS = 10_000_000
"""The most windows of a trace: 11 days in windows of 0.1 s."""
_KEPT = 1024  # traces


def rate_trace(file: str, time_unit: str, rate_unit: str, period: float | None) -> StepProfile:
    """Give the bandwidth (bit/s) of a CSV file with the columns time and rate, each in the unit given.

    Raises ValueError, naming file, row and value, for a file that cannot be read, rows that are not two numbers, times
    that do not ascend from 0, negative rates, and a ``period`` (s) that ends before the last time.
    """
    return _rate_trace(file, stamp_of(file), time_unit, rate_unit, period)


@lru_cache(_KEPT)
def _rate_trace(file: str, _: Stamp, time_unit: str, rate_unit: str, period: float | None) -> StepProfile:
    table = columns_of(file, ("time", "rate"))
    per_time, per_rate = TIME.units[time_unit], BANDWIDTH.units[rate_unit]
    times = table[:, 0] * per_time.numerator / per_time.denominator  # exact where * 0.001 would not be
    rates = table[:, 1] * int(per_rate)
    for wrong, what, allowed in (
        (~(rates >= 0), "rate", "numbers of at least 0"),
        (~np.isfinite(times), "time", "finite numbers"),
        (np.diff(times, prepend=-1.0) <= 0, "time", "times that ascend, from 0 on"),
    ):
        if wrong.any():
            row = int(np.argmax(wrong))
            value = table[row, 0 if what == "time" else 1]
            raise ValueError(f"{file}: {what} {value:g} in row {row + 1}; allowed: {allowed}")
    if times[0] != 0:
        raise ValueError(f"{file}: the first time is {table[0, 0]:g}; allowed: 0, from where on its rate holds")
    if period is not None and period <= times[-1]:
        raise ValueError(f"period = {period:g} s, but {file} lasts until {times[-1]:g} s; allowed: a longer period")
    return StepProfile(times.tolist(), rates.tolist(), period)


def packet_trace(file: str, window: float, repeated: bool) -> StepProfile:
    """Give the bandwidth (bit/s) of a Mahimahi packet trace, averaged over windows of ``window`` seconds.

    Opportunity t (ms) counts for the window (a, b] that it lies in, 0 for the first; the trace, and its last window,
    end with the last opportunity. Raises ValueError, naming file, line and value, for a file that cannot be read, lines
    that are no whole numbers ≥ 0, and times that descend or are all 0.
    """
    return _packet_trace(file, stamp_of(file), window, repeated)


@lru_cache(_KEPT)
def _packet_trace(file: str, _: Stamp, window: float, repeated: bool) -> StepProfile:
    stamps = _time_stamps(file)
    end, width = int(stamps[-1]), 1000 * window
    if end / width > MAX_WINDOWS:
        raise ValueError(
            f"{file}: its last stamp, {end:,} ms, makes {end / width:,.3g} windows of {window:g} s; "
            f"allowed: up to {MAX_WINDOWS:,}; choose a wider window, or correct the stamps"
        )
    # Rounded, so that a stamp that is a multiple of the window lies in the window that it ends.
    windows = np.maximum(np.ceil(np.round(stamps / width, 9)).astype(np.int64) - 1, 0)
    packets = np.bincount(windows)
    starts = np.arange(len(packets)) * width
    lengths = np.minimum(width, end - starts)
    times, rates = starts / 1000, packets * PACKET_BITS / (lengths / 1000)
    return StepProfile(times.tolist(), rates.tolist(), end / 1000 if repeated else None)


def _time_stamps(file: str) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The time stamps of a packet trace, in ms."""
    stamps: list[int] = []
    last = 0
    for number, line in enumerate(text_of(file, "ascii", "a packet trace of Mahimahi").splitlines(), start=1):
        word = line.strip()
        if not word:
            continue
        if not (word.isascii() and word.isdigit() and len(word) < 16):
            raise ValueError(f"{file}:{number}: {word[:40]!r}; allowed: a whole number of milliseconds a line")
        stamp = int(word)
        if stamp < last:
            raise ValueError(f"{file}:{number}: {stamp} ms after {last} ms; allowed: time stamps that never descend")
        stamps.append(stamp)
        last = stamp
    if not last:
        what = "holds no time stamps" if not stamps else "has no time stamp above 0"
        raise ValueError(f"{file!r} {what}; allowed: a packet trace of Mahimahi, milliseconds line by line")
    return np.array(stamps, np.int64)


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
    | Annotated[
        CapacityKind,
        Field(discriminator="kind"),
        OrModule(Capacity),
        _STEPS,
        Tag("varying"),
    ],
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
