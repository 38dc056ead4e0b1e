"""Protocols by a measure, best first, and which of them the seeds do not tell apart."""

import math
from dataclasses import dataclass
from typing import final

import pandas as pd

from vflsim.intervals.means import CONFIDENCE, holm
from vflsim.results.run_set import RunSet
from vflsim.results.statistics.estimates import Estimate, describe
from vflsim.results.tables.footnotes import select
from vflsim.vocabulary.amounts import Amount


@final
@dataclass(frozen=True)
class Ranking:
    """Protocols by a measure, best first.

    ``order`` has those of which every run has a value; ``close`` are those not clearly behind the first: t tests of
    all pairs, with Holm's correction for their number (5 %), do not tell them apart. ``estimates`` has all protocols.
    """

    order: tuple[str, ...]
    close: tuple[str, ...]
    estimates: dict[str, Estimate]
    unit: str

    @property
    def best(self) -> str:
        """The first protocol."""
        return self.order[0]

    def text(self, protocol: str, share: bool = False) -> str:
        """Format a protocol's value with its interval, or with three digits."""
        estimate = self.estimates[protocol]
        if not share and not estimate.censored and not estimate.wide and math.isnan(estimate.low):
            return str(Amount(estimate.mean, self.unit, form="three"))
        return str(describe(estimate, self.unit, share))


def ranking(
    results: RunSet, summary: pd.DataFrame, measure: str, target: str | None = None, highest: bool = False
) -> Ranking | None:
    """Rank the protocols by a measure, the lowest first; None if no protocol has a mean. References do not compete."""
    rows = select(summary, measure, target)
    references = {run.protocol for run in results.runs if run.info.reference}
    means = rows[rows["baseline"].isna() & ~rows["protocol"].isin(references)]
    estimates = {row["protocol"]: Estimate.of(row) for _, row in means.iterrows()}
    known = [name for name, each in estimates.items() if not each.censored]
    if not known:
        return None
    order = tuple(sorted(known, key=lambda name: estimates[name].mean, reverse=highest))
    pairs = rows[rows["protocol"].isin(order) & rows["baseline"].isin(order) & rows["p"].notna()]
    # All pairs count, not only those with the first: which is first is seen in the same runs.
    corrected = holm(pairs["p"].to_numpy(dtype=float))
    names = map(frozenset, zip(pairs["protocol"], pairs["baseline"], strict=True))
    p_values = dict(zip(names, corrected, strict=True))
    close = tuple(name for name in order[1:] if p_values.get(frozenset((name, order[0])), 0.0) >= 1 - CONFIDENCE)
    return Ranking(order, close, estimates, str(means["unit"].iloc[0]))
