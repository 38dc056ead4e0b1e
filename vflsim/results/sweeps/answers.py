"""What a sweep answers: which values of its choices are best for each protocol, by time, bytes and energy.

Keys that describe the world are no choices (``choices``): at each of their values there are answers of their own.
Where all runs of some value reached the target, values are compared by what they spent until then. The protocols that
reached it nowhere in all runs are compared by the main metric after the same time, bytes and energy: as much as all of
their runs have spent. Values are compared by paired differences over seeds (``select_best``).
"""

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar, final

import numpy as np
import pandas as pd

from vflsim.intervals import CONFIDENCE, t_interval
from vflsim.results.statistics import statistic_of
from vflsim.results.statistics.estimates import GEOMETRIC, MEAN, Estimate, SeedSample, estimate, paired
from vflsim.results.statistics.pairs import Ratio, ratio
from vflsim.results.sweeps import Sweep
from vflsim.results.sweeps.axis import SweepAxis, key_column
from vflsim.results.sweeps.candidates import COSTS, UNITS, Candidate, Competition, SweepMeasurements
from vflsim.vocabulary.metrics import facts_of, is_share
from vflsim.vocabulary.plain_yaml import flow

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


def _behind(sample: SeedSample, best: SeedSample, statistic: str, highest: bool, level: float) -> bool:
    """Tell whether a candidate's mean is worse than the best one's, with an error of ``level``."""
    mine = dict(zip(sample.seeds, sample.values if highest else sample.lower, strict=True))
    its = dict(zip(best.seeds, best.lower if highest else best.values, strict=True))
    values = np.array([[side[seed] for seed in sample.seeds if seed in its] for side in (mine, its)])
    if statistic == GEOMETRIC and (values > 0).all():
        values = np.log(values)
    gaps = values[1] - values[0] if highest else values[0] - values[1]
    return bool(t_interval(gaps, 1 - 2 * level).low > 0)


ANY = "any"
"""The best value of a key on which a protocol's runs do not depend."""


