"""Coded scenarios small enough to compute by hand, and the quantised computation in the clear."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from tiny_worlds import data_of, learners, raw

from vflsim.protocols.fedvs.client import CodedClientLearner
from vflsim.protocols.fedvs.learners import CodedServerLearner
from vflsim.protocols.fedvs.plan import CodingPlan
from vflsim.scenario import load
from vflsim.scenario.models import Scenario
from vflsim.streams import generator


def coded(
    clients: int = 7, degree: int = 2, bias: bool = False, more: dict[str, Any] | None = None, **said: Any
) -> Any:
    """A scenario with one protocol ``fedvs``; ``said`` is about it, ``more`` about everything else."""
    fedvs = {"kind": "fedvs", "K": 2, "T": 1, **said}
    return raw(
        {"fedvs": fedvs},
        partition={"clients": clients, "by": "columns"},
        models__client={"kind": "polynomial", "degree": degree, "bias": bias, "embedding": 5},
        **(more or {}),
    )


def world(**said: Any) -> tuple[Scenario, CodedServerLearner, dict[int, CodedClientLearner]]:
    """The learners of a ``coded`` scenario, with seed 0."""
    scenario = load(coded(**said))
    server, clients = learners(scenario, "fedvs", 0, data_of(scenario))
    assert isinstance(server, CodedServerLearner)
    return scenario, server, clients  # type: ignore[return-value]


class InTheClear:
    """The quantised computation of FedVS without any coding: exact integers, and numpy alone."""

    def __init__(self, scenario: Scenario, plan: CodingPlan) -> None:
        self.plan, self.features = plan, [each["train"] for each in data_of(scenario).features]
        bits = plan.quantiser.data_bits
        model = scenario.document.raw["models"]["client"]
        self.degree, self.bias = model.get("degree", 1), model.get("bias", True)
        self.data = {client: self.rounded(client, bits) for client in plan.clients}

    def rounded(self, client: int, bits: int) -> np.ndarray:
        """X̄_n, (rows, columns): halves up."""
        x = self.features[client - 1].flatten(1).double().numpy()
        columns = [x**power for power in range(1, self.degree + 1)]
        if self.bias:
            columns.append(np.ones((len(x), 1)))
        return np.floor(2.0**bits * np.concatenate(columns, axis=1) + 0.5).astype(np.int64)

    def weights(self, client: int, weights: np.ndarray, round_: int) -> np.ndarray:
        """W̄_n of a round, rounded stochastically with the client's own stream."""
        words = generator(self.plan.seed, client, f"rounding/{round_}").bit_generator.random_raw(weights.size)
        uniforms = ((words >> np.uint64(11)).astype(np.float64) * 2.0**-53).reshape(weights.shape)
        scaled = 2.0**self.plan.quantiser.weight_bits * weights
        return (np.floor(scaled) + (uniforms >= 1.0 - (scaled - np.floor(scaled)))).astype(np.int64)

    def total(self, batch: Any, weights: dict[int, np.ndarray], round_: int) -> np.ndarray:
        """Σ_n X̄_n W̄_n of the batch's training rows."""
        parts = [self.data[n][batch.ids] @ self.weights(n, each, round_) for n, each in weights.items()]
        total: np.ndarray = np.sum(parts, axis=0)
        return total

    def mean(self, total: np.ndarray, clients: int) -> torch.Tensor:
        """H, as float64."""
        bits = self.plan.quantiser.data_bits + self.plan.quantiser.weight_bits
        return torch.from_numpy(total.astype(np.float64) * 2.0**-bits / clients)
