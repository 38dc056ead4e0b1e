"""Some of a scenario's protocols, together with those that its results folder has already."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vflsim.results.store.folder import locked
from vflsim.results.store.write import SCENARIO
from vflsim.scenario.load import narrowed
from vflsim.scenario.models import Scenario
from vflsim.studies.runs.options import RunOptions
from vflsim.studies.runs.reuse import planned
from vflsim.studies.runs.spec import StudySpec


def chosen(
    scenario: Scenario, protocols: Sequence[str], folder: Path, timing_only: bool, options: RunOptions
) -> Scenario:
    """Return the scenario with the named ``protocols`` (default: all) and those of which the folder has every run.

    So a study runs the named ones alone, and keeps the others that it has, as far as they fit the scenario. Raises
    ScenarioError for an unknown name, ResultsError if another process uses the folder.
    """
    narrow = narrowed(scenario, protocols)
    if narrow is scenario or not (folder / SCENARIO).is_file():
        return narrow
    with locked(folder):
        kept = planned(StudySpec(scenario, folder, {}, timing_only, options)).kept
    there = [name for name in scenario.protocols if all((name, seed) in kept for seed in scenario.seeds)]
    return narrowed(scenario, [*protocols, *there])
