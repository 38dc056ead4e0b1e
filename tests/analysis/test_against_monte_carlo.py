"""Every closed form against 10⁵ rounds simulated by numpy, directly from what a protocol does.

A mean must lie within its 99.9 % interval: an error level of 0.1 % a check, with fixed seeds. So must the share of
rounds below four quantiles. Plausible but wrong forms must lie outside.
"""

import numpy as np
import pytest
from scipy import stats

from vflsim.analysis.own_pace import pooled_interval, repairman_rates, waiting, working_on
from vflsim.analysis.rounds import Geometric, used_probabilities
from vflsim.timing.delays import Exponential, LogNormal, Uniform
from vflsim.timing.delays.base import OfDelay
from vflsim.timing.laws.law import Law
from vflsim.timing.laws.order import maximum, order_statistic

ROUNDS = 100_000
Z = float(stats.norm.ppf(1 - 0.001 / 2))
BATCHES = 100


def exponential(mean: float, shift: float = 0.0) -> Law:
    return OfDelay(Exponential(mean=mean), shift)


def canonical(n: int) -> np.ndarray:
    """Mean upload delays of FedVS Sec. 6.2: half of the clients 0.1 s, the others 2 + 4i/N s."""
    return np.array([0.1] * (n // 2) + [2 + 4 * i / n for i in range(1, n // 2 + 1)])


def half_width(values: np.ndarray, dependent: bool = False) -> float:
    """Half the 99.9 % interval of the mean; by batch means where neighbours depend on each other."""
    if dependent:
        values = values[: len(values) // BATCHES * BATCHES].reshape(BATCHES, -1).mean(axis=1)
        return float(stats.t.ppf(1 - 0.001 / 2, BATCHES - 1) * values.std(ddof=1) / np.sqrt(BATCHES))
    return float(Z * values.std(ddof=1) / np.sqrt(len(values)))


def agrees(law: Law, rounds: np.ndarray, dependent: bool = False) -> bool:
    """Whether mean and quantiles of a law are within the intervals that simulated rounds allow."""
    times = np.unique(law.quantile([0.1, 0.5, 0.9, 0.99]))
    below = (rounds - 1e-9 <= times[:, None]).astype(np.float64)  # rounds as long as an atom are so but for rounding
    shares = (abs(b.mean() - p) <= half_width(b, dependent) for b, p in zip(below, law.cdf(times), strict=True))
    return abs(rounds.mean() - law.expectation()) <= half_width(rounds, dependent) and all(shares)


@pytest.mark.parametrize("n", [8, 16])
def test_synchronous_rounds_of_the_canonical_clients(n: int) -> None:
    means = canonical(n)
    rounds = np.random.default_rng(n).exponential(means, (ROUNDS, n)).max(axis=1)
    assert agrees(maximum([exponential(mean) for mean in means]), rounds)
    assert not agrees(maximum([exponential(means.mean())] * n), rounds), "all alike, with the same mean"
    assert not agrees(maximum([exponential(mean * 1.02) for mean in means]), rounds)


@pytest.mark.parametrize(("n", "t"), [(8, 1), (8, 3), (8, 5), (16, 10)])
def test_the_t_th_of_the_canonical_clients(n: int, t: int) -> None:
    means = canonical(n)
    rounds = np.sort(np.random.default_rng(n * t).exponential(means, (ROUNDS, n)), axis=1)[:, t - 1]
    laws = [exponential(mean) for mean in means]
    assert agrees(order_statistic(laws, t), rounds)
    assert not agrees(order_statistic(laws, t + 1), rounds)
    assert not agrees(order_statistic([exponential(means.mean())] * n, t), rounds)


def test_unlike_laws_race_as_simulated() -> None:
    generator = np.random.default_rng(3)
    draws = np.stack([
        0.5 + generator.exponential(1.0, ROUNDS),
        generator.uniform(0.2, 3.0, ROUNDS),
        np.exp(0.7 * generator.normal(size=ROUNDS)),
        generator.exponential(2.0, ROUNDS),
    ])  # fmt: skip
    laws = [
        exponential(1.0, 0.5),
        OfDelay(Uniform(low=0.2, high=3.0)),
        OfDelay(LogNormal(median=1.0, sigma=0.7)),
        exponential(2.0),
    ]
    for t in (1, 2, 3, 4):
        assert agrees(order_statistic(laws, t), np.sort(draws, axis=0)[t - 1])
    used = np.argsort(np.argsort(draws, axis=0), axis=0) < 2
    for found, p in zip(used, used_probabilities(laws, 2), strict=True):
        assert abs(found.mean() - p) <= half_width(found.astype(np.float64))


# --- clients that go on at their own pace -----------------------------------------------------------------------------


def own_pace(means: np.ndarray, t: int, service: float, steps: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Ends of server steps and who they used: whoever is late arrives later, and waits while the server is busy."""
    generator = np.random.default_rng(seed)
    n = len(means)
    pool = generator.exponential(means, (2 * steps, n))
    drawn = np.ones(n, int)
    ready, now = pool[0].copy(), 0.0
    ends, used = np.empty(steps), np.zeros((steps, n), bool)
    for step in range(steps):
        first = np.argpartition(ready, t - 1)[:t]
        now = max(now, float(ready[first].max())) + service
        ends[step] = now
        used[step, first] = True
        ready[first] = now + pool[drawn[first], first]
        drawn[first] += 1
    return np.diff(ends, prepend=0.0), used


@pytest.mark.slow
@pytest.mark.parametrize(("t", "service"), [(1, 0.1), (3, 0.4), (5, 2.0)])
def test_memoryless_clients_that_work_on_form_a_chain(t: int, service: float) -> None:
    rounds, _ = own_pace(np.full(6, 1.5), t, service, ROUNDS, seed=t)
    law = working_on(exponential(1.5), 1 / 1.5, 6, t, service)
    assert agrees(law, rounds, dependent=True)
    fresh = order_statistic([exponential(1.5, service)] * 6, t)
    assert not agrees(fresh, rounds, dependent=True), "as if nobody arrived while the server computes"


def test_nobody_waits_for_a_server_that_takes_no_time() -> None:
    assert waiting(0.7, 6, 3, 0.0) == pytest.approx([1.0, 0.0, 0.0, 0.0])
    law = working_on(exponential(2.0), 0.5, 6, 3, 0.0)
    assert law.expectation() == pytest.approx(order_statistic([exponential(2.0)] * 6, 3).expectation())


def test_memoryless_clients_that_work_on_without_service_are_as_good_as_new() -> None:
    means = canonical(8)
    rounds, used = own_pace(means, 3, 0.0, ROUNDS, seed=5)
    laws = [exponential(mean) for mean in means]
    assert agrees(order_statistic(laws, 3), rounds)
    p = used_probabilities(laws, 3)
    for m in (0, 4, 7):
        steps = np.flatnonzero(used[:, m])
        ages = np.concatenate([np.arange(gap) for gap in np.diff(steps)])
        law = Geometric(p[m])
        assert abs(ages.mean() - law.expectation()) <= half_width(ages.astype(np.float64), dependent=True)
        share = (ages == 1).astype(np.float64)
        assert abs(share.mean() - p[m] * (1 - p[m])) <= half_width(share, dependent=True)
        assert abs(ages.mean() - (len(means) / 3 - 1)) > half_width(ages.astype(np.float64), dependent=True)


def pooled(cycles: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Intervals between the events of independent renewal processes, after a warm-up; and whose each event is."""
    times = [np.cumsum(cycle) for cycle in cycles]
    end = min(time[-1] for time in times)
    events = np.concatenate(times)
    whose = np.repeat(np.arange(len(times)), [len(time) for time in times])
    order = np.argsort(events)
    events, whose = events[order], whose[order]
    keep = (events > 0.01 * end) & (events < end)
    return np.diff(events[keep]), whose[keep]


def test_asynchronous_steps_are_pooled_renewals() -> None:
    generator = np.random.default_rng(2)
    n = ROUNDS
    rounds, whose = pooled([
        0.2 + generator.exponential(1.0, n), generator.uniform(0.5, 2.0, n), np.exp(0.8 * generator.normal(size=n)),
        generator.uniform(0.5, 2.0, n),
    ])  # fmt: skip
    uniform = OfDelay(Uniform(low=0.5, high=2.0))
    laws = [exponential(1.0, 0.2), uniform, OfDelay(LogNormal(median=1.0, sigma=0.8)), uniform]
    law = pooled_interval(laws)
    assert law is not None
    assert agrees(law, rounds, dependent=True)
    assert law.moments[0] == pytest.approx(law.expectation(), rel=1e-5), "the law's own mean is that of renewal theory"
    rate = sum(1 / each.expectation() for each in laws)
    assert law.expectation() == pytest.approx(1 / rate)
    assert not agrees(exponential(1 / rate), rounds, dependent=True), "as if steps were a Poisson process"
    for m in range(4):  # Little: λ / λ_m steps from one of client m to its next
        gaps = np.diff(np.flatnonzero(whose == m)).astype(np.float64)
        assert abs(gaps.mean() - rate * laws[m].expectation()) <= half_width(gaps, dependent=True)


def test_pooled_exponential_cycles_are_exponential() -> None:
    law = pooled_interval([exponential(1.0), exponential(3.0), exponential(3.0)])
    assert law is not None
    x = np.linspace(0.0, 10.0, 100)
    assert law.cdf(x) == pytest.approx(stats.expon(scale=0.6).cdf(x), abs=1e-5)


def test_constant_cycles_keep_their_phases_for_ever() -> None:
    from vflsim.timing.laws.law import Point

    assert pooled_interval([Point(1.0), Point(2.0)]) is None
    one = pooled_interval([Point(1.0), exponential(2.0)])
    assert one is not None
    assert one.expectation() == pytest.approx(1 / 1.5)
    assert one.moments[0] == pytest.approx(1 / 1.5, rel=1e-5)


def test_exponential_service_in_order_of_arrival_has_product_form() -> None:
    """Think times of any law: here uniform and exponential ones."""
    generator = np.random.default_rng(8)
    n, service = 3, 0.5
    low, high = np.array([0.5, 1.0, 0.0]), np.array([1.5, 3.0, 6.0])
    steps = ROUNDS
    think = generator.uniform(low, high, (2 * steps, n))
    served = generator.exponential(service, steps)
    ready, now, drawn, used = think[0].copy(), 0.0, np.ones(n, int), np.zeros(n)
    ends = np.empty(steps)
    for step in range(steps):
        m = int(ready.argmin())
        now = max(now, ready[m]) + served[step]
        ends[step], ready[m] = now, now + think[drawn[m], m]
        drawn[m] += 1
        used[m] += 1
    rounds = np.diff(ends)
    rates = repairman_rates([1.0, 2.0, 3.0], service)
    assert abs(rounds.mean() - 1 / sum(rates)) <= half_width(rounds, dependent=True)
    assert used / steps == pytest.approx(np.array(rates) / sum(rates), rel=0.01)
    unhindered = sum(1 / (mean + service) for mean in (1.0, 2.0, 3.0))
    assert abs(rounds.mean() - 1 / unhindered) > half_width(rounds, dependent=True), "as if nobody waited"


def test_one_client_alone_is_never_in_the_way() -> None:
    assert repairman_rates([3.0], 0.5) == [pytest.approx(1 / 3.5)]
