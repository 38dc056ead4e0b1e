"""Checks that need the data: whether models, batches and targets fit the files. They write nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from vflsim.learning.data.shelf import Shelf
from vflsim.learning.learners.client import ClientLearner
from vflsim.learning.learners.watch import from_outside
from vflsim.learning.models.build import least_batch, mixes_rows, seeded
from vflsim.learning.privacy.accounting import Released
from vflsim.learning.privacy.base import Mechanism
from vflsim.learning.privacy.mechanisms import PerturbedLocalEmbedding
from vflsim.protocols import Protocol, kinds_with
from vflsim.protocols.base import UnsuitableError
from vflsim.protocols.capabilities import exchanges_of
from vflsim.results.store.schema import EVENTS, metrics_schema, rounds_schema
from vflsim.scenario.checks import broken, problems_in, unsuitable
from vflsim.scenario.document import Problem, failure
from vflsim.scenario.ending_checks import columns_in
from vflsim.scenario.models import Scenario
from vflsim.scenario.resolve import ScenarioData, check_context, location_of, setting
from vflsim.setting import Setting
from vflsim.simulation.variation import variation_of
from vflsim.streams import SERVER, party_name
from vflsim.studies.checks.sizes import size_problems
from vflsim.vocabulary.base import Part
from vflsim.vocabulary.imported import tried_out
from vflsim.vocabulary.on_demand import torch
from vflsim.vocabulary.plain_yaml import Location
from vflsim.vocabulary.trial import Trial


def read_and_check(
    scenario: Scenario, workers: int = 1, *, training: bool = True, shelf: Shelf | None = None
) -> ScenarioData:
    """Load the data of ``scenario`` and check every protocol against them.

    Data that are on the ``shelf`` are not loaded again. The machine must have the memory of ``workers`` concurrent
    runs, which share their features; without ``training``, only that of features and weights. Code from
    outside is not tried out here (``studies.tryout``). Raises ``DataError``, and ``ScenarioError`` with every misfit,
    its file, line and key.
    """
    data = ScenarioData(scenario, shelf)
    loaded = {name: data.of(scenario.training_of(name)) for name in scenario.protocols}
    first = next(iter(loaded.values()))
    if problems := list(problems_in(scenario, first.task.name, first.outputs)):
        raise failure(problems, scenario.document)
    settings = {name: setting(scenario, name, loaded[name]) for name in loaded}
    problems = [*_clients(scenario, settings), *own_aggregate_problems(scenario, settings)]
    for name in loaded if not problems else ():
        problems += [*_absent_rows(scenario, name, settings[name]), *_protocol(scenario, name, settings[name])]
    problems = problems or list(size_problems(scenario, settings, workers, training))  # before any model is made
    problems = problems or list(own_codec_problems(scenario, settings))
    problems = problems or list(own_loss_problems(scenario, settings))
    problems = problems or list(own_measure_problems(scenario, first.task.name, training))
    for name in loaded if not problems else ():
        problems += [*_smallest_batch(scenario, name, settings[name]), *_mechanism(scenario, name, settings[name])]
        problems += [*_budget(scenario, name, settings[name]), *_variation(scenario, name, settings[name], training)]
    if problems:
        raise failure(problems, scenario.document)
    return data


def _variation(scenario: Scenario, name: str, resolved: Setting, training: bool) -> Iterator[Problem]:
    """Refuse runs that only one rule could end, if rounds vary so much that it never does."""
    ends = [rule for rule in scenario.stop_of(name).each() if training or rule.by != "row"]
    if len(ends) > 1 or not any(rule.asks_variation for rule in ends):
        return  # the law of a round may take longer than all other checks
    known = variation_of(scenario.protocols[name].protocol, resolved)
    for rule in ends:
        if known is not None and known.never:
            why = f"no variance is known to be finite: {known.heavy}" if known.heavy else f"it {known.waits()}"
            what, remedy = f"{rule.key} alone never ends a run of {name!r}: {why}", "add `rounds: 10000` to `stop`, say"
            yield Problem(location_of(scenario, name, "stop", rule.key), what, "with time, rounds or updates", remedy)


def _clients(scenario: Scenario, settings: Mapping[str, Setting]) -> Iterator[Problem]:
    """Check that every client's model accepts its features."""
    asked = set[tuple[Location, object]]()
    wrong: dict[tuple[Location, str], list[int]] = {}
    for name, resolved in settings.items():
        keys = _model_keys(scenario, name)
        for client, (model, shape) in enumerate(zip(resolved.models, resolved.data.shapes, strict=True), start=1):
            key = keys[client - 1]
            if (key, shape) not in asked:
                asked.add((key, shape))
                try:
                    model.check(shape)
                except ValueError as error:
                    wrong.setdefault((key, str(error)), []).append(client)
        if resolved.active_model is not None:
            try:
                resolved.active_model.check(resolved.data.active_shape)
            except ValueError as error:
                yield Problem.of_message(location_of(scenario, name, "models", "active"), f"the server: {error}")
    for (key, what), clients in wrong.items():
        yield Problem.of_message(key, f"client {clients[0]}: {what}")


