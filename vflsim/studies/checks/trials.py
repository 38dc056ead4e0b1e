"""Rounds of one protocol without training, before a study: by arrays where these can tell, else event by event."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from vflsim.learning.data.loaded_data import LoadedData
from vflsim.protocols.base import Protocol
from vflsim.recurrences.chunk import Chunk
from vflsim.scenario.models import Scenario
from vflsim.scenario.sections import Evaluate, Record, Recording
from vflsim.simulation.run import Outcome, run_protocol
from vflsim.simulation.vectorised import UndecidedError, obstacles, run_vectorised
from vflsim.stopping import Stop

Seen = Callable[[Chunk, int], None]
"""Gets every chunk of rounds that arrays play, and how many of them count."""


def tried(
    scenario: Scenario,
    name: str,
    rounds: int,
    record: Record,
    protocol: Protocol | None = None,
    time: float | None = None,
) -> Scenario:
    """Return the scenario of so many rounds of a protocol, or of ``protocol`` in its place.

    A stop ``time`` may end them sooner. It is evaluated at the end alone, unless evaluations take time:
    neither this nor what ends a run changes its rounds.
    """
    entry, evaluate = scenario.protocols[name], scenario.evaluate_of(name)
    changed: dict[str, Any] = {"stop": None, **({} if protocol is None else {"protocol": protocol})}
    if not evaluate.costs_time:
        evaluate, changed["evaluate"] = Evaluate.model_validate({"every": f"{rounds} rounds"}), None
    update = {
        "record": Recording(tables=record),
        "stop": Stop(rounds=rounds, time=time),
        "evaluate": evaluate,
        "measures": {},
    }
    return scenario.model_copy(update={**update, "protocols": {name: entry.model_copy(update=changed)}})


def trial(
    scenario: Scenario, name: str, seed: int, data: LoadedData, rounds: int, record: Record = "rounds"
) -> Outcome:
    """Simulate ``rounds`` rounds of protocol ``name``, or fewer if its stop time comes first."""
    some = tried(scenario, name, rounds, record, time=scenario.stop_of(name).time)
    outcome, why = by_arrays(some, name, seed, data)
    return run_protocol(some, name, seed, data, timing_only=True) if why or outcome is None else outcome


def by_arrays(
    some: Scenario, name: str, seed: int, data: LoadedData, seen: Seen | None = None
) -> tuple[Outcome | None, str]:
    """Run a scenario by arrays; else say why only events can tell, with the rounds until then, if there are any."""
    if problems := obstacles(some, name):
        return None, problems[0].what
    outcome = run_vectorised(some, name, seed, data, seen=seen, ages=False)
    if not isinstance(outcome.error, UndecidedError):
        return outcome, ""
    ties = "activities end at the same instant, and only events tell which comes first"
    return outcome, ties if outcome.error.where else outcome.error.what


def by_events(
    scenario: Scenario, name: str, data: LoadedData, rounds: int, record: Record, protocol: Protocol | None = None
) -> Outcome:
    """Simulate ``rounds`` rounds event by event, with the scenario's first seed."""
    some = tried(scenario, name, rounds, record, protocol)
    return run_protocol(some, name, scenario.seeds[0], data, timing_only=True)


def rounds_of(
    scenario: Scenario,
    name: str,
    data: LoadedData,
    rounds: int,
    messages: int,
    fewest: int,
    record: Record = "rounds",
    protocol: Protocol | None = None,
    seen: Seen | None = None,
) -> tuple[Outcome, str]:
    """Simulate ``rounds`` rounds with the scenario's first seed; return why event by event, if so.

    Then they ``record``, and are as many as have about so many ``messages``, but at least ``fewest``. How many
    embeddings a step uses is seen from the rounds that arrays could tell, or else from the ``fewest``, unless these
    alone had more messages. ``protocol`` stands in the place of the one that the scenario calls ``name``.
    """
    some = tried(scenario, name, rounds, "rounds", protocol)
    outcome, why = by_arrays(some, name, scenario.seeds[0], data, seen)
    if outcome is not None and not why:
        return outcome, ""
    many: float = (protocol or scenario.protocols[name].protocol).batch_plan().messages(scenario.clients)
    if fewest * many < messages:
        known = None if outcome is None else outcome.tables.rounds
        if known is None or not known.num_rows:
            known = by_events(scenario, name, data, fewest, "rounds", protocol).tables.rounds
        if known is not None and known.num_rows:
            many = max(1.0, many * used_in(known) / known.num_rows / scenario.clients)
    count = min(rounds, max(fewest, int(messages / many)))
    return by_events(scenario, name, data, count, record, protocol), why


def used_in(rounds: pa.Table) -> int:
    """Count the embeddings that the steps of ``rounds`` use."""
    return int(pc.sum(pc.list_value_length(rounds.column("used"))).as_py() or 0)
