"""Fit compute models, upload delays, latencies and bandwidths to measured activities.

A time that clearly grows with its size (FLOPs, bytes) is a fixed part and size ÷ rate, by the slopes of Theil (1950)
and Sen (1968), which a quarter of outliers does not move. What is left is a law, of the family that ``fitting`` ranks
first, scaled to the mean that was measured.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy import stats

from vflsim.streams import SERVER, party_name
from vflsim.timing.compute import Flops
from vflsim.timing.delays import Constant
from vflsim.timing.delays.base import Delay
from vflsim.timing.floats import Floats
from vflsim.timing.measured.activity_log import ActivityLog, MeasuredTimes
from vflsim.timing.measured.fitting import FAMILIES, fitted, ks_statistic, ranked

_NOTHING = Constant(value=0.0)
ALL = "clients"
"""The name of all clients as one party."""
LATENCY = "latency"
LEVEL = 0.99
"""Confidence at which a slope must be above 0 to count."""
_MOST = 1_500
"""Measurements that a slope, and a law's family, are found from."""
_DIGITS = 6
_NEAR = 0.05
_ALIKE = 1e-6
"""Times that differ by less, relatively, are one time."""


@dataclass(frozen=True, eq=False)
class FittedTime:
    """One fitted time: whose (``party``), of what (``activity``), and how well.

    Without growth, ``per_unit`` = 0, ``law`` is the law of the time in seconds. Otherwise the time is (``fixed`` +
    ``per_unit`` · size) · law; of a link (``additive``) ``per_unit`` · size + law. ``why_not`` says why there is no
    growth.

    Example: ``fit_time("server", "compute.server_step", measured).residual_p95``
    """

    party: str
    activity: str
    measured: MeasuredTimes
    law: Delay
    fixed: float = 0.0
    per_unit: float = 0.0
    additive: bool = False
    why_not: str = ""

    @property
    def rate(self) -> float:
        """Units of size a second (FLOPS, bytes a second); inf without growth."""
        return 1 / self.per_unit if self.per_unit else math.inf

    def values(self) -> Floats:
        """Return what ``law`` describes: the measured times without what their sizes explain, (n,)."""
        seconds = self.measured.seconds
        if not self.per_unit:
            return seconds
        grown = self.fixed + self.per_unit * self.measured.size
        return np.maximum(seconds - grown, 0.0) if self.additive else seconds / grown

    def expected(self) -> Floats:
        """Return the fitted mean of each measured time, in seconds, (n,)."""
        mean = self.law.expectation()
        if not self.per_unit:
            return np.full(len(self.measured.seconds), mean)
        grown = self.fixed + self.per_unit * self.measured.size
        return grown + mean if self.additive else grown * mean

    @cached_property
    def ks(self) -> float:
        """The Kolmogorov–Smirnov distance of the law; NaN of a constant."""
        return math.nan if isinstance(self.law, Constant) else ks_statistic(self.law, np.sort(self.values()))

    @cached_property
    def r_squared(self) -> float:
        """The share of the variance that the size explains; NaN without growth, and where all times are equal."""
        seconds = self.measured.seconds
        spread = float(np.sum((seconds - seconds.mean()) ** 2))
        return 1 - float(np.sum((seconds - self.expected()) ** 2)) / spread if self.per_unit and spread else math.nan

    @cached_property
    def residual_p95(self) -> float:
        """The 95 % quantile of |measured − fitted mean|, in seconds."""
        return float(np.quantile(np.abs(self.measured.seconds - self.expected()), 0.95))


@dataclass(frozen=True)
class Calibration:
    """Fitted timing: ``timing``, the section of a scenario in plain values; every fit; and what is to be known.

    Example::

        calibration = calibrated(read_log("log.csv"))
        calibration.timing["server"]["compute"]
    """

    source: str
    timing: Mapping[str, Any]
    fits: tuple[FittedTime, ...]
    notes: tuple[str, ...] = ()

    def preset(self) -> dict[str, Any]:
        """Return what a preset's file holds, so that ``timing: {preset: timing.yaml}`` takes it."""
        return {"title": "timing fitted to measurements", "source": self.source, "timing": _short(dict(self.timing))}


