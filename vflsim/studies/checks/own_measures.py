"""Checks the scenario's measures on small tables with the columns of its future runs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from vflsim.results.store.schema import EVENTS, metrics_schema, rounds_schema
from vflsim.scenario.ending_checks import columns_in
from vflsim.scenario.models import Scenario
from vflsim.scenario.problems import Problem
from vflsim.vocabulary.imported import tried_out
from vflsim.vocabulary.measure_trial import try_out


def own_measure_problems(scenario: Scenario, task: str, training: bool) -> Iterator[Problem]:
    """Yield the mistakes in the measures that a scenario names. Without ``training`` runs have no scores."""
    scores = columns_in(scenario, task) if training else ()
    columns = {"metrics": metrics_schema(scores).names, "rounds": rounds_schema(()).names, "events": EVENTS.names}
    for name, measure in scenario.measures.items():
        try:
            tried_out(measure, partial(try_out, measure, columns))
        except ValueError as error:
            yield Problem.of_message(("measures", name), str(error))
