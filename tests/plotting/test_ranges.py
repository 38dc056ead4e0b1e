"""Bands and intervals end where a metric, or a cost, ends."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from vflsim.attacks import ATTACKS
from vflsim.explaining.figures import _means
from vflsim.intervals.means import t_interval
from vflsim.plotting.costs import _costs
from vflsim.plotting.curves import numbers_of
from vflsim.vocabulary.metrics import REPORTED, range_of


@pytest.mark.parametrize(
    ("metric", "ends", "values"),
    [
        ("test_accuracy", (0, 1), (0.02, 0.04, 0.2)),
        ("validation_auc.client-2", (0, 1), (0.8, 0.97, 1.0)),
        ("test_loss", (0, np.inf), (0.01, 0.02, 0.9)),
        ("test_rmse", (0, np.inf), (0.01, 0.02, 0.9)),
        ("test_r2", (-np.inf, 1), (0.4, 0.9, 1.0)),
    ],
)
def test_bands_end_where_the_metric_ends(metric: str, ends: tuple[float, float], values: tuple[float, ...]) -> None:
    assert range_of(metric) == ends
    free = t_interval(values)
    assert free.low < ends[0] or free.high > ends[1], "the example shows nothing"
    runs = {seed: (np.array([0.0, 1.0]), np.array([value, value])) for seed, value in enumerate(values)}
    band = numbers_of({"a": runs}, "time_s", metric, {}, ends)["means"].iloc[0]
    assert (band["low"], band["high"]) == pytest.approx((max(free.low, ends[0]), min(free.high, ends[1])))


def test_every_metric_has_a_range() -> None:
    assert {metric: range_of(metric) for metric in REPORTED} == {
        "loss": (0, np.inf), "accuracy": (0, 1), "auc": (0, 1), "rmse": (0, np.inf), "r2": (-np.inf, 1)
    }  # fmt: skip


def test_no_cost_is_below_zero() -> None:
    rows = [
        ("time_to_target", "a", seed, value, value, False) for seed, value in enumerate((0.0, 1.0, 40.0))
    ]  # arithmetic: 0 has no logarithm
    measured = pd.DataFrame(rows, columns=["measure", "protocol", "seed", "value", "lower", "censored"])
    costs = _costs(measured, ["a"], [("time_to_target", "time to target", "s")])
    assert t_interval([0, 1, 40]).low < 0
    assert costs["low"].iloc[0] == 0
    assert costs["high"].iloc[0] == pytest.approx(t_interval([0, 1, 40]).high)


def test_norms_and_metrics_of_clients_end_there_too() -> None:
    rows = [("a", seed, 1, value, False) for seed, value in enumerate((0.1, 0.1, 3.0))]
    clients = pd.DataFrame(rows, columns=["protocol", "seed", "client", "weight_norm", "noisy_features"])
    norms = _means(clients, "weight_norm", (0.0, np.inf))
    assert norms["low"].iloc[0] == 0
    assert norms["high"].iloc[0] == pytest.approx(t_interval([0.1, 0.1, 3.0]).high)


def test_every_measure_that_an_attack_draws_has_a_range() -> None:
    for attack in ATTACKS.values():
        assert set(attack.ranges) == set(attack.drawn), attack
