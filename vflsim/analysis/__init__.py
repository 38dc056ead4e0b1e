"""Closed forms of what the timing simulation measures. Knows delays; knows nothing of models or protocols."""

from __future__ import annotations

from vflsim.analysis.ages import Geometric, used_probabilities
from vflsim.analysis.findings import ClosedForm, Finding, Formula, NoClosedForm, Range
from vflsim.analysis.memoryless import working_on
from vflsim.analysis.product_form import repairman_rates
from vflsim.analysis.renewal import pooled_interval
from vflsim.timing.affine import OfDelay
from vflsim.timing.law import Law, MixtureLaw, Point, mixture
from vflsim.timing.order import OrderStatistic, counts, maximum, minimum, order_statistic
from vflsim.timing.sums import shifted, total

__all__ = [
    "ClosedForm",
    "Finding",
    "Formula",
    "Geometric",
    "Law",
    "MixtureLaw",
    "NoClosedForm",
    "OfDelay",
    "OrderStatistic",
    "Point",
    "Range",
    "counts",
    "maximum",
    "minimum",
    "mixture",
    "order_statistic",
    "pooled_interval",
    "repairman_rates",
    "shifted",
    "total",
    "used_probabilities",
    "working_on",
]
