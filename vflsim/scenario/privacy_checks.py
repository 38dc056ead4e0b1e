"""Checks at load time of mechanisms and of blinding."""

from __future__ import annotations

from collections.abc import Iterator

from vflsim.learning.models.aggregates import MeanAggregate, SumAggregate
from vflsim.learning.privacy.base import Mechanism
from vflsim.protocols import kinds_with
from vflsim.protocols.capabilities import Blindable
from vflsim.protocols.defaults import participants_of
from vflsim.scenario.models import Scenario
from vflsim.scenario.problems import Problem
from vflsim.scenario.resolve import (
    location_of,
    planned_rounds,
)


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