def calibrated(log: ActivityLog, alike: bool = False) -> Calibration:
    """Fit the timing section of a scenario to a log; ``alike``: all clients together, as one entry for any number.

    Without it every client has an entry of its own. Operations that the log does not have take the time that is fitted
    to all operations of their party. Links are ``dedicated``: what messages waited for is in their latencies. Raises
    ValueError for a log without operations.

    Example: ``calibrated(read_log("log.csv"), alike=True).timing["clients"]``
    """
    if not log.operations:
        raise ValueError("the log has no computations; allowed: at least one compute.OPERATION")
    clients = sorted({party for party, _ in log.operations} | log.uplinks.keys() | log.downlinks.keys())
    clients = [client for client in clients if client != SERVER]
    groups = [(ALL, "all", clients)] if alike and clients else [(party_name(m), m, [m]) for m in clients]
    fits: list[FittedTime] = []
    timing: dict[str, Any] = {"network": "dedicated"}
    if operations := _operations(log, [SERVER]):
        timing["server"] = {"compute": _compute(party_name(SERVER), operations, fits)}
    entries: list[dict[str, Any]] = []
    for name, select, members in groups:
        entry: dict[str, Any] = {"select": select}
        if operations := _operations(log, members):
            entry["compute"] = _compute(name, operations, fits)
        if delays := [log.upload_delays[client] for client in members if client in log.upload_delays]:
            joined = MeasuredTimes.joined(delays)
            fits.append(FittedTime(name, "upload delay", joined, law_of(joined.seconds)))
            entry["upload_delay"] = entry_of(fits[-1].law)
        if link := _link(name, log, members, fits):
            entry["link"] = link
        entries.append(entry)
    timing["clients"] = entries
    return Calibration(log.source, timing, tuple(fits), log.notes)


def fit_time(party: str, activity: str, measured: MeasuredTimes) -> FittedTime:
    """Fit times: by their sizes if they clearly grow with them, otherwise by a law alone.

    Example: ``fit_time("server", "compute.server_step", measured).rate``
    """
    slope, why_not = _slope(measured)
    if not slope:
        return FittedTime(party, activity, measured, law_of(measured.seconds), why_not=why_not)
    fixed = float(np.median(measured.seconds - slope * measured.size))
    if fixed < 0:
        sized = measured.size > 0
        fixed, slope = 0.0, float(np.median(measured.seconds[sized] / measured.size[sized]))
    scale = float(measured.seconds.sum() / np.sum(fixed + slope * measured.size))  # the total is what was measured
    grown = FittedTime(party, activity, measured, Constant(value=1.0), fixed * scale, slope * scale)
    factors = grown.values()
    return replace(grown, law=law_of(factors / factors.mean()))


def law_of(values: Floats) -> Delay:
    """Return a law with the mean of the values; a constant if they are equal.

    Its family is the first in rank whose own fit has that mean within 5 %; without any, the one that is nearest to the
    values (Kolmogorov–Smirnov) once it has that mean. A heavy tail may fit the bulk, and have another mean.

    Example: ``law_of(np.array([0.1, 0.3, 0.2])).expectation()``
    """
    ordered, mean = np.sort(values), float(values.mean())
    if mean == 0 or ordered[-1] - ordered[0] <= _ALIKE * mean:
        return Constant(value=mean)
    few = ordered if len(ordered) <= _MOST else np.quantile(ordered, (np.arange(_MOST) + 0.5) / _MOST)
    scaled: list[Delay] = []
    for fit in ranked([fitted(kind, family, few) for kind, family in FAMILIES.items()]):
        if fit.delay is None or not 0 < (own_mean := fit.delay.expectation()) < math.inf:
            continue
        try:  # families scale with their observations
            law = FAMILIES[fit.kind].method(few * (mean / own_mean))
        except ValueError:
            continue
        if abs(own_mean / mean - 1) <= _NEAR:
            return law
        scaled.append(law)
    return min(scaled, key=lambda law: ks_statistic(law, ordered), default=Constant(value=mean))


def entry_of(law: Delay) -> Any:
    """Return a law as a scenario has it, a constant as a plain number of seconds."""
    return law.value if isinstance(law, Constant) else law.model_dump(mode="json", exclude_none=True)


