"""Closed forms of what the timing simulation measures. Knows delays; knows nothing of models or protocols."""

from __future__ import annotations

from vflsim.timing.analysis.ages import Geometric, used_probabilities
from vflsim.timing.analysis.coded import coded_round
from vflsim.timing.analysis.findings import ClosedForm, Finding, Formula, NoClosedForm, Range
from vflsim.timing.analysis.law import Law, Mixture, OfDelay, Point, mixture
from vflsim.timing.analysis.memoryless import working_on
from vflsim.timing.analysis.order import OrderStatistic, counts, maximum, minimum, order_statistic
from vflsim.timing.analysis.race import Race, exponential_ratio, race
from vflsim.timing.analysis.renewal import pooled_interval, repairman_rates
from vflsim.timing.analysis.sums import shifted, total

__all__ = [
    "ClosedForm",
    "Finding",
    "Formula",
    "Geometric",
    "Law",
    "Mixture",
    "NoClosedForm",
    "OfDelay",
    "OrderStatistic",
    "Point",
    "Race",
    "Range",
    "coded_round",
    "counts",
    "exponential_ratio",
    "maximum",
    "minimum",
    "mixture",
    "order_statistic",
    "pooled_interval",
    "race",
    "repairman_rates",
    "shifted",
    "total",
    "used_probabilities",
    "working_on",
]
