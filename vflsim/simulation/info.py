"""The facts about a run that follow from its scenario and its end."""

from __future__ import annotations

import platform
from functools import cache
from importlib.metadata import version
from typing import Any, Literal

from vflsim.errors import NonFiniteError, VflsimError
from vflsim.protocols.defaults import participants_of, run_facts
from vflsim.results.facts import NetworkFacts
from vflsim.results.store.schema import RunInfo
from vflsim.scenario.depends import run_part
from vflsim.scenario.models import Scenario
from vflsim.scenario.own_modules import packages_of
from vflsim.scenario.resolve import party_timings


def run_info(scenario: Scenario, name: str, seed: int, error: VflsimError | None, **facts: Any) -> RunInfo:
    """Assemble ``run.json`` of protocol ``name``; ``facts`` are the fields of the run."""
    protocol, timing = scenario.protocols[name].protocol, scenario.timing
    links = [each.link for each in party_timings(scenario)]
    participants = tuple(participants_of(protocol, scenario.clients, scenario.symbols))
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
