"""Answers under deadlines of a run whose parties were processes of their own: from its weights, when it has ended."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import torch

from vflsim.learning.data.loaded import LoadedData
from vflsim.learning.execution.operations import ImmediateExecutor
from vflsim.learning.randomness import drawing_from
from vflsim.learning.states import under
from vflsim.scenario.models import Scenario
from vflsim.scenario.resolve import setting
from vflsim.simulation.answers import answered
from vflsim.simulation.build import parties
from vflsim.streams import SHARED, party_name, torch_seed
from vflsim.world.record import Recorder
from vflsim.world.virtual import VirtualWorld


def later_answers(
    scenario: Scenario, name: str, seed: int, data: LoadedData, weights: Mapping[str, torch.Tensor]
) -> dict[str, pa.Table]:
    """Return ``arrivals`` and ``answers`` of a run that has ended with these ``weights`` of all parties.

    They are those of a simulation that ends with these weights. Raises ``VflsimError`` as a simulation would end.
    """
    protocol, resolved = scenario.protocols[name].protocol, setting(scenario, name, data)
    with drawing_from(torch_seed(seed, SHARED, "learners")):
        made = parties(protocol, resolved, seed, VirtualWorld(ImmediateExecutor()), Recorder("summary"))
    for node in (made.server, *made.clients):
        node.learner.load_weights(under(party_name(node.party), weights))
    answers, error = answered(scenario.evaluate_of(name), made, resolved, seed, None)
    if error is not None:
        raise error
    return answers


def not_answerable(data: LoadedData, clients: tuple[int, ...], weights: Mapping[str, torch.Tensor]) -> str:
    """Return why ``later_answers`` cannot be had from what is here; empty if they can."""
    here = {name.partition(".")[0] for name in weights}
    if absent := [party_name(client) for client in clients if party_name(client) not in here]:
        return f"the weights of {', '.join(absent)} are not here"
    for client in clients:
        features = data.features[client - 1]["train"]
        if (features == features[:1]).all():
            return f"all rows of {party_name(client)} are alike here: a stand-in has taken the place of its features"
    return ""
