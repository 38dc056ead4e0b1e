"""Obstacles to training by a program, each with its key and the remedy."""

from __future__ import annotations

from collections.abc import Iterator

from vflsim.learning.batching.kernels import KERNELS
from vflsim.learning.models.server import ModuleServer
from vflsim.learning.optimizers import STACKED
from vflsim.protocols.base import Protocol
from vflsim.protocols.capabilities import vectorised_by_hand
from vflsim.scenario.document import Problem
from vflsim.scenario.models import Scenario
from vflsim.scenario.resolve import client_models, location_of


def obstacles_to_program(scenario: Scenario, name: str) -> list[Problem]:
    """List the obstacles to training runs of protocol ``name`` as programs.

    ``NoProgramError`` tells the others, for which data, models, and the operations of a run have to be there.
    """
    protocol, loc = scenario.protocols[name].protocol, ("protocols", name)
    kind, problems = type(protocol), list[Problem]()
    if scenario.record.views is not None:
        problems.append(Problem(("record", "views"), "a program sends no messages to record", "none", "leave it out"))
    plain = (kind.learners, kind.evaluate, kind.answer_evaluation) == (
        Protocol.learners, Protocol.evaluate, Protocol.answer_evaluation,
    )  # fmt: skip
    if not plain or protocol.traits.reference:
        what = f"{protocol.kind} has rounds or learners of its own, which have no program"
        problems.append(Problem(loc, what, "clients that embed and step, and a server that steps"))
    if scenario.codec_of(name).kind != "plain":
        problems.append(Problem((*loc, "codec"), "programs send values as they are", "plain", "leave it out"))
    for key, there in (("blinding", scenario.blinding_of(name)), ("mechanism", scenario.protocols[name].mechanism)):
        if there is not None:
            problems.append(Problem((*loc, key), "programs send values as they are", "none", "leave it out"))
    return [*problems, *_learning(scenario, name), *_course(scenario, name)]


def obstacles_to_arrays(scenario: Scenario, name: str) -> list[Problem]:
    """List the obstacles to timing training runs, which have a program, by arrays."""
    by_hand = vectorised_by_hand(scenario.protocols[name].protocol)
    if by_hand is None or by_hand.trains:
        return []
    what = f"{scenario.protocols[name].protocol.kind} with these keys trains along events alone"
    return [Problem(("protocols", name), what, "rounds that wait for all clients, or own pace")]


def _learning(scenario: Scenario, name: str) -> Iterator[Problem]:
    """Yield models, rules and rows that no program knows."""
    models, training = client_models(scenario, name), scenario.training_of(name)
    for model in {type(model): model for model in models}.values():
        if isinstance(why := KERNELS[type(model)], str):
            yield Problem(("models", "client"), f"{model.kind}: {why}", "linear, polynomial, mlp")
    for rule in {type(rule): rule for rule in training.client_optimizers(len(models))}.values():
        if type(rule) not in STACKED:
            yield Problem(("training", "client_optimizer"), f"{rule.kind}: no stack has it", "sgd, adam")
    if isinstance(server := scenario.models_of(name).server, ModuleServer):
        what = f"{server.kind}: code from outside may do anything in a step"
        yield Problem(("models", "server"), what, "mlp, linear")
    if training.party_dropout:
        place = location_of(scenario, name, "training", "dropout")
        yield Problem(place, "the server leaves parties out of steps", "none", "leave it out, or `--path event`")
    if scenario.data.align == "outer":
        yield Problem(("data", "align"), "parties may lack rows", "inner, exact")
    if scenario.data.categorical and scenario.data.encoding == "codes":
        yield Problem(("data", "encoding"), "codes: no stack reads codes of categories", "one_hot")


def _course(scenario: Scenario, name: str) -> Iterator[Problem]:
    """Yield ends and evaluations that depend on what is learnt, or on how long that takes."""
    stop, evaluate = scenario.stop_of(name), scenario.evaluate_of(name)
    for rule in stop.each():
        if rule.by in ("row", "release") or rule.key == "wall_clock":
            what = f"stop.{rule.key} ends a run by what it learns, and a program needs to know its end first"
            place = location_of(scenario, name, "stop", rule.key)
            yield Problem(place, what, "time, rounds, updates, epochs, precision", "leave it out")
    for key, asked in (("costs_time", evaluate.costs_time), ("deadline", evaluate.deadline is not None)):
        if asked:
            place = location_of(scenario, name, "evaluate", key)
            yield Problem(place, "evaluations that take part in the run's time have no program", "none", "leave it out")
