"""Calibration gives back the laws that measurements were drawn from."""

import math

import numpy as np
import pytest

from vflsim.timing.delays import Constant
from vflsim.timing.measured.activity_log import LogBuilder, MeasuredTimes
from vflsim.timing.measured.calibration import Calibration, calibrated, fit_time, law_of
from vflsim.timing.measured.fitting import FAMILIES, fitted, ranked

FLOPS = (2e6, 8e6, 16e6)
BYTES = (4_000, 16_000, 64_000)
FIXED, RATE, UP, DOWN = 0.5e-3, 4e9, 40e6, 200e6


def measured(count: int, sigma: float, seed: int = 0) -> MeasuredTimes:
    rng = np.random.default_rng(seed)
    flops = rng.choice(FLOPS, count)
    return MeasuredTimes((FIXED + flops / RATE) * rng.lognormal(-(sigma**2) / 2, sigma, count), flops)


def log(seed: int = 0, rounds: int = 400, clients: int = 2) -> Calibration:
    """Fit a log of clients whose uploads are shifted by 2 ms, and of a server that takes a gamma law."""
    rng, builder = np.random.default_rng(seed), LogBuilder("drawn")
    for number in range(rounds):
        flops, size = FLOPS[number % 3], BYTES[number % 3]
        builder.operation(0, "server_step", rng.gamma(4, 0.5e-3), 3e6)
        for client in range(1, clients + 1):
            builder.operation(client, "embed", (FIXED + flops / RATE) * rng.lognormal(-0.02, 0.2), flops)
            builder.upload_delay(client, rng.exponential(0.01 * client))
            builder.message(client, 0, 2e-3 + rng.exponential(0.2e-3) + 8 * size / UP, size)
            builder.message(0, client, 2e-3 + rng.exponential(0.2e-3) + 8 * size / DOWN, size)
    return calibrated(builder.log())


def test_a_fixed_part_and_a_rate_come_back_within_five_per_cent() -> None:
    fit = fit_time("client-1", "compute.embed", measured(1000, 0.1))
    assert fit.fixed == pytest.approx(FIXED, rel=0.05)
    assert fit.rate == pytest.approx(RATE, rel=0.05)
    assert fit.r_squared > 0.9
    assert fit.ks < 0.05
    assert fit.residual_p95 < 0.3 * fit.measured.seconds.max()


def test_exact_times_come_back_exactly() -> None:
    flops = np.array(FLOPS * 4)
    fit = fit_time("client-1", "compute.embed", MeasuredTimes(FIXED + flops / RATE, flops))
    assert (fit.fixed, fit.rate) == (pytest.approx(FIXED), pytest.approx(RATE))
    assert isinstance(fit.law, Constant)
    assert fit.law.value == pytest.approx(1.0)
    assert fit.residual_p95 < 1e-12
    assert math.isnan(fit.ks)


def test_outliers_of_a_tenth_do_not_move_the_rate() -> None:
    clean = measured(400, 0.05)
    seconds = clean.seconds.copy()
    seconds[::10] *= 20
    fit = fit_time("client-1", "compute.embed", MeasuredTimes(seconds, clean.size))
    assert fit.fixed * fit.rate == pytest.approx(FIXED * RATE, rel=0.2)  # both grow with the mean of the factor
    assert fit.expected().mean() == pytest.approx(seconds.mean(), rel=1e-9)


@pytest.mark.parametrize(
    ("size", "why"),
    [
        (np.full(50, 3e6), "all have one size, 3,000,000"),
        (np.full(50, np.nan), "sizes are not known"),
        (np.tile([1e6, 2e6], 25), "no clear growth from 1,000,000 to 2,000,000"),
    ],
)
def test_without_growth_there_is_a_law_alone_and_the_reason(size: np.ndarray, why: str) -> None:
    seconds = np.random.default_rng(1).lognormal(-7, 0.3, 50)
    fit = fit_time("client-1", "compute.embed", MeasuredTimes(seconds, size))
    assert (fit.rate, fit.why_not) == (math.inf, why)
    assert fit.law.expectation() == pytest.approx(seconds.mean(), rel=1e-6)


