"""Estimate a scenario's runs before running: sizes, bytes, memory, and the time of a step."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, inf
from typing import Any

import numpy as np
import pyarrow.compute as pc

from vflsim.books.counts import BYTES
from vflsim.intervals.steady import Variation
from vflsim.learning.batching.kernels import KERNELS, evaluated_as_sum, trained_as_sum
from vflsim.learning.batching.products import LayeredStack
from vflsim.learning.data.loaded import LoadedData
from vflsim.learning.learners.party import PartyLearner
from vflsim.learning.learners.server import ServerLearner
from vflsim.protocols import Protocol
from vflsim.protocols.defaults import extra_bytes_of, untraced, view_bytes_of
from vflsim.protocols.hook_checks import learners_of
from vflsim.results.events import activities_in
from vflsim.results.facts import Conditions
from vflsim.results.link_waits import LinkUse, longest_wait
from vflsim.scenario.evaluate import ViewRecording
from vflsim.scenario.models import Scenario
from vflsim.scenario.resolve import setting
from vflsim.setting import Learners, Setting
from vflsim.simulation.info import conditions_of
from vflsim.simulation.variation import variation_of
from vflsim.stopping.end_rule import RoundFacts, Tally
from vflsim.streams import SERVER
from vflsim.studies.checks.first_round import blamed, trial
from vflsim.vocabulary.amounts import quantity

KEPT = "table and the like"
"""The name in ``Size.parts`` of what a protocol keeps."""


@dataclass(frozen=True, slots=True)
class Size:
    """``parameters`` of all parties, and the ``bytes`` that a run holds at a time, in ``parts`` by name.

    A training step and an evaluation follow each other: the larger counts.
    """

    parameters: int
    bytes: int
    parts: Mapping[str, int] = field(default_factory=dict, compare=False)

    @property
    def held_bytes(self) -> int:
        """The bytes of features and weights alone."""
        return self.parts["features"] + self.parts["weights"]

    @property
    def told(self) -> str:
        """The parts that are not zero, the largest first."""
        largest = sorted(self.parts.items(), key=lambda part: -part[1])
        return ", ".join(f"{what} {quantity(size, 'B')}" for what, size in largest if size)


def run_size(scenario: Scenario, name: str, setting: Setting) -> Size:
    """Count the weights and bytes of a run of a scenario's protocol. Raises ValueError as ``size_of`` does."""
    protocol = scenario.protocols[name].protocol
    return size_of(protocol, setting, scenario.record.views, arrivals_of_a_row(protocol, setting, scenario, name))


def arrivals_of_a_row(protocol: Protocol, setting: Setting, scenario: Scenario, name: str) -> int:
    """Return the most arrivals of messages about a row until the run's end, per kind and sender.

    Counted from the stop rules that tell; at least 1.
    """
    stop = scenario.stop_of(name)
    clients = max(1, len(setting.clients))
    plan = protocol.batch_plan()
    batches = plan.batches(setting.data.rows, scenario.training_of(name), 0).per_epoch
    rounds = [most for rule in stop.each() if (most := rule.rounds_at_most(batches)) < inf]
    rounds += [stop.updates / clients] if stop.updates else []
    passes = min((plan.epochs(most, most * clients, clients, batches) for most in rounds), default=1.0)
    return ceil(passes) + 1  # the last pass may repeat rows