def _protocol(scenario: Scenario, name: str, resolved: Setting) -> Iterator[Problem]:
    """Check that the protocol can cut its batches and run with these data."""
    protocol, key = scenario.protocols[name].protocol, location_of(scenario, name, "training", "batch")
    try:
        protocol.batch_plan().batches(resolved.data.rows, resolved.training, 0)
        key = ("protocols", name)
        protocol.check(replace(check_context(scenario, name), setting=resolved))
    except UnsuitableError as error:
        yield unsuitable(scenario, name, error)
    except ValueError as error:
        yield Problem.of_message(key, str(error))
    except Exception as error:
        yield broken(name, error)


def _absent_rows(scenario: Scenario, name: str, resolved: Setting) -> Iterator[Problem]:
    """Check that a protocol can train although parties lack rows."""
    protocol = scenario.protocols[name].protocol
    if resolved.present is None:
        return
    loc, remedy = ("data", "align"), f"set `align: inner`, or leave {name!r} out"
    if why := protocol.traits.refuses_absent_rows:
        kinds = kinds_with(lambda each: not each.traits.refuses_absent_rows)
        what = f"parties lack rows, and protocol {name!r} of kind {protocol.kind} cannot do without: {why}"
        yield Problem(loc, what, f"inner; outer with protocols of kind {kinds}", remedy)
    elif resolved.blinding is not None:
        what = f"parties lack rows, and the masks of {name!r} cancel in the sum over all clients alone"
        yield Problem(loc, what, "inner; outer without blinding", remedy)
    elif (mixing := _who_mixes_rows(resolved, resolved.joined)) is not None:
        what = f"parties lack rows, and in the model of {party_name(mixing)} a row changes the embeddings of others"
        yield Problem(
            loc, what, "inner; outer with models that treat each row by itself: no batch normalisation", remedy
        )


def _who_mixes_rows(resolved: Setting, parties: Iterable[int]) -> int | None:
    """Return the first of ``parties`` whose model lets a row change the embeddings of other rows."""
    asked = set[object]()
    for party in parties:
        model, shape = resolved.embedding_model_of(party), resolved.feature_shape_of(party)
        if (id(model), shape) in asked or model.chain(shape) is not None:
            continue
        asked.add((id(model), shape))
        if mixes_rows(seeded(partial(model.build, shape), 0, resolved.dtype), shape):
            return party
    return None


def _smallest_batch(scenario: Scenario, name: str, resolved: Setting) -> Iterator[Problem]:
    """Check that every batch of a protocol is large enough for its models."""
    training, rows = resolved.training, resolved.data.rows
    key = location_of(scenario, name, "training", "batch")
    protocol = scenario.protocols[name].protocol
    few = protocol.batch_plan().batches(rows, training, 0).smallest < 2
    for who in _who_needs_two_rows(resolved, protocol.traits.predictors) if few else ():
        what = f"{who} cannot train on one row (batch normalisation?), and "
        if resolved.batch == 1:
            yield Problem(key, f"{what}every batch has one", "at least 2", "raise batch, or change the model")
        else:
            what += f"the last batch of {rows:,} training rows in batches of {training.batch} has one"
            remedy = "set last_batch: drop, or choose a batch that leaves another rest"
            yield Problem((*key[:-1], "last_batch"), what, "at least 2 rows", remedy)