def test_times_that_grow_from_nothing_have_no_fixed_part() -> None:
    flops = np.tile(FLOPS, 50)
    seconds = flops / RATE * np.random.default_rng(2).uniform(0.8, 1.2, 150) - 1e-4
    fit = fit_time("client-1", "compute.embed", MeasuredTimes(seconds, flops))
    assert fit.fixed == 0
    assert fit.expected().mean() == pytest.approx(seconds.mean())


@pytest.mark.parametrize("seed", range(3))
def test_a_law_has_the_mean_of_what_was_measured_also_with_a_heavy_tail(seed: int) -> None:
    values = 1e-3 * (1 + np.random.default_rng(seed).pareto(1.2, 300))
    law = law_of(values)
    assert law.expectation() == pytest.approx(values.mean(), rel=1e-6)


def test_the_family_is_the_one_that_fitting_ranks_first() -> None:
    values = np.sort(np.random.default_rng(3).gamma(3, 1e-3, 800))
    best = ranked([fitted(kind, family, values) for kind, family in FAMILIES.items()])[0]
    assert law_of(values).kind == best.kind == "gamma"


def test_a_log_gives_back_the_laws_behind_it() -> None:
    timing = log().timing
    assert timing["network"] == "dedicated"
    server = timing["server"]["compute"]["operations"]["server_step"]
    assert server["kind"] == "gamma"
    assert server["shape"] * server["scale"] == pytest.approx(2e-3, rel=0.05)
    for client, entry in enumerate(timing["clients"], start=1):
        assert entry["select"] == client
        embed = entry["compute"]["operations"]["embed"]
        assert (embed["fixed"], embed["rate"]) == (pytest.approx(FIXED, rel=0.1), pytest.approx(RATE, rel=0.1))
        assert entry["upload_delay"]["kind"] == "exponential"
        assert entry["upload_delay"]["mean"] == pytest.approx(0.01 * client, rel=0.15)
        link = entry["link"]
        assert (link["up"], link["down"]) == (pytest.approx(UP, rel=0.02), pytest.approx(DOWN, rel=0.1))
        assert link["latency"]["kind"] == "shifted_exponential"
        assert link["latency"]["shift"] == pytest.approx(2e-3, rel=0.03)
        assert link["latency"]["mean"] == pytest.approx(0.2e-3, rel=0.2)


def test_clients_can_be_fitted_together() -> None:
    builder = LogBuilder("two clients")
    for client in (1, 2):
        for number in range(20):
            builder.operation(client, "embed", client + 0.01 * number, 1e6)
    [entry] = calibrated(builder.log(), alike=True).timing["clients"]
    assert entry["select"] == "all"
    assert law_of(np.array([m + 0.01 * k for m in (1, 2) for k in range(20)])).model_dump(
        mode="json", exclude_none=True
    ) == pytest.approx(entry["compute"]["operations"]["embed"])


def test_operations_that_were_not_seen_take_what_is_fitted_to_all() -> None:
    builder = LogBuilder("two operations of a rate")
    for flops in (1e6, 2e6, 3e6, 8e6) * 5:
        builder.operation(1, "embed" if flops < 3e6 else "client_step", 1e-3 + flops / 1e9, flops)
    compute = calibrated(builder.log()).timing["clients"][0]["compute"]
    assert compute["others"] == {"kind": "flops", "fixed": pytest.approx(1e-3), "rate": pytest.approx(1e9)}


def test_a_log_without_computations_is_refused() -> None:
    builder = LogBuilder("messages alone")
    builder.message(1, 0, 0.1, 10)
    with pytest.raises(ValueError, match="no computations; allowed: at least one"):
        calibrated(builder.log())
