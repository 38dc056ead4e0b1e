"""Checks at load time of whether the parts of a scenario fit together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from vflsim.learning.data.catalogue import CATALOGUE
from vflsim.learning.models.aggregates import MeanAggregate, SumAggregate
from vflsim.learning.models.server import ServerModel
from vflsim.learning.privacy.base import Mechanism
from vflsim.learning.tasks import task_of
from vflsim.protocols import kinds_with
from vflsim.protocols.base import UnsuitableError
from vflsim.protocols.capabilities import Blindable, participants_of
from vflsim.protocols.signatures import mismatches
from vflsim.scenario.models import Scenario
from vflsim.scenario.problems import Problem
from vflsim.scenario.resolve import (
    active_model,
    check_context,
    client_models,
    party_timings,
    planned_rounds,
    predictors,
)
from vflsim.timing.activation import Immediate
from vflsim.timing.availability import Always
from vflsim.timing.compute import ComputeModel
from vflsim.timing.party import PartyTiming
from vflsim.vocabulary.imported import origin, reason, tried_out
from vflsim.vocabulary.metrics import LOSS, belongs_to_a_party, column_of
from vflsim.vocabulary.plain_yaml import Location
from vflsim.vocabulary.selections import members
from vflsim.vocabulary.stop_rule_trial import try_out as try_rule
from vflsim.vocabulary.targets import Targets


def problems_in(scenario: Scenario, task: str | None = None, classes: int | None = None) -> Iterator[Problem]:
    """Yield every misfit, with the key to change.

    ``task`` and ``classes`` come from the data; before the data are read, from the catalogue.
    """
    if task is None:
        task, classes = _task(scenario)
    wrong_models = {name: list(_models(scenario, name)) for name in scenario.protocols}
    shared = {problem.key: problem for problems in wrong_models.values() for problem in problems}
    yield from shared.values()  # protocols without overrides share problems
    yield from _features(scenario)
    yield from _names(scenario)
    yield from _latencies(scenario)
    yield from _metrics(scenario, task)
    if scenario.target is not None:
        yield from _targets(scenario, ("target",), scenario.target, task)
    waits = scenario.timing.network.latency is not None or any(map(_takes_time, party_timings(scenario)))
    for name in scenario.protocols:
        if wrong := list(_signatures(scenario, name)):
            yield from wrong
            continue
        if not wrong_models[name]:
            yield from list(_protocol(scenario, name)) or [
                *_server(scenario, name, task, classes),
                *_end(scenario, name),
            ]
        yield from _mechanism(scenario, name)
        yield from _blinding(scenario, name)
        yield from _active(scenario, name)
        yield from _loss(scenario, name, task)
        yield from _stop(scenario, name, task, waits)
        yield from _evaluation(scenario, name)


def _task(scenario: Scenario) -> tuple[str | None, int | None]:
    """Return the task and the number of classes, if known before reading any data."""
    known = CATALOGUE.get(scenario.data.name or "")
    if scenario.data.task != "auto":
        return scenario.data.task, known.classes if known else None
    return (known.task, known.classes) if known else (None, None)


def _models(scenario: Scenario, name: str) -> Iterator[Problem]:
    loc = location_of(scenario, name, "models", "client")
    try:
        models, active = client_models(scenario, name), active_model(scenario, name)
        loc = location_of(scenario, name, "models", "aggregate")
        joined = models if active is None else (active, *models)
        scenario.models_of(name).aggregate.check([model.embedding for model in joined], 1 if active is None else 0)
    except ValueError as error:
        yield Problem.of_message(loc, str(error))
    try:
        scenario.training_of(name).client_optimizers(scenario.clients)
    except ValueError as error:
        yield Problem.of_message(location_of(scenario, name, "training", "client_optimizer"), str(error))


def _server(scenario: Scenario, name: str, task: str | None, classes: int | None) -> Iterator[Problem]:
    """Check that the models on embeddings, the server's or every party's, map them to the outputs of the task."""
    if task is None or (task == "multiclass" and classes is None):
        return
    for key, who, model, inputs in _tops(scenario, name):
        try:
            model.check(inputs, task_of(task).outputs(classes))
        except ValueError as error:
            yield Problem.of_message(location_of(scenario, name, "models", key), f"{who}{error}")
            return


def _tops(scenario: Scenario, name: str) -> Iterator[tuple[str, str, ServerModel, int]]:
    """Yield the models on embeddings: key, party, model, and the width of its inputs."""
    models, split, active = client_models(scenario, name), scenario.models_of(name), active_model(scenario, name)
    protocol = scenario.protocols[name].protocol
    clients = participants_of(protocol, scenario.clients, scenario.symbols)
    if not protocol.traits.predictors:
        joined = [*([] if active is None else [active]), *(models[client - 1] for client in clients)]
        yield "server", "", split.server, split.aggregate.width([model.embedding for model in joined])
        return
    if active is not None:
        yield "server", "", split.server, active.embedding
    key, nets = "server" if split.predictor is None else "predictor", predictors(scenario, name)
    yield from ((key, f"client {m}: ", nets[m - 1], models[m - 1].embedding) for m in clients)


def _features(scenario: Scenario) -> Iterator[Problem]:
    known = CATALOGUE.get(scenario.data.name or "")
    if known and scenario.clients + scenario.partition.active > known.features:
        server = " and the server" if scenario.partition.active else ""
        what = f"{scenario.clients} clients{server} cannot share the {known.features} features of {known.name}"
        loc = ("partition", "clients") if scenario.partition.clients else ("partition",)
        yield Problem(loc, what, f"1 to {known.features - scenario.partition.active}", "lower the number of clients")
    try:
        if scenario.data.noise is not None:
            members(scenario.data.noise.select, scenario.symbols)
    except ValueError as error:
        yield Problem.of_message(("data", "noise", "select"), str(error))


def _names(scenario: Scenario) -> Iterator[Problem]:
    taken: dict[str, str] = {}
    for name in scenario.protocols:
        other = taken.setdefault(name.casefold(), name)
        if other != name:
            what = f"{name!r} and {other!r} would share a folder where file names ignore capitals"
            yield Problem(("protocols", name), what, "names that differ in more than capitals", "rename one of them")


def _latencies(scenario: Scenario) -> Iterator[Problem]:
    matrix = scenario.timing.network.latency
    try:
        if matrix is not None:
            matrix.check(scenario.clients + 1)
    except ValueError as error:
        yield Problem.of_message(("timing", "network", "latency"), str(error))


def _signatures(scenario: Scenario, name: str) -> Iterator[Problem]:
    for each in mismatches(type(scenario.protocols[name].protocol)):
        yield Problem(("protocols", name), each.what, each.allowed, f"change its definition in {each.place}")


def _protocol(scenario: Scenario, name: str) -> Iterator[Problem]:
    try:
        scenario.protocols[name].protocol.check(check_context(scenario, name))
    except UnsuitableError as error:
        yield unsuitable(scenario, name, error)
    except ValueError as error:
        key = str(error).partition(":")[0]  # messages may begin with their key, as in "t: 9 of 8 clients"
        own = key in scenario.document.raw["protocols"][name]
        yield Problem.of_message(("protocols", name, key) if own else ("protocols", name), str(error))
    except Exception as error:
        yield broken(name, error)


def unsuitable(scenario: Scenario, name: str, error: UnsuitableError) -> Problem:
    """Make the problem of a protocol that cannot run with its codec, its blinding or its loss."""
    if error.key == "blinding":
        return Problem.of_message(("protocols", name, "blinding"), str(error))
    if error.key == "loss":
        return Problem.of_message(location_of(scenario, name, "training", "loss"), str(error))
    problem = Problem.of_message(location_of(scenario, name, "codec"), str(error))
    return replace(problem, remedy=problem.remedy or f"give {name!r} `codec: plain`")


def broken(name: str, error: Exception) -> Problem:
    """Make the problem of a protocol whose own code fails, with the place."""
    return Problem(("protocols", name), reason(error), remedy=f"mend the protocol; raised in: {origin(error)}")


def _mechanism(scenario: Scenario, name: str) -> Iterator[Problem]:
    entry = scenario.protocols[name]
    if entry.mechanism is not None and not entry.protocol.traits.mechanism:
        what = f"clients of a {entry.protocol.kind} protocol upload no embeddings that noise could protect"
        kinds = kinds_with(lambda each: each.traits.mechanism)
        yield Problem(("protocols", name, "mechanism"), what, f"in protocols of kind {kinds}", "leave it out")
    elif entry.mechanism is not None:
        yield from _accounting(scenario, name, entry.mechanism)


def _accounting(scenario: Scenario, name: str, mechanism: Mechanism) -> Iterator[Problem]:
    """Check that the noise can be calibrated, and that the guarantee holds for the batches of the protocol."""
    loc, uniform = ("protocols", name, "mechanism"), scenario.training_of(name).sampling == "uniform"
    if mechanism.secret and not uniform:
        what = "secret batches amplify privacy only if each is a new uniform sample; those of shuffled epochs are not"
        key = location_of(scenario, name, "training", "sampling")
        yield Problem(key, what, "uniform", "set training.sampling: uniform, or the mechanism's batches: known")
    elif mechanism.needs_plan and uniform and not mechanism.secret:
        what = "how often uniform batches release one sample is left to chance"
        yield Problem(loc, what, "releases, or batches: secret", "add `releases: …`, the most per sample in a run")
    elif mechanism.needs_plan and planned_rounds(scenario, name) is None:
        what = "the noise is for a whole run, and how many mini-batches a client releases in it is not known"
        allowed = "without a plan: stop.rounds or stop.epochs, steps that wait for every client, and no crashes"
        yield Problem(loc, what, allowed, "add `rounds: …`, the most mini-batches that a client may release")


def _blinding(scenario: Scenario, name: str) -> Iterator[Problem]:
    """Check that the server needs only a sum or mean of embeddings, and that the fixed point holds it."""
    entry, blinding, loc = scenario.protocols[name], scenario.blinding_of(name), ("protocols", name, "blinding")
    if blinding is None:
        return
    aggregate = scenario.models_of(name).aggregate
    if not isinstance(aggregate, MeanAggregate | SumAggregate):
        what = f"aggregate: {aggregate.kind} needs each embedding by itself, and blinding leaves only their sum"
        yield Problem(loc, what, "with aggregate: mean, sum", "change models.aggregate, or set `blinding: off`")
    if not isinstance(entry.protocol, Blindable):
        what = "the server of this protocol needs each embedding by itself, not only the sum of all"
        yield Problem.of_message(loc, what)
        return
    clients = len(participants_of(entry.protocol, scenario.clients, scenario.symbols))
    try:
        blinding.largest(clients)
    except ValueError as error:
        yield Problem.of_message(loc, str(error))
        return
    if clients == 1:
        what = "masks cancel between clients: with 1 client there are no masks, and the server sees its embeddings"
        if entry.blinding is None:
            what += f" (a protocol of kind {entry.protocol.kind} blinds by default)"
        yield Problem(loc, what, "at least 2 clients that take part", "set `blinding: off`, or more clients")


def _active(scenario: Scenario, name: str) -> Iterator[Problem]:
    entry = scenario.protocols[name]
    protocol, loc = entry.protocol, location_of(scenario, name, "models", "active")
    unused = entry.models is not None and "active" in entry.models.model_fields_set and entry.models.active is None
    if scenario.partition.active and not protocol.traits.active_features and not unused:
        users = kinds_with(lambda each: each.traits.active_features)
        what = f"protocol {name!r} of kind {protocol.kind} cannot use the features of the server"
        allowed = f"true with protocols of kind {users}; otherwise false" if users else "false"
        remedy = f"give {name!r} `models: {{active: null}}`, which leaves them unused, or leave active out"
        yield Problem(("partition", "active"), what, allowed, remedy)
    if scenario.partition.active and scenario.models_of(name).active is None and not unused:
        what = "the server holds features (partition.active), and has no model to embed them"
        yield Problem(loc, what, "a client model, such as {kind: linear, embedding: 8}", "add it")
    if scenario.models_of(name).active is not None and not scenario.partition.active:
        what = "the server has a model for features of its own, and holds none"
        yield Problem(loc, what, remedy="set partition.active: true, or leave models.active out")
    if scenario.models_of(name).predictor is not None and not protocol.traits.predictors:
        users = kinds_with(lambda each: each.traits.predictors)
        what = f"protocol {name!r} of kind {protocol.kind} has one model on all embeddings, and no prediction nets"
        remedy = "leave it out, or give it in the entries of the protocols that use it"
        key = location_of(scenario, name, "models", "predictor")
        yield Problem(key, what, f"with protocols of kind {users}", remedy)


def _loss(scenario: Scenario, name: str, task: str | None) -> Iterator[Problem]:
    if task is not None:
        try:
            task_of(task, scenario.training_of(name).loss)
        except ValueError as error:
            yield Problem.of_message(location_of(scenario, name, "training", "loss"), str(error))


def _stop(scenario: Scenario, name: str, task: str | None, waits: bool) -> Iterator[Problem]:
    stop = scenario.stop_of(name)
    allowed = ", ".join(type(stop).model_fields)
    if not stop.criteria:
        what = "no stop rule is given"
        yield Problem(location_of(scenario, name, "stop"), what, f"at least one of {allowed}", "add `time: 600 s`, say")
    if stop.criteria.keys() <= {"time"} and stop.time is not None and not waits:
        what = "time would never pass: no party, link or delay takes any"
        remedy = "give durations in `timing`, or stop by rounds, updates or epochs"
        yield Problem(location_of(scenario, name, "stop", "time"), what, remedy=remedy)
    if stop.epsilon is not None and scenario.protocols[name].mechanism is None:
        what = f"protocol {name!r} spends no ε: it has no mechanism"
        remedy = f"add one, or `stop: {{epsilon: null}}` to {name!r}"
        yield Problem(location_of(scenario, name, "stop", "epsilon"), what, "with a mechanism", remedy)
    if stop.target is not None:
        yield from _targets(scenario, location_of(scenario, name, "stop", "target"), stop.target, task)
    if task is not None:
        yield from _rules(scenario, name, task)
    views = scenario.record.views
    if views is not None and views.keep == "all" and not stop.criteria.keys() & {"rounds", "updates", "epochs"}:
        what = f"views that keep all grow with every message, and nothing limits those of protocol {name!r}"
        remedy = "add `epochs: 30`, say, beside the other stop rules, or `keep: last`"
        yield Problem(location_of(scenario, name, "stop"), what, "a limit of rounds, updates or epochs", remedy)


def _rules(scenario: Scenario, name: str, task: str) -> Iterator[Problem]:
    for key, rule in (scenario.stop_of(name).rules or {}).items():
        try:
            tried_out(rule, partial(try_rule, rule, columns_in(scenario, task)))
        except ValueError as error:
            yield Problem.of_message(location_of(scenario, name, "stop", "rules", key), str(error))


def columns_in(scenario: Scenario, task: str) -> list[str]:
    """Return the columns of metrics that every run of a scenario has."""
    splits = ("validation", "test") if scenario.data.validation_fraction else ("test",)
    names = (LOSS, *task_of(task).metric_names, *scenario.metrics)
    counts = ("time_s", "round", "updates", "bytes_up", "bytes_down", "bytes_peer", "train_loss")
    return [*counts, *(f"{split}_{name}" for split in splits for name in names)]


def _targets(scenario: Scenario, loc: Location, targets: Targets, task: str | None) -> Iterator[Problem]:
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


def _metrics(scenario: Scenario, task: str | None) -> Iterator[Problem]:
    for name, metric in scenario.metrics.items():
        if task is not None and task not in metric.tasks:
            what = f"{metric.kind} is no metric of a {task} task"
            yield Problem(("metrics", name), what, f"with tasks {', '.join(metric.tasks)}", "remove it")


def _end(scenario: Scenario, name: str) -> Iterator[Problem]:
    """Refuse a run that only updates could end and that has none. Its participants have been checked before."""
    nobody = not participants_of(scenario.protocols[name].protocol, scenario.clients, scenario.symbols)
    if nobody and scenario.stop_of(name).criteria.keys() == {"updates"}:
        what = f"protocol {name!r} would never end: no client takes part in it, so there are no updates"
        remedy = f"add `stop: {{rounds: 100}}` to {name!r}, say"
        yield Problem(location_of(scenario, name, "stop", "updates"), what, "rounds, epochs or time beside it", remedy)


def _evaluation(scenario: Scenario, name: str) -> Iterator[Problem]:
    """Check that no client can crash while it works on an evaluation that takes time."""
    protocol = scenario.protocols[name].protocol
    if not scenario.evaluate_of(name).costs_time or protocol.traits.reference:
        return
    timings, clients = party_timings(scenario), participants_of(protocol, scenario.clients, scenario.symbols)
    for client in clients:
        availability = timings[client].availability
        if not isinstance(availability, Always) and availability.interrupted == "lost":
            what = f"an evaluation that takes time cannot wait for client {client}, whose outages lose its work"
            remedy = "set evaluate.costs_time: false, or interrupted: resumed"
            yield Problem(location_of(scenario, name, "evaluate", "costs_time"), what, "false", remedy)
            return


def _takes_time(timing: PartyTiming) -> bool:
    """Return whether any activity of this party can take time."""
    if isinstance(timing.compute, ComputeModel) or not isinstance(timing.activation, Immediate):
        return True
    if timing.link.limited:
        return True
    return any(delay.expectation() > 0 for delay in (timing.compute, timing.upload_delay, timing.link.latency))


def location_of(scenario: Scenario, protocol: str, *loc: str) -> Location:
    """Locate the key ``loc`` that applies to a protocol: in its own entry, or the scenario's."""
    own: object = scenario.document.raw.get("protocols", {}).get(protocol)
    for step in loc:
        own = own.get(step) if isinstance(own, dict) else None
    return ("protocols", protocol, *loc) if own is not None else loc
