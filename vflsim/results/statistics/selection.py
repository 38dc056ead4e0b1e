"""Choose the best of several candidates, and name those that the seeds do not tell apart from it."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from vflsim.intervals.means import CONFIDENCE, t_interval
from vflsim.results.statistics.estimates import GEOMETRIC, SeedSample, estimate

Name = TypeVar("Name", bound=Hashable)


@dataclass(frozen=True)
class Selection(Generic[Name]):
    """The ``best`` candidate (None: every one is censored), and those ``close`` to it, in the order given.

    The best one and the close ones together hold the candidate whose true mean is best with a probability of 95 %.
    """

    best: Name | None
    close: tuple[Name, ...]


def select_best(samples: Mapping[Name, SeedSample], statistic: str, highest: bool = False) -> Selection[Name]:
    """Choose the candidate with the least (or ``highest``) mean over seeds, the first of equal ones.

    A candidate with a censored run is never the best. Close are all that are not clearly behind: a one-sided t test of
    the paired differences over common seeds, of logarithms for a geometric mean, at 5 % divided by the number of the
    other candidates. So the truly best of them is lost with 5 % at most, however many there are. A censored value is a
    lower bound of a cost, and its difference one, too. Of a cost between two evaluations the lower end counts, of the
    best one's the upper end. One common seed tells nothing apart.

    Source: subset selection, Gupta, Technometrics 7(2), 1965, with Bonferroni's inequality for dependent candidates.
    """
    means = {name: estimate(sample, statistic).mean for name, sample in samples.items() if sample.known}
    if not means:
        return Selection(None, ())
    best = (max if highest else min)(means, key=lambda name: means[name])
    others = [name for name in samples if name != best]
    level = (1 - CONFIDENCE) / max(len(others), 1)
    close = [
        name
        for name in others
        if len(samples[name].values) and not _behind(samples[name], samples[best], statistic, highest, level)
    ]
    return Selection(best, tuple(close))


def _behind(own: SeedSample, best: SeedSample, statistic: str, highest: bool, level: float) -> bool:
    """Tell whether a candidate's mean is worse than the best one's, with an error of ``level``."""
    mine = dict(zip(own.seeds, own.values if highest else own.lower, strict=True))
    its = dict(zip(best.seeds, best.lower if highest else best.values, strict=True))
    values = np.array([[side[seed] for seed in own.seeds if seed in its] for side in (mine, its)])
    if statistic == GEOMETRIC and (values > 0).all():
        values = np.log(values)
    gaps = values[1] - values[0] if highest else values[0] - values[1]
    return bool(t_interval(gaps, 1 - 2 * level).low > 0)