def _mechanism(scenario: Scenario, name: str, resolved: Setting) -> Iterator[Problem]:
    """Check that bounding one row bounds a sample's whole influence on embeddings."""
    if resolved.mechanism and (client := _who_mixes_rows(resolved, resolved.clients)) is not None:
        what = f"in the model of client {client} a sample changes the embeddings of others in its batch, too"
        allowed = "models that treat each row by itself: no batch normalisation"
        yield Problem(("protocols", name, "mechanism"), what, allowed, "change the model, or leave out the mechanism")
        return
    if isinstance(resolved.mechanism, PerturbedLocalEmbedding) or (
        resolved.mechanism and resolved.mechanism.inner_noise
    ):
        yield from _inner_layers(scenario, name, resolved, resolved.mechanism)


def _inner_layers(scenario: Scenario, name: str, resolved: Setting, mechanism: Mechanism) -> Iterator[Problem]:
    """Check that every client's network has layers that noise can be added to, and that the noise is given."""
    loc = ("protocols", name, "mechanism")
    noise = mechanism.layer_noise if isinstance(mechanism, PerturbedLocalEmbedding) else mechanism.inner_noise
    for client, learner in scenario.protocols[name].protocol.learners(resolved, 0).clients.items():
        if not isinstance(learner, ClientLearner):
            what = "the clients of this protocol have learners of their own, which add no noise inside a network"
            yield Problem(loc, what, remedy="choose the mechanism gaussian")
            return
        try:
            inner = learner.inner_layers
        except ValueError as error:
            yield Problem.of_message(loc, f"client {client}: {error}")
            return
        if inner and noise is None:
            what = f"client {client} has {len(inner)} layers before its upload, and no noise is given for them"
            yield Problem(loc, what, remedy="add `layer_noise: …`, the standard deviation c_l of VAFL Eq. 11b")
            return


def _budget(scenario: Scenario, name: str, resolved: Setting) -> Iterator[Problem]:
    """Check that batches are as secret as claimed, and that the first release does not exceed the budget."""
    mechanism, stop = resolved.mechanism, scenario.stop_of(name)
    if mechanism is None:
        return
    sequence = scenario.protocols[name].protocol.batch_plan().batches(resolved.data.rows, resolved.training, 0)
    if mechanism.secret and not sequence.uniform:
        what = "the protocol draws batches of its own, which are no uniform samples"
        yield Problem(("protocols", name, "mechanism", "batches"), what, "known", "set batches: known")
    first = mechanism.spent(Released(1, ((sequence.size / resolved.data.rows, 1, 1),)))
    if stop.epsilon is not None and first > stop.epsilon:
        what = f"one mini-batch spends ε = {first:.4g}, so nothing could be learnt within {stop.epsilon:g}"
        yield Problem(location_of(scenario, name, "stop", "epsilon"), what, remedy="allow more, or add more noise")


def _who_needs_two_rows(resolved: Setting, predictors: bool) -> Iterator[str]:
    """Yield the parties that cannot train on one row, the first of each sort. Models that are alike are asked once."""
    asked = set[object]()
    for party, (top, inputs) in resolved.tops(predictors).items():
        if (id(top), inputs) in asked or top.chain(inputs, resolved.data.outputs) is not None:
            continue
        asked.add((id(top), inputs))
        draft = partial(top.build, inputs, resolved.data.outputs)
        if least_batch(seeded(draft, 0, resolved.dtype), (inputs,)) > 1:
            yield f"the prediction net of client {party}" if party else "the server's model"
            break
    if (active := resolved.active_model) is not None and active.chain(resolved.data.active_shape) is None:
        shape = resolved.data.active_shape
        if least_batch(seeded(partial(active.build, shape), 0, resolved.dtype), shape) > 1:
            yield "the server's embedding model"
    for client in resolved.clients:
        model, shape = resolved.models[client - 1], resolved.data.shapes[client - 1]
        if (id(model), shape) in asked or model.chain(shape) is not None:
            continue
        asked.add((id(model), shape))
        if least_batch(seeded(partial(model.build, shape), 0, resolved.dtype), shape) > 1:
            yield f"the model of client {client}"
            return


