"""Choose the best of several candidates, and name those that the seeds do not tell apart from it."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from vflsim.results.statistics.estimates import GEOMETRIC, Estimate, estimate
from vflsim.results.statistics.means import CONFIDENCE, t_interval
from vflsim.timing.floats import Floats

Name = TypeVar("Name", bound=Hashable)


@dataclass(frozen=True)
class SeedSample:
    """One number from every run of a candidate, in the order of ``seeds``: (seeds,); censored ones are lower bounds."""

    seeds: tuple[int, ...]
    values: Floats
    censored: npt.NDArray[np.bool_]

    @classmethod
    def exact(cls, by_seed: Mapping[int, float]) -> SeedSample:
        """Return a sample without censored values."""
        values = np.array([*by_seed.values()], dtype=np.float64)
        return cls((*by_seed,), values, np.zeros(len(values), dtype=np.bool_))

    @property
    def known(self) -> bool:
        """Whether there are runs, and none is censored."""
        return bool(len(self.values)) and not self.censored.any()

    def estimate(self, statistic: str) -> Estimate:
        """Estimate the mean over seeds."""
        return estimate(self.values, self.censored, statistic)


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
    lower bound of a cost, and its difference one, too. One common seed tells nothing apart.

    Source: subset selection, Gupta, Technometrics 7(2), 1965, with Bonferroni's inequality for dependent candidates.
    """
    means = {name: sample.estimate(statistic).mean for name, sample in samples.items() if sample.known}
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
    mine, its = (dict(zip(each.seeds, each.values, strict=True)) for each in (own, best))
    common = [seed for seed in own.seeds if seed in its]
    values = np.array([[side[seed] for seed in common] for side in (mine, its)])
    if statistic == GEOMETRIC and (values > 0).all():
        values = np.log(values)
    gaps = values[1] - values[0] if highest else values[0] - values[1]
    return bool(t_interval(gaps, 1 - 2 * level).low > 0)
