"""What laws of delays say of a run, for ``run.json``; the simulation does without."""

from __future__ import annotations

from vflsim.learning.data.loaded import LoadedData
from vflsim.results.store.schema import RunInfo
from vflsim.scenario.models import Scenario
from vflsim.scenario.resolve import party_timings, setting
from vflsim.simulation.heaviest_tail import heaviest
from vflsim.simulation.run import Outcome
from vflsim.simulation.variation import variation_of


def with_facts_of_laws(outcome: Outcome, scenario: Scenario, data: LoadedData) -> RunInfo:
    """Return the run's facts with its delay of the heaviest tail, and how its rounds vary."""
    info, metrics = outcome.info, outcome.tables.metrics
    seconds = metrics.column("time_s")[-1].as_py() if metrics.num_rows else 0.0
    variation = variation_of(scenario.protocols[info.protocol].protocol, setting(scenario, info.protocol, data))
    tail = heaviest(party_timings(scenario), info.participants, info.counts["rounds"], seconds)
    return info.model_copy(update={"heavy_tail": tail, "variation": variation})