@final
@dataclass(frozen=True)
class SweepAnswer:
    """One comparison of a sweep's settings in one world; ``references`` are protocols that do not compete.

    ``sweep`` has the points of this world alone; ``positions`` says where they stand in the whole sweep.
    """

    sweep: Sweep
    competition: Competition
    references: frozenset[str]
    positions: tuple[int, ...]

    @property
    def axes(self) -> list[SweepAxis]:
        """The keys that are choices."""
        return [axis for axis, chosen in zip(self.sweep.axes, self.sweep.choices, strict=True) if chosen]

    @property
    def world(self) -> dict[str, str]:
        """The values of the other keys, by name."""
        pairs = zip(self.sweep.axes, self.sweep.choices, strict=True)
        return {axis.name: flow(axis.values[0]) for axis, chosen in pairs if not chosen}

    @property
    def metric(self) -> str:
        """The metric that is compared; empty for costs until the target."""
        return self.competition.metric

    @property
    def unit(self) -> str:
        """The unit of what is compared."""
        if self.metric:
            return facts_of(self.metric, self.sweep.own_metrics).unit
        return UNITS[self.competition.cost]

    @property
    def share(self) -> bool:
        """Whether the metric lies between 0 and 1."""
        return bool(self.metric) and is_share(self.metric, self.sweep.own_metrics)

    @property
    def highest(self) -> bool:
        """Whether more is better."""
        return bool(self.metric) and facts_of(self.metric, self.sweep.own_metrics).better == "higher"

    @cached_property
    def statistic(self) -> str:
        """Which mean over seeds is compared."""
        if self.metric:
            return MEAN
        values = (sample.values for sample in self.competition.samples.values())
        return statistic_of(f"{self.competition.cost}_to_target", values)

    @cached_property
    def choices(self) -> dict[str, Selection[Candidate]]:
        """The best setting of every protocol that was measured, and those that are not told apart from it."""
        by_protocol: dict[str, dict[Candidate, SeedSample]] = {}
        for candidate, sample in self.competition.samples.items():
            by_protocol.setdefault(candidate.protocol, {})[candidate] = sample
        return {name: select_best(samples, self.statistic, self.highest) for name, samples in by_protocol.items()}

    def at_an_end(self) -> dict[str, str]:
        """Return the protocols whose best value of a key of theirs is the least or the greatest, with these keys."""
        extremes: dict[str, list[str]] = {}
        best = [(name, choice.best) for name, choice in self.choices.items() if choice.best is not None]
        numbered = [axis for axis in self.axes if axis.numbers is not None]
        for name, candidate in best:
            for axis in numbered:
                ends = {flow(axis.distinct.values[end]) for end in (0, -1)}
                here = {flow(axis.values[position]) for position in candidate.positions}
                if len(ends) > 1 and len(here) == 1 and here <= ends:
                    extremes.setdefault(name, []).append(f"{axis.name} = {here.pop()}")
        return {name: ", ".join(each) for name, each in extremes.items()}

    @cached_property
    def overall(self) -> Selection[Candidate]:
        """The best setting of all protocols together, references left out."""
        samples = self.competition.samples
        competing = {each: sample for each, sample in samples.items() if each.protocol not in self.references}
        return select_best(competing, self.statistic, self.highest)

    def estimate(self, candidate: Candidate) -> Estimate:
        """Estimate the mean of a candidate; that of a metric within the metric's range."""
        mean = estimate(self.competition.samples[candidate], self.statistic)
        return mean.within(*facts_of(self.metric, self.sweep.own_metrics).span) if self.metric else mean

    def place(self, protocol: str) -> str:
        """Say where a protocol is among all: ``first``, ``not told apart`` from it, ``behind``, or ``reference``."""
        if protocol in self.references:
            return "reference"
        if self.overall.best is not None and self.overall.best.protocol == protocol:
            return "first"
        return "not told apart" if protocol in self._close else "behind"

    @cached_property
    def _close(self) -> set[str]:
        """The protocols of which a setting is not told apart from the first of all."""
        return {candidate.protocol for candidate in self.overall.close}

    def against_first(self, protocol: str) -> Ratio | Estimate | None:
        """Compare a protocol's best setting with the first of all: cost ÷ its cost, or metric − its metric.

        Of a protocol that reached the target nowhere in all runs, the least of its settings' ratios. None for the first
        itself, for references, and without common seeds.
        """
        first, chosen = self.overall.best, self.choices[protocol].best
        if first is None or self.place(protocol) in ("first", "reference"):
            return None
        if self.metric:
            return None if chosen is None else self._difference(chosen, first)
        every = [each for each in self.competition.samples if each.protocol == protocol]
        candidates = every if chosen is None else [chosen]
        comparisons = [each for candidate in candidates if (each := self._ratio(candidate, first)) is not None]
        return min(comparisons, key=lambda each: each.mean, default=None)

    def _ratio(self, candidate: Candidate, first: Candidate) -> Ratio | None:
        frames = []
        for name, each in (("own", candidate), ("first", first)):
            sample = self.competition.samples[each]
            columns = {"seed": sample.seeds, "value": sample.values, "lower": sample.lower, "censored": sample.censored}
            frames.append(pd.DataFrame(columns).assign(protocol=name))
        return ratio(pd.concat(frames, ignore_index=True), "first", "own")

    def _difference(self, candidate: Candidate, first: Candidate) -> Estimate | None:
        sample, other = (self.competition.samples[each] for each in (candidate, first))
        values, seeds = dict(zip(other.seeds, other.values, strict=True)), [*sample.only(other.seeds).seeds]
        if not seeds:
            return None
        return paired(sample.only(seeds), SeedSample.exact({seed: float(values[seed]) for seed in seeds}))

    def values(self, candidate: Candidate) -> list[str]:
        """Write the value of every choice at a candidate's points; ``any`` where its runs do not depend on the key."""
        written = []
        for texts, whole in self._texts:
            here = list(dict.fromkeys(texts[position] for position in candidate.positions))
            written.append(ANY if len(whole) > 1 and {*here} == whole else ", ".join(here))
        return written

    @cached_property
    def _texts(self) -> list[tuple[list[str], set[str]]]:
        """Every choice's values as texts, point by point, and all different ones."""
        written = [[*map(flow, axis.values)] for axis in self.axes]
        return [(texts, {*texts}) for texts in written]

    def verdict(self, candidate: Candidate) -> str:
        """Say how a setting did for its protocol: best, not told apart, behind, not reached or failed."""
        if candidate not in self.competition.samples:
            return "failed"
        chosen = self.choices[candidate.protocol]
        if candidate == chosen.best:
            return "best"
        if chosen.best is not None and candidate in chosen.close:
            return "not told apart"
        return "behind" if self.competition.samples[candidate].known else "not reached"


