"""Small scenarios on real data, and ways to run them in either world. Imported by the conftest files that need it."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from functools import cache
from typing import Any

import pandas as pd
import torch

from vflsim.learning.deferred import DeferredExecutor
from vflsim.learning.executor import ImmediateExecutor
from vflsim.results.verify import verify_run
from vflsim.runner.build import LoadedData
from vflsim.runner.run import Outcome, run_protocol
from vflsim.scenario import load
from vflsim.scenario.models import Scenario
from vflsim.world.kernel import World
from vflsim.world.realtime import RealTimeWorld
from vflsim.world.virtual import VirtualWorld

WORLDS = ("virtual", "real")

BASE: dict[str, Any] = {
    "name": "tiny",
    "data": {"name": "digits", "train_rows": 90, "test_fraction": 0.1},
    "partition": {"clients": 4, "by": "columns"},
    "models": {
        "client": {"kind": "linear", "embedding": 6},
        "aggregate": "mean",
        "server": {"kind": "mlp", "hidden": [8]},
    },
    "training": {
        "batch": 20,
        "client_optimizer": {"kind": "sgd", "lr": 0.2},
        "server_optimizer": {"kind": "sgd", "lr": 0.1},
        "dtype": "float64",
    },
    "timing": {
        "server": {"compute": "1 ms", "link": {"up": "100 Mbps", "down": "100 Mbps", "latency": "1 ms"}},
        "clients": [
            {"select": "all", "compute": "2 ms", "link": {"up": "50 Mbps", "down": "50 Mbps", "latency": "1 ms"}},
            {"select": "2..N", "upload_delay": {"kind": "exponential", "mean": "(5*i) ms"}},
        ],
    },
    "stop": {"rounds": 12},
    "evaluate": {"every": "4 rounds"},
}

RANDOM_TIMING: dict[str, Any] = {
    "server": {
        "compute": {"kind": "uniform", "low": "1 ms", "high": "2 ms"},
        "link": {"up": "100 Mbps", "down": "100 Mbps", "latency": {"kind": "uniform", "low": "1 ms", "high": "3 ms"}},
    },
    "clients": [
        {
            "select": "all",
            "compute": {"kind": "lognormal", "mean": "2 ms", "sigma": 0.5},
            "link": {
                "up": "20 Mbps",
                "down": "20 Mbps",
                "latency": {"kind": "shifted_exponential", "shift": "1 ms", "mean": "1 ms"},
            },
            "upload_delay": {"kind": "exponential", "mean": "(3*m) ms"},
        },
    ],
}
"""Everything random: compute, upload delay, latency; limited bandwidth."""


def raw(protocols: Mapping[str, Any] | str = "synchronous", **changes: Any) -> dict[str, Any]:
    """A scenario as a mapping: ``BASE`` with whole sections replaced, or (``section__key``) single keys of them."""
    said = deepcopy(BASE)
    said["protocols"] = {protocols: {"kind": protocols}} if isinstance(protocols, str) else dict(protocols)
    for key, value in changes.items():
        section, _, inner = key.partition("__")
        if inner:
            said.setdefault(section, {})[inner] = value
        else:
            said[section] = value
    return said


def tiny(protocols: Mapping[str, Any] | str = "synchronous", **changes: Any) -> Scenario:
    """``raw`` as a scenario."""
    return load(raw(protocols, **changes))


def data_of(scenario: Scenario, name: str | None = None) -> LoadedData:
    """The scenario's data as tensors, remembered across tests."""
    training = scenario.training_of(name or next(iter(scenario.protocols)))
    return _loaded(scenario.data.model_dump_json(), scenario.partition.model_dump_json(), training.model_dump_json())


@cache
def _loaded(data: str, partition: str, training: str) -> LoadedData:
    from vflsim.learning.data import load as load_data
    from vflsim.learning.data.partition import Partition
    from vflsim.learning.data.spec import Data
    from vflsim.learning.training import Training

    spec = Training.model_validate_json(training)
    loaded = load_data(Data.model_validate_json(data), Partition.model_validate_json(partition), spec.dtype)
    return LoadedData.of(loaded, spec)


def world(kind: str, speed: float = 1.0) -> World:
    """A virtual world with deferred work, or a real one with immediate work."""
    return VirtualWorld(DeferredExecutor()) if kind == "virtual" else RealTimeWorld(ImmediateExecutor(), speed)


def run(
    scenario: Scenario,
    name: str | None = None,
    seed: int = 0,
    *,
    kind: str = "virtual",
    speed: float = 1.0,
    **more: Any,
) -> Outcome:
    """One finished run of the scenario's first protocol (or ``name``): without error, and with all invariants kept."""
    name = name or next(iter(scenario.protocols))
    if kind == "real":
        more["world"] = world(kind, speed)
    outcome = run_protocol(scenario, name, seed, data_of(scenario, name), **more)
    if outcome.error is not None:
        raise outcome.error
    assert outcome.info.status == "finished"
    assert verify_run(outcome.tables, outcome.info) == []
    return outcome


def metrics(outcome: Outcome) -> pd.DataFrame:
    """The metrics of a run."""
    return outcome.tables.metrics.to_pandas()


def rounds(outcome: Outcome) -> pd.DataFrame:
    """The rounds of a run."""
    assert outcome.tables.rounds is not None
    return outcome.tables.rounds.to_pandas()


def events(outcome: Outcome, kind: str | None = None, party: str | None = None) -> pd.DataFrame:
    """The events of a run, or those of a kind and of a party."""
    assert outcome.tables.events is not None
    frame = outcome.tables.events.to_pandas()
    frame = frame if kind is None else frame[frame["kind"] == kind]
    return frame if party is None else frame[frame["party"] == party]


def same_weights(one: Outcome, other: Outcome) -> bool:
    """Whether two runs ended with bit-identical weights of every party."""
    assert one.weights.keys() == other.weights.keys()
    return all(torch.equal(tensor, other.weights[key]) for key, tensor in one.weights.items())
