"""Linear programs for alike clients on links that messages share equally, against simulated and exact networks."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

from vflsim.analysis import repairman_rates
from vflsim.analysis.shared_bounds import most_steps
from vflsim.analysis.shared_states import SharedLinks, cube_slopes, simplex_slopes, uniform_weights

RUNS = 8
Z = float(stats.t.ppf(1 - 1e-5 / 2, RUNS - 1))


def network(clients: int, t: int, degrees: tuple[int, int] = (1, 2), **changes: object) -> SharedLinks:
    given: dict[str, object] = {
        "rates": (1.0, 2.0), "step": 0.1, "up": 1.0, "down": 0.7, "shorter": (0.0, 0.0), "away_up": None,
        "away_down": None,
    }  # fmt: skip
    return SharedLinks(clients=clients, t=t, degrees=degrees, **(given | changes))  # type: ignore[arg-type]


def simulated(of: SharedLinks, steps: int, rng: np.random.Generator, every: int = 0) -> float:
    """Steps per second of an event-by-event simulation; each ``every``-th message of a client takes a tenth."""
    now, done, began = 0.0, 0, 0.0
    alone = [rng.exponential(1 / of.rates[0]) for _ in range(of.clients)]  # seconds to go, by client
    place = ["stage 0"] * of.clients
    sent, waiting, used, step = [0] * of.clients, list[int](), list[int](), math.inf
    while done < steps:
        crowd = {link: max(1, place.count(link)) for link in ("up", "down")}
        speed = [1 / crowd.get(where, 1) if where not in ("waits", "used") else 0.0 for where in place]
        ends = [left / rate if rate else math.inf for left, rate in zip(alone, speed, strict=True)]
        gap = min(step, *ends)
        now, step = now + gap, step - gap
        alone = [left - gap * rate for left, rate in zip(alone, speed, strict=True)]
        if step <= 1e-12:
            step, done = math.inf, done + 1
            if done == steps // 10:
                began = now
            for client in used:
                place[client], alone[client] = "away down", rng.uniform(*(of.away_down or (0, 0)))
            used = []
        else:
            client = int(np.argmin(ends))
            where = place[client]
            short = 0.1 if every and sent[client] % every == 0 else 1.0
            if where.startswith("stage") and int(where[6:]) + 1 < len(of.rates):
                following = int(where[6:]) + 1
                place[client], alone[client] = f"stage {following}", rng.exponential(1 / of.rates[following])
            elif where.startswith("stage"):
                place[client], alone[client] = "away up", rng.uniform(*(of.away_up or (0, 0)))
            elif where == "away up":
                sent[client] += 1
                short = 0.1 if every and sent[client] % every == 0 else 1.0
                place[client], alone[client] = "up", of.up * short
            elif where == "up":
                place[client] = "waits"
                waiting.append(client)
            elif where == "away down":
                place[client], alone[client] = "down", of.down * short
            else:
                place[client], alone[client] = "stage 0", rng.exponential(1 / of.rates[0])
        if not used and len(waiting) >= of.t:
            used, waiting, step = waiting[: of.t], waiting[of.t :], of.step
            for client in used:
                place[client] = "used"
    return (steps - steps // 10) / (now - began)


def agrees(of: SharedLinks, steps: int, every: int = 0, seed: int = 1) -> tuple[float, float]:
    rng = np.random.default_rng(seed)
    runs = np.array([simulated(of, steps, rng, every) for _ in range(RUNS)])
    margin = Z * runs.std(ddof=1) / math.sqrt(RUNS)
    low, high = most_steps(of)
    assert low - margin <= runs.mean() <= high + margin, f"{low} {runs.mean()} ± {margin} {high}: {of}"
    return low, high


@pytest.mark.parametrize(("clients", "t"), [(2, 1), (3, 1), (3, 2), (4, 2)])
def test_bounds_enclose_simulated_networks(clients: int, t: int) -> None:
    low, high = agrees(network(clients, t), 300)
    assert 0 < low < high < 2 * low


def test_bounds_enclose_networks_of_uneven_messages_and_latency() -> None:
    uneven = (0.9 / 4, 0.9 * 0.7 / 4)
    agrees(network(3, 2, shorter=uneven), 300, every=4)
    agrees(network(3, 2, (2, 1), away_up=(0.1, 2.0), away_down=(0.5, 0.5)), 300)


@pytest.mark.slow
def test_bounds_enclose_random_networks() -> None:
    for seed in range(60):
        rng = np.random.default_rng(seed)
        clients = int(rng.integers(2, 5))
        every = int(rng.choice([0, 3, 12]))
        up, down = np.exp(rng.uniform(-3, 1, 2)).tolist()
        share = 0.9 / every if every else 0.0
        spans = [None, (0.2, 0.2), (0.0, 1.0), (0.5, 2.0)]
        of = network(
            clients, int(rng.integers(1, clients)), (int(rng.integers(1, 3)), int(rng.integers(1, 3))),
            rates=tuple(np.exp(rng.uniform(-1, 2, int(rng.integers(1, 3)))).tolist()),
            step=float(np.exp(rng.uniform(-4, 0))), up=up, down=down, shorter=(up * share, down * share),
            away_up=spans[rng.integers(4)], away_down=spans[rng.integers(4)],
        )  # fmt: skip
        agrees(of, 1_000, every, seed)


def test_bounds_narrow_around_product_form_as_the_degree_grows() -> None:
    links = (1.0, 0.7)
    exact = math.fsum(repairman_rates([1.5 + 1e-4] * 2, 0.0, links))  # a server so quick that nobody waits for it
    found = [most_steps(network(2, 1, (1, degree), step=1e-4)) for degree in (1, 3, 5, 8)]
    assert all(low < exact * 1.001 and exact * 0.999 < high for low, high in found)
    assert all(one[0] < more[0] and more[1] < one[1] for one, more in pairwise(found))
    assert found[-1][1] < 1.05 * found[-1][0]


@pytest.mark.parametrize("first", [0, 1])
def test_the_number_of_states_is_known_without_listing_them(first: int) -> None:
    of = network(4, 2, (1, 2), away_up=(0.0, 1.0))
    points = list(of.points(first))
    assert of.size(first) == len(points) == len(set(points))


def test_a_single_client_never_shares_a_link() -> None:
    low, high = most_steps(network(1, 1, (1, 1), away_up=(0.5, 1.5)))
    exact = 1 / (1.0 + 0.5 + 0.1 + 1.0 + 0.7 + 1.0)
    assert (low, high) == pytest.approx((exact, exact), rel=1e-6)


def bernstein(left: tuple[int, ...], degree: int, r: np.ndarray) -> float:
    """The polynomial of a control point of a simplex at 0 ≤ r_1 ≤ … ≤ r_n ≤ 1."""
    powers = np.diff([0, *left, degree])
    sizes = np.diff([0.0, *r.tolist(), 1.0])
    return math.factorial(degree) * float(
        np.prod([s**k / math.factorial(k) for s, k in zip(sizes, powers, strict=True)])
    )


@pytest.mark.parametrize("many", [1, 2, 3])
def test_slopes_on_the_simplex_are_those_of_the_polynomial(many: int) -> None:
    rng, degree = np.random.default_rng(many), 3
    points = [p for p in np.ndindex(*[degree + 1] * many) if list(p) == sorted(p)]
    value = {point: float(rng.normal()) for point in points}
    r, d = np.sort(rng.uniform(0.1, 0.9, many)), 1e-6

    def at(x: np.ndarray) -> float:
        return math.fsum(value[point] * bernstein(point, degree, x) for point in points)

    slopes = {p: math.fsum(w * value[q] for q, w in simplex_slopes(p, degree).items()) for p in points}
    found = math.fsum(slopes[point] * bernstein(point, degree, r) for point in points)
    assert found == pytest.approx((at(r + d) - at(r - d)) / (2 * d), rel=1e-6)


def test_slopes_of_one_time_are_the_same_on_both_shapes() -> None:
    for left in range(5):
        one, other = simplex_slopes((left,), 4), cube_slopes((left,), 4)
        assert {k: v for k, v in one.items() if v} == pytest.approx({k: v for k, v in other.items() if v})


def test_weights_of_a_uniform_time_have_its_mean() -> None:
    weights = uniform_weights((1.0, 3.0), 4)
    assert math.fsum(weights) == pytest.approx(1)
    assert math.fsum(k * weight for k, weight in enumerate(weights)) / 4 * 3 == pytest.approx(2.0)
    assert uniform_weights((3.0, 3.0), 4) == pytest.approx([0, 0, 0, 0, 1])
