"""The best of several candidates, and those that the seeds do not tell apart from it."""

import math

import numpy as np
import pytest
from scipy import stats

from vflsim.results.statistics.estimates import GEOMETRIC, MEAN, SeedSample
from vflsim.results.statistics.selection import select_best


def sample(values: list[float], censored: tuple[int, ...] = (), first: int = 0) -> SeedSample:
    late = np.array([place in censored for place in range(len(values))], dtype=bool)
    return SeedSample((*range(first, first + len(values)),), np.array(values), late)


def test_close_is_what_a_one_sided_t_test_with_bonferronis_level_does_not_put_behind() -> None:
    rng = np.random.default_rng(5)
    common = rng.normal(0, 0.2, 5)
    values = {
        name: np.exp(mean + common + rng.normal(0, 0.05, 5))
        for name, mean in zip("abcd", (1, 1.02, 1.1, 1.5), strict=True)
    }
    found = select_best({name: sample([*each]) for name, each in values.items()}, GEOMETRIC)
    best = min(values, key=lambda name: float(np.log(values[name]).mean()))
    chances = {
        name: stats.ttest_rel(np.log(each), np.log(values[best]), alternative="greater").pvalue
        for name, each in values.items() if name != best
    }  # fmt: skip
    assert found.best == best
    assert found.close == tuple(name for name, chance in chances.items() if chance >= 0.05 / 3)
    assert 0 < len(found.close) < 3


def test_pairs_tell_apart_what_single_intervals_do_not() -> None:
    slow, fast = [10.0, 20.0, 40.0], [9.0, 17.9, 36.2]  # intervals of the means overlap almost wholly
    assert select_best({"slow": sample(slow), "fast": sample(fast)}, GEOMETRIC).close == ()
    apart = select_best({"slow": sample(slow), "fast": sample(fast, first=7)}, GEOMETRIC)  # no common seed
    assert (apart.best, apart.close) == ("fast", ("slow",))


def test_a_censored_candidate_is_never_the_best_and_counts_by_its_bounds() -> None:
    best, bounded = sample([5.0, 6.0, 7.0]), sample([60.0, 60.0, 60.0], (0, 1, 2))
    early = sample([1.0, 1.0, 1.0], (0, 1, 2))  # ended before the best one got there: nothing is known
    found = select_best({"early": early, "best": best, "bounded": bounded}, GEOMETRIC)
    assert (found.best, found.close) == ("best", ("early",))
    assert select_best({"early": early, "bounded": bounded}, GEOMETRIC).best is None


def test_one_seed_tells_nothing_apart_and_the_first_of_equal_ones_is_taken() -> None:
    assert select_best({"a": sample([1.0]), "b": sample([9.0])}, MEAN).close == ("b",)
    found = select_best({"a": sample([0.9, 0.8]), "b": sample([0.9, 0.8])}, MEAN, highest=True)
    assert (found.best, found.close) == ("a", ("b",))
    assert select_best({"a": sample([0.1]), "b": sample([0.9])}, MEAN, highest=True).best == "b"


@pytest.mark.parametrize("candidates", [2, 6])
def test_the_truly_best_is_lost_in_at_most_one_of_twenty_studies(candidates: int) -> None:
    rng, lost, studies = np.random.default_rng(candidates), 0, 400
    for _ in range(studies):
        values = rng.normal(0, 1, (candidates, 4)) + rng.normal(0, 2, 4)
        found = select_best({name: sample([*own]) for name, own in enumerate(values)}, MEAN)
        lost += 0 not in (found.best, *found.close)  # all are equally good: take the first for the best
    assert lost / studies <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / studies)