def _short(value: Any) -> Any:
    """Return plain values with numbers of six significant digits."""
    if isinstance(value, dict):
        return {key: _short(item) for key, item in value.items()}
    if isinstance(value, list | tuple):  # probabilities keep their sum
        return [_short(item) if isinstance(item, dict) else item for item in value]
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value


def _operations(log: ActivityLog, members: Sequence[int]) -> dict[str, MeasuredTimes]:
    """Return what these parties did, by operation."""
    kinds = sorted({kind for party, kind in log.operations if party in members})
    return {
        kind: MeasuredTimes.joined(
            [log.operations[party, kind] for party in members if (party, kind) in log.operations]
        )
        for kind in kinds
    }


def _compute(party: str, measured_by_kind: Mapping[str, MeasuredTimes], fits: list[FittedTime]) -> dict[str, Any]:
    """Fit the compute model of a party; add its fits."""
    by_kind = {kind: fit_time(party, f"compute.{kind}", measured) for kind, measured in measured_by_kind.items()}
    others = fit_time(party, "compute, all", MeasuredTimes.joined([*measured_by_kind.values()]))
    fits += [*by_kind.values(), *([others] if len(measured_by_kind) > 1 else [])]
    operations = {kind: _model(fit) for kind, fit in by_kind.items()}
    return {"kind": "by_operation", "operations": operations, "others": _model(others)}


def _model(fit: FittedTime) -> Any:
    """Return how operations take time, as a scenario has it."""
    if not fit.per_unit:
        return entry_of(fit.law)
    factor = None if isinstance(fit.law, Constant) else fit.law
    return Flops(fixed=fit.fixed, rate=fit.rate, jitter=factor).model_dump(mode="json", exclude_none=True)


def _link(party: str, log: ActivityLog, members: Sequence[int], fits: list[FittedTime]) -> dict[str, Any]:
    """Fit the link of a party: a rate each way, and one latency for both; add its fits."""
    link: dict[str, Any] = {}
    latencies: list[MeasuredTimes] = []
    for way, side in (("up", log.uplinks), ("down", log.downlinks)):
        parts = [side[client] for client in members if client in side]
        if not parts:
            continue
        measured = MeasuredTimes.joined(parts)
        slope, why_not = _slope(measured)
        fit = FittedTime(party, f"messages {way}", measured, _NOTHING, per_unit=slope, additive=True, why_not=why_not)
        latencies.append(MeasuredTimes(fit.values(), measured.size))
        fits.append(replace(fit, law=law_of(fit.values())))
        if slope:
            link[way] = 8 * fit.rate
    if latencies:
        both = MeasuredTimes.joined(latencies)
        fits.append(FittedTime(party, LATENCY, both, law_of(both.seconds)))
        link["latency"] = entry_of(fits[-1].law)
    return link


def _slope(measured: MeasuredTimes) -> tuple[float, str]:
    """Return by how many seconds a time grows with a unit of its size, 0 with the reason if that cannot be told."""
    known = np.isfinite(measured.size)
    seconds, sizes = measured.seconds[known], measured.size[known]
    if not len(sizes) or not np.all(known):
        return 0.0, "sizes are not known"
    if len(different := np.unique(sizes)) < 2:
        return 0.0, f"all have one size, {different[0]:,.0f}"
    chosen = _spread(sizes)
    with np.errstate(invalid="ignore"):  # no interval where nearly all times are equal
        slopes = stats.theilslopes(seconds[chosen], sizes[chosen], LEVEL)
    least = slopes.low_slope if math.isfinite(slopes.low_slope) else slopes.slope
    if not (least > 0 and slopes.slope > 0):
        return 0.0, f"no clear growth from {different[0]:,.0f} to {different[-1]:,.0f}"
    return float(slopes.slope), ""


def _spread(sizes: Floats) -> Any:
    """Choose at most ``_MOST`` measurements, of each size in turn, evenly spread over the log."""
    if len(sizes) <= _MOST:
        return np.arange(len(sizes))
    values, counts = np.unique(sizes, return_counts=True)
    share = max(_MOST // len(values), 1)
    chosen = [
        np.flatnonzero(sizes == value)[np.linspace(0, count - 1, min(count, share)).astype(np.int64)]
        for value, count in zip(values[:_MOST], counts[:_MOST], strict=True)
    ]
    return np.sort(np.concatenate(chosen))
