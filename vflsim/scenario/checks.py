"""Checks at load time of whether the parts of a scenario fit together."""

from collections.abc import Iterator
from dataclasses import replace

from vflsim.learning.data.catalogue import CATALOGUE
from vflsim.learning.models.aggregates import MeanAggregate, SumAggregate
from vflsim.learning.models.server import ServerModel
from vflsim.learning.privacy.base import Mechanism
from vflsim.learning.tasks import task_of
from vflsim.party_names import names_of
from vflsim.protocols import kinds_with
from vflsim.protocols.base import UnsuitableError
from vflsim.protocols.hook_checks import mismatches
from vflsim.scenario.document import Problem
from vflsim.scenario.ending_checks import (
    budget_problems,
    deadline_problems,
    end_problems,
    evaluation_problems,
    metric_problems,
    stop_problems,
    takes_time,
    target_problems,
)
from vflsim.scenario.models import Scenario
from vflsim.scenario.resolve import (
    active_model,
    check_context,
    client_models,
    location_of,
    party_timings,
    planned_rounds,
    predictors,
)
from vflsim.vocabulary.expressions import members
from vflsim.vocabulary.imported import origin, reason
from vflsim.world.networks import Fluid


def mechanism_problems(scenario: Scenario, name: str) -> Iterator[Problem]:
    """Check that a protocol's uploads can have a mechanism, and that its guarantee holds."""
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


def blinding_problems(scenario: Scenario, name: str) -> Iterator[Problem]:
    """Check that the server needs only a sum or mean of embeddings, and that the fixed point holds it."""
    entry, blinding, loc = scenario.protocols[name], scenario.blinding_of(name), ("protocols", name, "blinding")
    if blinding is None:
        return
    aggregate = scenario.models_of(name).aggregate
    if not isinstance(aggregate, MeanAggregate | SumAggregate):
        what = f"aggregate: {aggregate.kind} needs each embedding by itself, and blinding leaves only their sum"
        yield Problem(loc, what, "with aggregate: mean, sum", "change models.aggregate, or set `blinding: off`")
    if not entry.protocol.traits.blindable:
        what = "the server of this protocol needs each embedding by itself, not only the sum of all"
        yield Problem.of_message(loc, what)
        return
    clients = len(entry.protocol.participants(scenario.clients, scenario.symbols))
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
    yield from _slots(scenario)
    yield from metric_problems(scenario, task)
    if scenario.target is not None:
        yield from target_problems(scenario, ("target",), scenario.target, task)
    yield from budget_problems(scenario)
    waits = scenario.timing.network.latency is not None or any(map(takes_time, party_timings(scenario)))
    for name in scenario.protocols:
        if wrong := list(_signatures(scenario, name)):
            yield from wrong
            continue
        if not wrong_models[name]:
            yield from list(_protocol(scenario, name)) or [
                *_server(scenario, name, task, classes),
                *end_problems(scenario, name),
            ]
        yield from mechanism_problems(scenario, name)
        yield from blinding_problems(scenario, name)
        yield from _dropout(scenario, name)
        yield from _active(scenario, name)
        yield from _loss(scenario, name, task)
        yield from stop_problems(scenario, name, task, waits)
        yield from evaluation_problems(scenario, name)
        yield from deadline_problems(scenario, name)


def _dropout(scenario: Scenario, name: str) -> Iterator[Problem]:
    """Check that the server's steps can do without a party's embeddings."""
    if not scenario.training_of(name).party_dropout:
        return
    kind, loc = scenario.protocols[name].protocol, location_of(scenario, name, "training", "dropout")
    remedy = f"set `protocols.{name}.training.dropout: {{party: 0}}`"
    if not kind.traits.party_dropout:
        what = f"protocol {name!r} of kind {kind.kind} cannot leave parties out of its steps"
        yield Problem(loc, what, kinds_with(lambda each: each.traits.party_dropout), remedy)
    elif scenario.blinding_of(name) is not None:
        what = f"the masks of {name!r} cancel in the sum over all clients alone"
        yield Problem(loc, what, "dropout without blinding", remedy)


def _slots(scenario: Scenario) -> Iterator[Problem]:
    timing = scenario.timing
    if timing.server.concurrency is not None and not isinstance(timing.transport, Fluid):
        what = "each window of a connection would wait for a slot of its own (timing.server.concurrency)"
        yield Problem(("timing", "transport"), what, "fluid, or a server without concurrency", "leave one of them out")


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
    clients = protocol.participants(scenario.clients, scenario.symbols)
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
    for name in names_of(scenario.document.raw).values():
        if name in scenario.constants:
            what = f"{name!r} is a constant, too ({scenario.constants[name]:g}), and a selection could mean either"
            yield Problem(("partition", "names"), what, "names that no constant has", "rename one of them")


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
        is_key = key in scenario.document.raw["protocols"][name]
        yield Problem.of_message(("protocols", name, key) if is_key else ("protocols", name), str(error))
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
