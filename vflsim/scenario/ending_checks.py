"""Checks at load time of what ends a run, and of what it evaluates."""

from collections.abc import Iterator
from functools import partial

from vflsim.learning.tasks import task_of
from vflsim.protocols.capabilities import answering_of
from vflsim.scenario.document import Problem
from vflsim.scenario.models import Scenario
from vflsim.scenario.resolve import location_of, party_timings
from vflsim.stopping import COUNTED, UNSCORED
from vflsim.stopping.end_rule import CountLimit
from vflsim.timing.activation import Immediate
from vflsim.timing.availability import Always
from vflsim.timing.compute import ComputeModel
from vflsim.timing.party import PartyTiming
from vflsim.vocabulary.imported import tried_out
from vflsim.vocabulary.metrics import LOSS, belongs_to_a_party, column_of
from vflsim.vocabulary.plain_yaml import Location
from vflsim.vocabulary.targets import Targets
from vflsim.world.run_tables import COUNTS, present


def stop_problems(scenario: Scenario, name: str, task: str | None, waits: bool) -> Iterator[Problem]:
    """Check a protocol's stop rules. ``waits``: some party, link or delay takes time."""
    stop = scenario.stop_of(name)
    allowed = ", ".join(type(stop).model_fields)
    if not stop.criteria:
        what = "no stop rule is given"
        yield Problem(location_of(scenario, name, "stop"), what, f"at least one of {allowed}", "add `time: 600 s`, say")
    if stop.criteria.keys() <= {"time"} and stop.time is not None and not waits:
        what = "time would never pass: no party, link or delay takes any"
        origin = scenario.document.where(("timing",))
        without = f", leave out {origin}" if origin.startswith("--") else ""
        remedy = f"give durations in `timing`{without}, or stop by one of {COUNTED}"
        yield Problem(location_of(scenario, name, "stop", "time"), what, remedy=remedy)
    if stop.epsilon is not None and scenario.protocols[name].mechanism is None:
        what = f"protocol {name!r} spends no ε: it has no mechanism"
        remedy = f"add one, or `stop: {{epsilon: null}}` to {name!r}"
        yield Problem(location_of(scenario, name, "stop", "epsilon"), what, "with a mechanism", remedy)
    if stop.target is not None:
        yield from target_problems(scenario, location_of(scenario, name, "stop", "target"), stop.target, task)
    if task is not None:
        yield from _rules(scenario, name, task)
    views = scenario.record.views
    if views is not None and views.keep == "all" and not any(isinstance(rule, CountLimit) for rule in stop.each()):
        what = f"views that keep all grow with every message, and nothing limits those of protocol {name!r}"
        remedy = "add `epochs: 30`, say, beside the other stop rules, or `keep: last`"
        yield Problem(location_of(scenario, name, "stop"), what, f"a limit: {COUNTED}", remedy)


def _rules(scenario: Scenario, name: str, task: str) -> Iterator[Problem]:
    for key, rule in (scenario.stop_of(name).rules or {}).items():
        try:
            tried_out(rule, partial(rule._contract_at, columns=columns_in(scenario, task)))
        except ValueError as error:
            yield Problem.of_message(location_of(scenario, name, "stop", "rules", key), str(error))


def columns_in(scenario: Scenario, task: str) -> list[str]:
    """Return the columns of metrics that every run of a scenario has."""
    splits = ("validation", "test") if scenario.data.validation_fraction else ("test",)
    names = (LOSS, *task_of(task).metric_names, *scenario.metrics)
    counts = (column.name for column in present(COUNTS, metered=False))
    return [*counts, *(f"{split}_{name}" for split in splits for name in names)]


def target_problems(scenario: Scenario, loc: Location, targets: Targets, task: str | None) -> Iterator[Problem]:
    """Check that runs have the metrics of targets."""
    for metric in targets.values:
        split, _, bare = column_of(metric).partition("_")
        if belongs_to_a_party(metric) and not any(e.protocol.traits.party_scores for e in scenario.protocols.values()):
            what = f"{metric} is of one party's own predictor, and no protocol of this scenario has any"
            yield Problem((*loc, metric), what, column_of(metric), "leave out the party")
        metrics = (LOSS, *task_of(task).metric_names, *scenario.metrics) if task else (bare,)
        if bare not in metrics:
            have = ", ".join(f"{split}_{known}" for known in metrics)
            yield Problem((*loc, metric), f"a {task} task has no {metric}", have, "choose one of the allowed metrics")
        if split == "validation" and not scenario.data.validation_fraction:
            remedy = "set data.validation_fraction, or choose a test metric"
            yield Problem((*loc, metric), f"{metric} needs validation rows, and there are none", remedy=remedy)


