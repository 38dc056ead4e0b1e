"""The facts about a run that follow from its scenario and its end."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import version
from typing import Any, Literal

from vflsim.errors import NonFiniteError, VflsimError
from vflsim.learning.learners.party import PartyLearner
from vflsim.learning.optimizers import Optimizer
from vflsim.protocols.base import Protocol
from vflsim.protocols.capabilities import local_steps_of, run_facts
from vflsim.results.facts import Conditions, NetworkFacts
from vflsim.results.store.pages import RunInfo
from vflsim.results.store.schema import RunTables
from vflsim.scenario.models import Scenario
from vflsim.scenario.own_modules import packages_of
from vflsim.scenario.resolve import party_timings, run_part
from vflsim.setting import Setting
from vflsim.streams import SERVER
from vflsim.vocabulary.measure import FinishedRun, Measure, MeasuredValue


def run_info(scenario: Scenario, name: str, seed: int, error: VflsimError | None, **facts: Any) -> RunInfo:
    """Assemble ``run.json`` of protocol ``name``; ``facts`` are the fields of the run."""
    protocol, timing = scenario.protocols[name].protocol, scenario.timing
    links = [each.link for each in party_timings(scenario)]
    participants = tuple(protocol.participants(scenario.clients, scenario.symbols))
    known = {
        "scenario": scenario.name,
        "protocol": name,
        "seed": seed,
        "status": _status(error),
        "error": None if error is None else str(error),
        "reproducible": scenario.stop_of(name).wall_clock is None,
        "versions": versions(),
        "installed": packages_of(run_part(scenario, name)),
        "participants": participants,
        "metrics": scenario.metric_facts,
        "network": NetworkFacts.of(timing.network, links, timing.transport),
        **run_facts(protocol),
    }
    return RunInfo(**(known | facts))


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that affect results."""
    return dict(_versions())


@cache  # reading them takes as long as a short run
def _versions() -> dict[str, str]:
    packages = ("vflsim", "torch", "numpy", "simpy", "scipy")
    return {"python": platform.python_version(), **{package: version(package) for package in packages}}


def _status(error: VflsimError | None) -> Literal["finished", "diverged", "failed"]:
    if error is None:
        return "finished"
    return "diverged" if isinstance(error, NonFiniteError) else "failed"


# --- conditions -------------------------------------------------------------------------------------------------------


def conditions_of(
    protocol: Protocol, setting: Setting, server: PartyLearner, clients: Iterable[PartyLearner]
) -> Conditions:
    """Return the features, labels, optimisers and local steps of a protocol with these learners of its parties."""
    columns = setting.data.columns
    joined = sum(
        columns[0].start if party == SERVER else columns[party - 1].stop - columns[party - 1].start
        for party in setting.joined
    )
    return Conditions(
        features=joined,
        features_in_data=setting.data.joint["train"].shape[1],
        labels="server and clients" if protocol.labels_at_clients else "server",
        client_optimizers=_rules(clients),
        server_optimizers=_rules([server]),
        local_steps=local_steps_of(protocol, setting),
        party_dropout=setting.training.party_dropout,
    )


def _rules(learners: Iterable[PartyLearner]) -> tuple[str, ...]:
    """Return the different update rules of the learners' weights in words, in the order in which they appear."""
    rules = (model.rule for learner in learners for model in learner.models.values() if model.parameters)
    return tuple(dict.fromkeys(map(_in_words, rules)))


def _in_words(rule: Optimizer) -> str:
    """Write an update rule: its kind, its learning rate, and what else was set: ``sgd 0.1, momentum 0.9``."""
    rest = rule.model_dump(mode="json", exclude_defaults=True, exclude={"kind", "lr"})
    return ", ".join([f"{rule.kind} {rule.lr:g}", *(f"{key} {value}" for key, value in rest.items())])


def measured(
    measures: Mapping[str, Measure], protocol: str, seed: int, tables: RunTables, error: VflsimError | None
) -> tuple[dict[str, MeasuredValue], VflsimError | None]:
    """Return what ``run.json`` keeps of each measure, and the run's error: its own, or that of a measure.

    A run that failed has no measures.
    """
    if error is not None or not measures:
        return {}, error
    frames = {name: table.to_pandas() for name, table in tables.named().items()}
    run = FinishedRun(protocol, seed, frames["metrics"], frames.get("rounds"), frames.get("events"))
    try:
        return {name: measure.measured(run) for name, measure in measures.items()}, None
    except VflsimError as failure:
        return {}, failure
