"""How many floating-point operations each computation of a run has, from a simulation without training."""

from __future__ import annotations

from dataclasses import replace

from pydantic import PrivateAttr

from vflsim.learning.data.loaded_data import LoadedData
from vflsim.learning.execution.operations import TimingOnlyExecutor
from vflsim.learning.models.build import drawing_from
from vflsim.scenario.models import Scenario
from vflsim.scenario.resolve import setting
from vflsim.simulation.build import parties
from vflsim.simulation.run import EventRun, RunPlan
from vflsim.streams import SHARED, torch_seed
from vflsim.timing.compute import ComputeModel, OperationCost
from vflsim.timing.party import PartyTiming
from vflsim.world.networks import Dedicated
from vflsim.world.record import Recorder
from vflsim.world.virtual import VirtualWorld

_A_WHILE = 1e-6
"""Seconds that an operation takes: shorter than any deadline of a protocol."""


class _FlopsNoted(ComputeModel):
    """Notes the FLOPs of every operation that begins; each takes a while."""

    kind: str = "counting"
    _noted: dict[str, list[float]] = PrivateAttr(default_factory=dict)

    def seconds(self, cost: OperationCost, draw: float) -> float:
        self._noted.setdefault(cost.kind, []).append(cost.flops())
        return _A_WHILE


def counted_flops(scenario: Scenario, name: str, seed: int, data: LoadedData) -> dict[tuple[int, str], list[float]]:
    """Count the FLOPs of the n-th operation of each party (0: the server) and kind, until a stop rule ends the run.

    They do not depend on the scenario's timing where a party's n-th operation works on its n-th batch.

    Example: ``counted_flops(scenario, "wait", 0, data)[1, "embed"][0]``
    """
    protocol, resolved = scenario.protocols[name].protocol, setting(scenario, name, data)
    models = [_FlopsNoted() for _ in resolved.timings]
    timings = tuple(PartyTiming().model_copy(update={"compute": model}) for model in models)
    resolved = replace(resolved, timings=timings, network=Dedicated())
    with drawing_from(torch_seed(seed, SHARED, "learners")):
        nodes = parties(protocol, resolved, seed, VirtualWorld(TimingOnlyExecutor()), Recorder("summary"))
    outcome = EventRun(RunPlan(scenario, name, seed, resolved, timing_only=True), nodes).play()
    if outcome.error is not None:
        raise outcome.error
    return {(party, kind): noted for party, model in enumerate(models) for kind, noted in model._noted.items()}