def _model_keys(scenario: Scenario, name: str) -> list[Location]:
    """Return the key of every client's model under a protocol: that of the last entry that selects it."""
    key = location_of(scenario, name, "models", "client")
    keys = [key] * scenario.clients
    written: Any = scenario.document.raw
    for step in key:
        written = written[step]
    if isinstance(written, list):
        for position, entry in enumerate(scenario.models_of(name).client):
            for client in entry.clients:
                keys[client - 1] = (*key, position)
    return keys


# --- parts of users' own ----------------------------------------------------------------------------------------------


ELEMENTS = 2**18
"""Tensors with more elements are tried with fewer rows: each is encoded some sixty times."""


def own_codec_problems(scenario: Scenario, settings: Mapping[str, Setting]) -> Iterator[Problem]:
    """Try out the codecs from outside on what protocols send in a round, of full and of last batches."""
    for name, resolved in settings.items():
        for receiver in (SERVER, *resolved.clients[:1]):
            codec = resolved.codec.towards(receiver)
            if from_outside(codec):
                shapes = sorted(set(_shapes(scenario.protocols[name].protocol, resolved, receiver)))
                contract = partial(codec._contract_at, shapes=shapes, dtypes=(resolved.dtype,))
                yield from _problems(location_of(scenario, name, "codec"), codec, contract)


def own_aggregate_problems(scenario: Scenario, settings: Mapping[str, Setting]) -> Iterator[Problem]:
    """Try out users' own aggregates on as many embeddings as are joined."""
    for name, resolved in settings.items():
        if from_outside(resolved.aggregate):
            contract = partial(resolved.bound_aggregate._contract_at, widths=resolved.joined_widths)
            yield from _problems(location_of(scenario, name, "models", "aggregate"), resolved.aggregate, contract)


def _problems(where: Location, part: Part, contract: Callable[[Trial], None]) -> Iterator[Problem]:
    try:
        tried_out(part, contract)
    except ValueError as error:
        yield Problem.of_message(where, str(error))


def _shapes(protocol: Protocol, resolved: Setting, receiver: int) -> Iterator[tuple[int, ...]]:
    """Yield the shapes of the tensors that go to the server, or to clients."""
    batch, exchanges = resolved.batch, exchanges_of(protocol, resolved)
    for rows in {batch, resolved.data.rows % batch or batch}:
        for client in resolved.clients:
            exchange = exchanges.of(client, rows)
            for shape in (exchange.up if receiver == SERVER else exchange.down).values():
                if shape and 0 not in shape:
                    row = torch.Size(shape[1:]).numel()
                    yield (min(shape[0], max(1, ELEMENTS // row)), *shape[1:])


def own_loss_problems(scenario: Scenario, settings: Mapping[str, Setting]) -> Iterator[Problem]:
    """Yield the mistakes of users' own losses that a few rows do not show; the first protocol that has each."""
    known = set[object]()
    for name, resolved in settings.items():
        training, data = scenario.training_of(name), resolved.data
        batches = scenario.protocols[name].protocol.batch_plan().batches(data.rows, training, 0)
        rows = {training.batch_of(data.rows), batches.smallest, *(len(each) for each in data.labels.values())} - {0}
        key = training.loss, training.dtype, frozenset(rows)
        if not from_outside(training.loss) or key in known:
            continue
        known.add(key)
        contract = partial(
            training.loss._contract_at,
            task=data.task.name,
            outputs=data.outputs,
            dtype=training.torch_dtype,
            rows=sorted(rows),
        )
        yield from _problems(location_of(scenario, name, "training", "loss"), training.loss, contract)


def own_measure_problems(scenario: Scenario, task: str, training: bool) -> Iterator[Problem]:
    """Yield the mistakes in the measures that a scenario names. Without ``training`` runs have no scores."""
    scores = columns_in(scenario, task) if training else ()
    columns = {"metrics": metrics_schema(scores).names, "rounds": rounds_schema(()).names, "events": EVENTS.names}
    for name, measure in scenario.measures.items():
        yield from _problems(("measures", name), measure, partial(measure._contract_at, columns=columns))