def answers(sweep: Sweep) -> list[SweepAnswer]:
    """Make every comparison that the runs of a sweep allow, in each of its worlds; none for timing-only runs."""
    return [answer for positions, world in sweep.worlds() for answer in _answers(world, positions)]


def _answers(sweep: Sweep, positions: tuple[int, ...]) -> list[SweepAnswer]:
    measured = SweepMeasurements(sweep)
    reached = [contest for cost in COSTS if (contest := measured.to_target(cost)) is not None]
    reached = [each for each in reached if any(sample.known for sample in each.samples.values())]
    there = {each.protocol for contest in reached for each, sample in contest.samples.items() if sample.known}
    missing = {*sweep.protocols} - there - measured.references
    after = [contest for cost in COSTS if missing and (contest := measured.after_the_same(cost, missing)) is not None]
    competitions = [each for each in (*reached, *after) if len(each.samples) > 1]
    return [SweepAnswer(sweep, each, measured.references, positions) for each in competitions]


def answers_frame(sweep: Sweep) -> pd.DataFrame:
    """Return what a sweep answers as a tidy frame: a row per comparison, protocol and point.

    Columns: ``by`` (time, bytes or energy), ``target`` or ``metric`` and ``after`` (as much of ``by``, in s, B or J),
    protocol, a column per key as in ``sweep_frame``, unit and the fields of ``Estimate``, ``verdict`` (of the point,
    for its protocol: best, not told apart, behind, not reached, failed), ``place`` (of the protocol, among all: first,
    not told apart, behind, reference), and on the rows of best points ``against_first`` (cost ÷ that of the first
    protocol's best point, or metric − that metric) with ``against_first_low``, ``…_high`` and ``…_bound`` (exact, most,
    least, none, between: of a bound, low and high are the interval of the seeds' bounds).
    """
    rows = [row for answer in answers(sweep) for row in _rows(answer)]
    names = ["by", "target", "metric", "after", "protocol", "position", "unit", *Estimate.__dataclass_fields__]
    ends = ["verdict", "place", "against_first", *(f"against_first_{each}" for each in ("low", "high", "bound"))]
    frame = pd.DataFrame(rows, columns=[*names, *ends])
    for place, axis in enumerate(sweep.axes):
        name, values = key_column(axis, {*frame.columns})
        frame.insert(5 + place, name, pd.Series(values)[frame["position"]].to_numpy())
    return frame.drop(columns="position")


def _rows(answer: SweepAnswer) -> Iterator[dict[str, Any]]:
    competition = answer.competition
    targets = [target for summary in answer.sweep.summaries for target in summary["target"].dropna()]
    common = {"by": competition.cost, "unit": answer.unit, "after": competition.after}
    common |= {"metric": answer.metric or None, "target": None if answer.metric else targets[0]}
    for candidate in (*competition.samples, *competition.ruled_out):
        verdict = answer.verdict(candidate)
        row = {"protocol": candidate.protocol, "verdict": verdict}
        if verdict != "failed":
            row |= vars(answer.estimate(candidate)) | {"place": answer.place(candidate.protocol)}
        if verdict == "best":
            row |= _against(answer.against_first(candidate.protocol))
        for position in candidate.positions:
            yield common | row | {"position": answer.positions[position]}


def _against(comparison: Ratio | Estimate | None) -> dict[str, Any]:
    if comparison is None:
        return {}
    bounded = isinstance(comparison, Ratio) and comparison.bound != "exact"
    low, high = comparison.of_bounds if isinstance(comparison, Ratio) and bounded else (comparison.low, comparison.high)
    bound = comparison.bound if isinstance(comparison, Ratio) else "exact"
    names = ("against_first", "against_first_low", "against_first_high", "against_first_bound")
    return dict(zip(names, (comparison.mean, low, high, bound), strict=True))