def budget_problems(scenario: Scenario) -> Iterator[Problem]:
    """Check that some party says what it draws if a budget is of joules."""
    if scenario.budget is None or scenario.budget.energy is None:
        return
    if not any(timing.power is not None for timing in party_timings(scenario)):
        what = "no party says what it draws, so no run counts joules"
        yield Problem(("budget", "energy"), what, remedy="give `timing.server` or clients a `power`, or leave it out")


def metric_problems(scenario: Scenario, task: str | None) -> Iterator[Problem]:
    """Check that the scenario's own metrics are for its task."""
    for name, metric in scenario.metrics.items():
        if task is not None and task not in metric.tasks:
            what = f"{metric.kind} is no metric of a {task} task"
            yield Problem(("metrics", name), what, f"with tasks {', '.join(metric.tasks)}", "remove it")


def end_problems(scenario: Scenario, name: str) -> Iterator[Problem]:
    """Refuse a run that only updates could end and that has none. Its participants have been checked before."""
    nobody = not scenario.protocols[name].protocol.participants(scenario.clients, scenario.symbols)
    if nobody and {rule.by for rule in scenario.stop_of(name).each()} == {"update"}:
        what = f"protocol {name!r} would never end: no client takes part in it, so there are no updates"
        remedy = f"add `stop: {{rounds: 100}}` to {name!r}, say"
        yield Problem(location_of(scenario, name, "stop", "updates"), what, f"another of {UNSCORED} beside it", remedy)


def evaluation_problems(scenario: Scenario, name: str) -> Iterator[Problem]:
    """Check that no client can crash while it works on an evaluation that takes time."""
    protocol = scenario.protocols[name].protocol
    if not scenario.evaluate_of(name).costs_time or protocol.traits.reference:
        return
    timings, clients = party_timings(scenario), protocol.participants(scenario.clients, scenario.symbols)
    for client in clients:
        if _crashes(timings[client]):
            what = f"an evaluation that takes time cannot wait for client {client}, whose outages lose its work"
            remedy = "set evaluate.costs_time: false, or interrupted: resumed"
            yield Problem(location_of(scenario, name, "evaluate", "costs_time"), what, "false", remedy)
            return


def deadline_problems(scenario: Scenario, name: str) -> Iterator[Problem]:
    """Check that a protocol can answer under ``evaluate.deadline``, and that keys about its answers have one."""
    evaluate, entry = scenario.evaluate_of(name), scenario.protocols[name]
    if evaluate.deadline is None:
        nowhere = all(scenario.evaluate_of(each).deadline is None for each in scenario.protocols)
        fields = set[str]() if entry.evaluate is None else entry.evaluate.model_fields_set
        keys = fields | (scenario.evaluate.model_fields_set if nowhere else set())
        for key in sorted({"missing", "query_rows"} & keys):
            what = f"{key} says how queries are answered, and there is no deadline"
            yield Problem(location_of(scenario, name, "evaluate", key), what, remedy="add `deadline: 50 ms`, say")
        return
    loc = location_of(scenario, name, "evaluate", "deadline")
    remedy = f"give {name!r} its own `evaluate: {{deadline: null}}`"
    try:
        crashes = answering_of(entry.protocol).needs_everybody
    except ValueError as error:
        why, _, allowed = str(error).partition("; allowed: ")
        yield Problem(loc, f"protocol {name!r} cannot answer under a deadline: {why}", allowed, remedy)
        return
    if scenario.data.align == "outer":
        what = "parties lack rows (data.align: outer), so there is no saying which embeddings miss a deadline"
        yield Problem(loc, what, "align: inner or exact", "leave the deadline out")
    timings, clients = party_timings(scenario), entry.protocol.participants(scenario.clients, scenario.symbols)
    losing = [client for client in clients if _crashes(timings[client])]
    if crashes and losing:
        what = f"protocol {name!r} cannot answer while client {losing[0]} loses its work in outages: {crashes}"
        yield Problem(loc, what, "interrupted: resumed", remedy)
    if evaluate.missing == "mean" and entry.mechanism is not None:
        what = f"mean embeddings of training rows would leave the clients of {name!r} beside their mechanism"
        yield Problem(location_of(scenario, name, "evaluate", "missing"), what, "absent, zeros")


def _crashes(timing: PartyTiming) -> bool:
    """Return whether outages of this party lose its work."""
    return not isinstance(timing.availability, Always) and timing.availability.interrupted == "lost"


def takes_time(timing: PartyTiming) -> bool:
    """Return whether any activity of this party can take time."""
    if isinstance(timing.compute, ComputeModel) or not isinstance(timing.activation, Immediate):
        return True
    if timing.link.limited:
        return True
    return any(delay.expectation() > 0 for delay in (timing.compute, timing.upload_delay, timing.link.latency))
