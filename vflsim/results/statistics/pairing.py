"""Whether the runs of two studies share their draws: what decides delays, bandwidths, rows and batches is equal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vflsim.errors import VflsimError

if TYPE_CHECKING:
    from vflsim.results.run_set import RunSet

PARTS = ("data", "partition", "timing")
"""The sections of a scenario that decide the draws of all its protocols."""
CAUSES = ("constants", "modules")
"""The sections that other sections refer to."""
BATCHES = ("batch", "batches", "sampling", "last_batch")
"""The keys of ``training`` that decide mini-batches; a protocol may override them."""


def differences(one: RunSet, name: str, other: RunSet, others_name: str) -> list[str]:
    """List how protocol ``name`` of a study and ``others_name`` of another differ in what decides draws, as written.

    Empty if nothing differs, or if everything has the same meaning: ``5 Mbps`` and ``5e6``, a default and its value.
    """
    written = _written(one, name), _written(other, others_name)
    if written[0] == written[1]:
        return []
    from vflsim.scenario.changes import changed  # imports all that a scenario may say

    lines = list(changed(*written))
    try:
        meant = [_meant(study, own) for study, own in ((one, name), (other, others_name))]
    except VflsimError:  # a file of the scenario is gone, or its modules are not trusted: only the text can be compared
        return lines
    same = [part for part, value in meant[0].items() if value == meant[1][part]]
    if len(same) == len(meant[0]):
        return []
    return [line for line in lines if line.partition(":")[0].partition(".")[0] not in same]


def _written(study: RunSet, name: str) -> dict[str, Any]:
    scenario = study.scenario
    training = (scenario.get("training") or {}) | ((scenario["protocols"].get(name) or {}).get("training") or {})
    batches = {key: training[key] for key in BATCHES if key in training}
    parts = {part: scenario[part] for part in PARTS if part in scenario}
    causes = {cause: scenario[cause] for cause in CAUSES if cause in scenario and (cause != "modules" or _named(parts))}
    return causes | parts | {"training": batches}


def _named(parts: dict[str, Any]) -> bool:
    from vflsim.scenario.own_modules import code_of

    return bool(code_of(parts))


def _meant(study: RunSet, name: str) -> dict[str, Any]:
    """Resolve what decides draws. Raises VflsimError if the scenario cannot be loaded any more."""
    from vflsim.results.store.scenario import stored_scenario
    from vflsim.scenario.resolve import party_timings

    scenario = stored_scenario(study.folder, study.runs)
    training = scenario.training_of(name)
    return {
        "data": scenario.data,
        "partition": (scenario.partition, scenario.clients),
        "timing": (scenario.timing.network, party_timings(scenario)),
        "training": [getattr(training, key) for key in BATCHES],
    }
