"""Answers of a run whose parties are gone: from its weights, those of the simulation that ended with them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from live_kinds import LIVE
from protocols_by_kind import KINDS
from tiny_worlds import EAGER, RANDOM_TIMING, data_of, run, tiny

from vflsim.scenario.models import Scenario
from vflsim.simulation.answers import later_answers, not_answerable

ASKED: dict[str, Any] = {"every": "2 rounds", "deadline": ["20 ms", "60 ms"], "query_rows": 4}


def asking(kind: str) -> Scenario:
    return tiny({"it": KINDS[kind]}, timing=RANDOM_TIMING, stop={"rounds": 2}, evaluate=ASKED)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("kind", LIVE)
def test_the_weights_of_a_run_answer_as_its_learners_do(kind: str) -> None:
    scenario = asking(kind)
    outcome = run(scenario, execution=EAGER)
    assert outcome.error is None
    found = later_answers(scenario, "it", scenario.seeds[0], data_of(scenario), outcome.weights)
    assert found.keys() == {"arrivals", "answers"}
    assert all(found[name].equals(outcome.extra[name]) for name in found)


def test_other_weights_answer_otherwise() -> None:
    scenario = asking("synchronous")
    outcome = run(scenario, execution=EAGER)
    weights = {name: torch.zeros_like(tensor) for name, tensor in outcome.weights.items()}
    assert not later_answers(scenario, "it", 0, data_of(scenario), weights)["answers"].equals(outcome.extra["answers"])


def test_weights_and_features_that_are_not_here_are_named() -> None:
    scenario = asking("synchronous")
    data = data_of(scenario)
    weights = {f"{party}.weight": torch.zeros(1) for party in ("server", "client-1", "client-2", "client-4")}
    assert not_answerable(data, (1, 2, 4), weights) == ""
    assert not_answerable(data, (1, 2, 3, 4), weights) == "the weights of client-3 are not here"
    features = [each if n != 1 else {split: x[:1].expand_as(x) for split, x in each.items()}
                for n, each in enumerate(data.features)]  # fmt: skip
    assert "all rows of client-2 are alike here" in not_answerable(replace(data, features=features), (1, 2), weights)
