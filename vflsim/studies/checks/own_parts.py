"""Checks of users' own codecs, losses and measures on the shapes, rows and columns of a scenario."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from vflsim.learning.learners.watch import from_outside
from vflsim.protocols import Protocol
from vflsim.protocols.capabilities import exchanges_of
from vflsim.results.store.schema import EVENTS, metrics_schema, rounds_schema
from vflsim.scenario.document import Problem
from vflsim.scenario.ending_checks import columns_in
from vflsim.scenario.models import Scenario
from vflsim.scenario.resolve import location_of
from vflsim.setting import Setting
from vflsim.streams import SERVER
from vflsim.vocabulary.base import Part
from vflsim.vocabulary.imported import tried_out
from vflsim.vocabulary.on_demand import torch
from vflsim.vocabulary.plain_yaml import Location
from vflsim.vocabulary.trial import Trial

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
