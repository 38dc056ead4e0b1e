"""Checks that need the data: whether models, batches and targets fit the files. They write nothing."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from vflsim.errors import ProtocolError
from vflsim.files import machine_memory
from vflsim.learning.data.shelf import Shelf, can_share
from vflsim.learning.learners.client import ClientLearner
from vflsim.learning.models.build import least_batch, mixes_rows, seeded
from vflsim.learning.privacy.accounting import Released
from vflsim.learning.privacy.base import Mechanism
from vflsim.learning.privacy.mechanisms import PerturbedLocalEmbedding
from vflsim.protocols import kinds_with
from vflsim.protocols.base import UnsuitableError
from vflsim.scenario.checks import broken, problems_in, unsuitable
from vflsim.scenario.document import Problem, failure
from vflsim.scenario.models import Scenario
from vflsim.scenario.resolve import ScenarioData, check_context, location_of, setting
from vflsim.setting import Setting
from vflsim.simulation.variation import variation_of
from vflsim.streams import party_name
from vflsim.studies.checks.own_parts import (
    own_aggregate_problems,
    own_codec_problems,
    own_loss_problems,
    own_measure_problems,
)
from vflsim.studies.checks.sizes import Size, run_size
from vflsim.vocabulary.amounts import quantity
from vflsim.vocabulary.plain_yaml import Location


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
    problems = problems or list(_sizes(scenario, settings, workers, training))  # before any model is made
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


def _sizes(scenario: Scenario, settings: Mapping[str, Setting], workers: int, training: bool) -> Iterator[Problem]:
    """Check that this machine can hold the runs that go on at a time."""
    sizes: dict[str, Size] = {}
    for name, resolved in settings.items():
        try:
            sizes[name] = run_size(scenario, name, resolved)
        except ValueError as error:
            remedy = "make embeddings or hidden layers narrower"
            yield Problem(("models",), str(error), "models that fit into memory", remedy)
            return
        except ProtocolError as error:  # the learners have the wrong type
            yield Problem(("protocols", name), error.what, error.allowed, error.remedy or "mend the protocol")
            return
        except Exception as error:
            yield broken(name, error)
            return
    needed = {name: size.bytes if training else size.held_bytes for name, size in sizes.items()}
    there, largest = machine_memory(), max(needed, key=needed.__getitem__)
    allowed = f"up to {quantity(there, 'B')}, the memory of this machine"
    at_a_time = min(workers, len(settings) * len(scenario.seeds))
    if needed[largest] > there:
        remedy = "make embeddings or hidden layers narrower, choose a smaller training.batch, or use fewer rows"
        if 2 * sizes[largest].parts["views"] > there:
            remedy = "keep views of fewer rows (record.views.rows), end earlier, or write `keep: last`"
        takes = f"{largest} needs about {quantity(needed[largest], 'B')} ({sizes[largest].told})"
        yield Problem(("models",), takes, allowed, remedy)
        return
    data = {id(each.data.joint["train"]): each.data.nbytes for each in settings.values()}
    shared = sum(data.values()) if can_share() else 0  # workers map the same features and labels
    rest = needed[largest] - (sizes[largest].parts["features"] if can_share() else 0)
    if at_a_time > 1 and shared + at_a_time * rest > there:
        total, most = quantity(shared + at_a_time * rest, "B"), max(1, int((there - shared) // rest))
        once = "; features once" if shared else ""
        takes = f"{at_a_time} runs of {largest} at a time need about {total} ({sizes[largest].told} each{once})"
        yield Problem(("models",), takes, allowed, f"give at most --workers {most}")


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
