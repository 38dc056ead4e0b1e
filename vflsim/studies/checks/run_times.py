"""Measure the speed of several protocols of a scenario, and predict how long their runs take."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from vflsim.errors import VflsimError
from vflsim.learning.learners.embedding_table import reusing_memory
from vflsim.scenario.data import ScenarioData
from vflsim.scenario.models import Scenario
from vflsim.simulation.execution import USUAL, Execution, patient_collector
from vflsim.studies.checks.calibrate import ALL_S, BUDGET_S, Speed, calibrated
from vflsim.studies.checks.expected import Expectation, expectation


def speeds(
    scenario: Scenario,
    data: ScenarioData,
    found: Sequence[Expectation],
    execution: Execution = USUAL,
    *,
    timing_only: bool = False,
    all_s: float = ALL_S,
) -> dict[str, Speed]:
    """Measure how quickly this machine computes each protocol; all together have a budget of ``all_s`` seconds."""
    budget_s, measured = min(BUDGET_S, all_s / max(1, len(found))), {}
    with patient_collector(), reusing_memory():
        for each in found:
            its = data.of(scenario.training_of(each.protocol))
            measured[each.protocol] = calibrated(
                scenario, each.protocol, its, execution, timing_only=timing_only, expected=each, budget_s=budget_s
            )
    return measured


def predicted_s(
    scenario: Scenario,
    data: ScenarioData,
    protocols: Iterable[str],
    execution: Execution = USUAL,
    *,
    timing_only: bool = False,
    all_s: float,
) -> dict[str, float]:
    """Predict the seconds of a run of each of the ``protocols``, from measurements of ``all_s`` seconds in all.

    Infinite if only a target ends it, NaN if unknown. A protocol that fails is left out: its own run tells why.
    """
    found = []
    for name in protocols:
        try:
            found.append(expectation(scenario, name, data.of(scenario.training_of(name))))
        except VflsimError:
            continue
    measured = speeds(scenario, data, found, execution, timing_only=timing_only, all_s=all_s)
    limits = {name: scenario.stop_of(name).wall_clock or math.inf for name in measured}
    return {each.protocol: min(measured[each.protocol].run_s(each), limits[each.protocol]) for each in found}