def size_of(protocol: Protocol, setting: Setting, views: ViewRecording | None = None, arrivals: int = 1) -> Size:
    """Count the weights and bytes of a run that records ``views``, and where it keeps all, ``arrivals`` of each row.

    Raises ValueError for a model with more weights than can be counted.
    """
    learners = learners_of(protocol, setting, seed=0)
    evaluated = max(len(setting.data.labels[split]) for split in ("validation", "test"))
    total = _count(learners.server, setting, evaluated)
    total.pop("output")
    counts = [total, *(_count_alike(clients, learners, setting, evaluated) for clients in setting.sorts)]
    once = {what: max(each.pop(what, 0) for each in counts) for what in ("step", "operation", "summed", "trained sum")}
    for each in counts[1:]:
        total.update(each)
    viewed = 0 if views is None else view_bytes_of(protocol, setting, min(views.rows, setting.data.rows))
    if views is not None and views.keep == "all":
        viewed *= 2 * arrivals  # the recorded pieces, and the written tables
    parts = {each: total[each] for each in ("features", "weights", "gradients", "optimisers")}
    batch = total["batch"] + once["trained sum"] + max(once["step"], total["stacked step"])
    evaluation = total["evaluation"] + once["summed"] + once["operation"]
    busiest = {"activations of a batch": batch} if batch > evaluation else {"an evaluation": evaluation}
    parts |= {**busiest, KEPT: extra_bytes_of(protocol, setting), "views": viewed}
    return Size(total["parameters"], sum(parts.values()), parts)


def _count_alike(
    clients: Sequence[int], learners: Learners[Any, Any], setting: Setting, evaluated: int
) -> Counter[str]:
    """Count clients with the same shapes as ``_count`` does.

    Clients of a stack compute at once. If only the sum of their embeddings is ever used, no embedding is made: the sum
    counts, once for all stacks. If not, their embeddings are stacked for the server, and so are the gradients.
    """
    learner, model = learners.clients[clients[0]], setting.models[clients[0] - 1]
    one = _count(learner, setting, evaluated)
    once = Counter({what: one.pop(what) for what in ("step", "operation", "output")})
    counts = Counter({what: len(clients) * size for what, size in one.items()})
    if not learners.split or isinstance(KERNELS[type(model)], str):
        return counts + once
    server, output = learners.server, once["output"]
    table = isinstance(server, ServerLearner) and server.parts.table
    if evaluated_as_sum(learner, model, setting.aggregate):
        once["summed"] = one["evaluation"]
        counts["evaluation"] = 0
    if trained_as_sum(learner, model, setting.aggregate, table):
        counts["batch"] -= 2 * output * len(clients)
        once["trained sum"] = 2 * output
        if KERNELS[type(model)] is LayeredStack:
            counts["stacked step"] = once["step"] * len(clients)
    else:
        counts["batch"] += 2 * output * len(clients)
    return counts + once


def _count(learner: PartyLearner, setting: Setting, evaluated: int) -> Counter[str]:
    """Count a party's weights, its bytes by part, and those of the largest operation of a step and of an evaluation."""
    counts = Counter(features=learner.nbytes)
    step = operation = output = 0
    for model in learner.models.values():
        weights, item = model.parameters, model.dtype.itemsize
        trained, whole = model.footprint(setting.batch), model.footprint(evaluated)
        counts += Counter(
            parameters=weights,
            weights=weights * item,
            gradients=weights * item * model.gradients_held,
            optimisers=weights * item * model.rule.slots,
            batch=trained.kept + 2 * trained.output,  # with the gradient by the output
            evaluation=whole.output,
        )
        step, operation = max(step, trained.largest), max(operation, whole.largest)
        output += trained.output
    counts.update(step=step, operation=operation, output=output)
    return counts


# --- expected ---------------------------------------------------------------------------------------------------------


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
        used = int(pc.sum(pc.list_value_length(rounds.column("used"))).as_py())
        updates, every = outcome.info.counts["updates"] / done, scenario.evaluate_of(name).every
        evaluations = {"seconds": step_s, "rounds": 1.0, "updates": updates}[every.unit] / every.amount
        batches = entry.protocol.batch_plan().batches(data.rows, scenario.training_of(name), 0).per_epoch
        ends = rounds.column("end_s").to_pylist()
        tally, durations = Tally(done, outcome.info.counts["updates"], used, time_s=ends[-1]), np.diff([0.0, *ends])
        rules = stop.each(RoundFacts.of(entry.protocol.batch_plan(), clients, batches, variation))
        limit = min((rule.rounds_needed(tally, durations) for rule in rules), default=math.inf)
    remarks = entry.protocol.describe(resolved), untraced(entry.protocol, resolved)
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
