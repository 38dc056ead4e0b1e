"""Estimate a scenario's runs before running: sizes, bytes, memory, and the time of a step."""

import math
from dataclasses import dataclass

import numpy as np

from vflsim.books import BYTES
from vflsim.codecs.encryption import in_the_clear
from vflsim.intervals import Variation
from vflsim.learning.data.loaded_data import LoadedData
from vflsim.protocols.capabilities import untraced
from vflsim.protocols.hook_checks import learners_of
from vflsim.results.events import activities_in
from vflsim.results.facts import Conditions
from vflsim.results.link_waits import LinkUse, longest_wait
from vflsim.scenario.models import Scenario
from vflsim.scenario.resolve import setting
from vflsim.setting import Setting
from vflsim.simulation.info import conditions_of
from vflsim.simulation.variation import variation_of
from vflsim.stopping.end_rule import RoundFacts, Tally
from vflsim.streams import SERVER
from vflsim.studies.checks.rounds import blamed
from vflsim.studies.checks.sizes import Size, run_size
from vflsim.studies.checks.trials import trial

TRIAL_STEPS = 200
"""Server steps that ``expectation`` simulates without training to estimate a step's duration."""
TRIAL_MESSAGES, FEWEST_STEPS = 4_000, 2
"""Limits for trials with many messages: how many in total (some 16 µs each), and fewest server steps."""
MOST_MESSAGES = 40_000
"""The most messages of a trial whose events are kept: arrays take larger ones sooner, without events."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """Estimates for the runs of one protocol.

    ``step_s``, ``round_bytes`` and ``rounds`` are extrapolated from ``steps`` timing-only server steps with the first
    seed, NaN without any before the stop time: a step's mean time, the bytes of all messages per round, and the rounds
    until the first stop rule ends the run (infinite if only a target or the wall clock can). For ``precision`` the
    rounds are a rough guess from the spread of those steps. ``evaluations_per_round``: the rows of metrics that a round
    adds. ``particulars`` describes the protocol's own parameters.
    """

    protocol: str
    kind: str
    clients: int
    steps: int
    step_s: float
    round_bytes: float
    rounds: float
    size: Size
    particulars: str = ""
    promise: str = ""
    """The guarantees of mechanism and blinding, if there are any."""
    evaluations_per_round: float = float("nan")
    most_s: float = math.inf
    """The wall-clock seconds of `stop.wall_clock`."""
    variation: Variation | None = None
    """The variation of rounds according to the scenario, if `stop` asks for it: a few steps do not show it."""
    conditions: Conditions | None = None
    """The training settings of the protocol."""
    longest_wait: str = ""
    """The link that messages wait for longest, and whose, in words; empty if they hardly wait."""
    idle_line: tuple[str, float] | None = None
    """Of ``fifo`` links, the line that is idle longest while messages wait for it, and its share of the time."""


def expectation(scenario: Scenario, name: str, data: LoadedData, steps: int = TRIAL_STEPS) -> Expectation:
    """Estimate the runs of protocol ``name``. Raises a run's errors, as ScenarioError if settings cause them."""
    entry, stop, seed = scenario.protocols[name], scenario.stop_of(name), scenario.seeds[0]
    messages = entry.protocol.batch_plan().messages(scenario.clients)
    steps = max(min(steps, TRIAL_MESSAGES // messages), min(steps, FEWEST_STEPS))
    resolved = setting(scenario, name, data)
    contended = _contended(resolved) and steps * messages <= MOST_MESSAGES
    outcome = trial(scenario, name, seed, data, steps, "events" if contended else "rounds")
    if outcome.error is not None:
        raise blamed(scenario, name, seed, outcome)
    rounds = outcome.tables.rounds
    assert rounds is not None, "record: rounds keeps them"
    clients, done = len(outcome.info.participants), rounds.num_rows
    variation = variation_of(entry.protocol, resolved) if stop.asks_variation else None
    step_s = round_bytes = limit = evaluations = float("nan")
    if done:
        step_s = rounds.column("end_s")[-1].as_py() / done
        last = outcome.tables.metrics.slice(outcome.tables.metrics.num_rows - 1).to_pylist()[0]
        round_bytes = sum(last[name] for name in BYTES) / done
        used = sum(len(chunk.flatten()) for chunk in rounds.column("used").chunks)
        updates, every = outcome.info.counts["updates"] / done, scenario.evaluate_of(name).every
        evaluations = {"seconds": step_s, "rounds": 1.0, "updates": updates}[every.unit] / every.amount
        batches = entry.protocol.batch_plan().batches(data.rows, scenario.training_of(name), 0).per_epoch
        ends = rounds.column("end_s").to_pylist()
        tally, durations = Tally(done, outcome.info.counts["updates"], used, time_s=ends[-1]), np.diff([0.0, *ends])
        rules = stop.each(RoundFacts.of(entry.protocol.batch_plan(), clients, batches, variation))
        own = math.inf if entry.protocol.most_rounds is None else entry.protocol.most_rounds
        limit = min([own, *(rule.rounds_needed(tally, durations) for rule in rules)])
    remarks = entry.protocol.describe(resolved), in_the_clear(resolved.codec), untraced(entry.protocol, resolved)
    size, particulars = run_size(scenario, name, resolved), "; ".join(filter(None, remarks))
    promises = [] if resolved.mechanism is None else [resolved.mechanism.promise()]
    promises += [] if resolved.blinding is None else [resolved.blinding.promise(clients)]
    learners = learners_of(entry.protocol, resolved, seed)
    events, facts = outcome.tables.events, outcome.info.network
    use = LinkUse(activities_in(events), facts) if done and events is not None and facts is not None else None
    of_sorts = [learners.clients[sort[0]] for sort in resolved.sorts if learners.clients]
    return Expectation(
        protocol=name,
        kind=entry.protocol.kind,
        clients=clients,
        steps=done,
        step_s=step_s,
        round_bytes=round_bytes,
        rounds=limit,
        size=size,
        particulars=particulars,
        promise="; ".join(promises),
        evaluations_per_round=min(evaluations, 1.0),  # skipped where nothing has changed
        most_s=stop.wall_clock or math.inf,
        variation=variation,
        conditions=conditions_of(entry.protocol, resolved, learners.server, of_sorts),
        longest_wait="" if use is None else longest_wait(use.waits(), step_s),
        idle_line=use.idlest_line() if use is not None and resolved.network.queued else None,
    )


def _contended(resolved: Setting) -> bool:
    """Return whether messages may wait for others."""
    links = [resolved.timings[party].link for party in (SERVER, *resolved.clients)]
    slots = resolved.timings[SERVER].concurrency is not None
    return resolved.network.delays(links) or (slots and any(link.limited for link in links))
