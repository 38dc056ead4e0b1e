"""What a scenario would do, before it is run: sizes, bytes, memory, and the time of a step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vflsim.learning.batches import BatchSequence
from vflsim.runner.build import LoadedData
from vflsim.runner.precision import expected_rounds
from vflsim.runner.run import run_protocol
from vflsim.runner.sizes import Size, size_of
from vflsim.scenario.models import Scenario
from vflsim.scenario.stop import Stop

TRIAL_STEPS = 200
"""Server steps that ``expectation`` simulates without training to tell how long one takes."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """What runs of one protocol would be like.

    ``step_s``, ``round_bytes`` and ``rounds`` are extrapolated from ``steps`` timing-only server steps with the first
    seed, NaN if there was none before the time was up: a step's mean time, the bytes of all messages per round, and the
    rounds until the first of the stop rules ends the run (infinite if only a target or the wall clock can); of
    ``precision`` that is a rough guess, as many as the spread of those steps lets expect.
    """

    protocol: str
    kind: str
    clients: int
    steps: int
    step_s: float
    round_bytes: float
    rounds: float
    size: Size


def expectation(scenario: Scenario, name: str, data: LoadedData, steps: int = TRIAL_STEPS) -> Expectation:
    """What protocol ``name`` would be like. Raises what a run would."""
    entry, stop = scenario.protocols[name], scenario.stop_of(name)
    trial = scenario.model_copy(update={
        "record": "rounds",
        "stop": Stop(rounds=steps, time=stop.time),
        "protocols": {**scenario.protocols, name: entry.model_copy(update={"stop": None})},
    })  # fmt: skip
    outcome = run_protocol(trial, name, scenario.seeds[0], data, timing_only=True)
    if outcome.error is not None:
        raise outcome.error
    rounds = outcome.tables.rounds
    assert rounds is not None, "record: rounds keeps them"
    clients, done = len(outcome.info.participants), rounds.num_rows
    step_s = round_bytes = limit = float("nan")
    if done:
        step_s = rounds.column("end_s")[-1].as_py() / done
        last = outcome.tables.metrics.slice(outcome.tables.metrics.num_rows - 1).to_pylist()[0]
        round_bytes = (last["bytes_up"] + last["bytes_down"] + last["bytes_peer"]) / done
        used = sum(map(len, rounds.column("used").to_pylist()))
        batches = BatchSequence(data.rows, scenario.training_of(name), 0, 0).per_epoch
        limit = _rounds(
            stop,
            time=step_s,
            rounds=1.0,
            updates=outcome.info.counts["updates"] / done,
            epochs=entry.protocol.epochs(done, used, clients, batches) / done,
        )
        if stop.precision is not None:
            ends = np.array([0.0, *rounds.column("end_s").to_pylist()])
            limit = min(limit, expected_rounds(stop.precision, np.diff(ends)))
    size = size_of(scenario, name, data)
    return Expectation(name, entry.protocol.kind, clients, done, step_s, round_bytes, limit, size)


def _rounds(stop: Stop, **per_round: float) -> float:
    """The rounds until the first limit of ``stop`` is met, of which a round uses up so much."""
    limits = [
        limit / amount for key, amount in per_round.items() if (limit := getattr(stop, key)) is not None and amount > 0
    ]
    return min(limits, default=float("inf"))
