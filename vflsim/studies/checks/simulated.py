"""The mean round from simulated rounds, for protocols whose rounds have no closed form."""

from typing import Any

import numpy as np

from vflsim.analysis.findings import Finding, NoClosedForm, Range, Simulated
from vflsim.intervals.steady import BATCHES, steady_mean
from vflsim.learning.data.loaded import LoadedData
from vflsim.protocols.base import Protocol
from vflsim.protocols.defaults import timed_world_of, vectorised_by_hand
from vflsim.scenario.evaluate import Evaluate, Record, Recording
from vflsim.scenario.models import Scenario
from vflsim.scenario.resolve import setting
from vflsim.simulation.run import Outcome, run_protocol
from vflsim.simulation.variation import variation_of
from vflsim.simulation.vectorised import UndecidedError, obstacles, run_vectorised
from vflsim.stopping.rules import Stop

_CLIENT_ROUNDS = 400_000
"""Clients × rounds by arrays: some tenths of a second."""
_MOVED = 20_000
"""The same where arrays move one message after the other: clients at their own pace, on links that they share."""
_ROUNDS = 20_000
_MESSAGES = 3_000
"""The most messages of rounds that are simulated event by event: some tenths of a second."""


def simulated(scenario: Scenario, name: str, data: LoadedData, none: NoClosedForm) -> Finding:
    """Return the mean round of a run without training with a 95 % interval, in the place of ``none``.

    It has the scenario's first seed. Rounds are simulated by arrays where that is possible. ``none`` stays where the
    run fails or its mean has no sound interval.
    """
    outcome = _by_arrays(scenario, name, data) or _by_events(scenario, name, data)
    rounds = outcome.tables.rounds
    if outcome.error is not None or rounds is None:
        return none
    variation = variation_of(scenario.protocols[name].protocol, setting(scenario, name, data))
    mean = steady_mean(np.diff(rounds.column("end_s").to_numpy(), prepend=0.0)[1:], variation=variation)
    if not mean.sound:
        return none
    return Simulated(none.name, "s", Range(mean.low, mean.high), mean.n, none.reason)


def tried(scenario: Scenario, name: str, rounds: int, record: Record, protocol: Protocol | None = None) -> Scenario:
    """Return the scenario of so many rounds of a protocol, or of ``protocol`` in its place.

    It is evaluated at the end alone, unless evaluations take time. Neither this nor what ends a run changes its rounds.
    """
    entry, evaluate = scenario.protocols[name], scenario.evaluate_of(name)
    changed: dict[str, Any] = {"stop": None, **({} if protocol is None else {"protocol": protocol})}
    if not evaluate.costs_time:
        evaluate, changed["evaluate"] = Evaluate.model_validate({"every": f"{rounds} rounds"}), None
    update = {"record": Recording(tables=record), "stop": Stop(rounds=rounds), "evaluate": evaluate, "measures": {}}
    return scenario.model_copy(update={**update, "protocols": {name: entry.model_copy(update=changed)}})


def _by_arrays(scenario: Scenario, name: str, data: LoadedData) -> Outcome | None:
    """Run many rounds by arrays; None where only events can tell."""
    if obstacles(tried(scenario, name, 2 * BATCHES, "rounds"), name):
        return None
    protocol, seed = scenario.protocols[name].protocol, scenario.seeds[0]
    moved = False
    if vectorised_by_hand(protocol) is not None:
        moved = timed_world_of(protocol, setting(scenario, name, data), seed).shared_links is not None
    most = (_MOVED if moved else _CLIENT_ROUNDS) // scenario.clients
    trial = tried(scenario, name, min(_ROUNDS, max(2 * BATCHES, most)), "rounds")
    outcome = run_vectorised(trial, name, seed, data)
    return None if isinstance(outcome.error, UndecidedError) else outcome


def _by_events(scenario: Scenario, name: str, data: LoadedData) -> Outcome:
    """Run rounds event by event; a few first, which show how many messages a round has."""
    rounds, few = 2 * BATCHES, _of_events(scenario, name, data, 2 * BATCHES)
    if few.error is not None or few.tables.rounds is None:
        return few
    messages = 2 * len(few.tables.rounds.column("used").combine_chunks().flatten()) / rounds
    return (
        _of_events(scenario, name, data, int(_MESSAGES / max(1.0, messages))) if rounds * messages < _MESSAGES else few
    )


def _of_events(scenario: Scenario, name: str, data: LoadedData, rounds: int) -> Outcome:
    return run_protocol(tried(scenario, name, rounds, "rounds"), name, scenario.seeds[0], data, timing_only=True)
