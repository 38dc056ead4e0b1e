"""Small scenarios on real data, and ways to run them in either world. Imported by the conftest files that need it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from patient_loop import PatientWorld

from vflsim.learning.data import load as load_data
from vflsim.learning.data.loaded_data import LoadedData
from vflsim.learning.execution.deferred_executor import DeferredExecutor
from vflsim.learning.execution.operations import ImmediateExecutor
from vflsim.protocols.fedvs import FedVS
from vflsim.protocols.fedvs.keys import coding_plan
from vflsim.protocols.fedvs.plan import CodingPlan
from vflsim.protocols.fedvs.stages import CodedStages
from vflsim.results.verify import verify_run
from vflsim.scenario import load
from vflsim.scenario.models import Scenario
from vflsim.scenario.resolve import setting
from vflsim.simulation.build import Parties, parties as make_parties
from vflsim.simulation.run import Outcome, run_protocol
from vflsim.vocabulary.execution_options import Execution
from vflsim.world.kernel import World
from vflsim.world.virtual import VirtualWorld

WORLDS = ("virtual", "real")
EAGER = Execution(eager=True)
"""One module per client, nothing batched: what real time always does."""

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
    "stop": {"rounds": 8},
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


NOISY: dict[str, Any] = {
    "data": {"name": "digits", "train_rows": 90, "test_fraction": 0.1, "validation_fraction": 0.1},
    "training__client_optimizer": {"kind": "sgd", "lr": 2},
    "training__server_optimizer": {"kind": "sgd", "lr": 1},
    "stop": {"rounds": 120},
    "evaluate": {"every": "3 rounds"},
}
"""Steps so long that an asynchronous run's accuracy rises to about 0.65 and jumps by 0.1 all the way."""


NEEDS_ACTIVE = {"easter", "local", "agg_vfl"}
"""Protocols whose server holds features: ``raw`` gives it some."""


def raw(protocols: Mapping[str, Any] | str = "synchronous", **changes: Any) -> dict[str, Any]:
    """A scenario as a mapping: ``BASE`` with whole sections replaced, or (``section__key``) single keys of them.

    Where a protocol needs an active party, the server holds features.
    """
    said = deepcopy(BASE)
    said["protocols"] = {protocols: {"kind": protocols}} if isinstance(protocols, str) else dict(protocols)
    for key, value in changes.items():
        section, _, inner = key.partition("__")
        if inner:
            said.setdefault(section, {})[inner] = value
        else:
            said[section] = value
    if any(isinstance(each, dict) and each.get("kind") in NEEDS_ACTIVE for each in said["protocols"].values()):
        models = said["models"]
        first = models["client"] if isinstance(models["client"], dict) else models["client"][0]
        said["partition"] = {**said["partition"], "active": True}
        models.setdefault("active", {"kind": "linear", "embedding": first["embedding"]})
    return said


def tiny(protocols: Mapping[str, Any] | str = "synchronous", **changes: Any) -> Scenario:
    """``raw`` as a scenario."""
    return load(raw(protocols, **changes))


def data_of(scenario: Scenario, name: str | None = None) -> LoadedData:
    """The scenario's data as tensors, remembered across tests."""
    training = scenario.training_of(name or next(iter(scenario.protocols)))
    key = scenario.data.model_dump_json(), scenario.partition.model_dump_json(), training.dtype
    if key not in _loaded:
        _loaded[key] = LoadedData.of(load_data(scenario.data, scenario.partition, training.dtype), training)
    return _loaded[key]


_loaded: dict[tuple[str, str, str], LoadedData] = {}


def world(kind: str, speed: float = 1.0) -> World:
    """A virtual world with deferred work, or a real one with immediate work, whose clock waits for the machine."""
    return VirtualWorld(DeferredExecutor()) if kind == "virtual" else PatientWorld(ImmediateExecutor(), speed)


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
    assert_sound(outcome)
    assert outcome.info.stalled == ()
    return outcome


def assert_sound(outcome: Outcome) -> None:
    """All invariants hold. Runs that left the same tables and facts, as tests of equal runs make, are checked once."""
    said = hashlib.blake2b(outcome.info.model_copy(update={"wall_clock_s": 0.0}).model_dump_json().encode())
    for name, table in outcome.tables.named().items():
        said.update(name.encode())
        with pa.ipc.new_stream(sink := pa.BufferOutputStream(), table.schema) as stream:
            stream.write_table(table)
        said.update(sink.getvalue())
    if said.digest() not in _sound:
        assert verify_run(outcome.tables, outcome.info) == []
        _sound.add(said.digest())


_sound: set[bytes] = set()


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


def apart(one: Outcome, other: Outcome) -> float:
    """The largest difference between two runs' weights, relative to the largest weight of its tensor (or to 1)."""
    assert one.weights.keys() == other.weights.keys()
    return max(
        float((tensor - other.weights[key]).abs().max() / max(1.0, float(tensor.abs().max())))
        for key, tensor in one.weights.items()
    )


VALUES = ("train_", "validation_", "test_")
"""How the columns begin that hold what was learnt: all others follow from time alone."""


def same_times(one: Outcome, other: Outcome) -> bool:
    """Whether two runs left the same tables, to the bit, but for what was learnt."""
    ours, theirs = (metrics(outcome) for outcome in (one, other))
    assert list(ours) == list(theirs)
    timed = [name for name in ours if not name.startswith(VALUES)]
    return ours[timed].equals(theirs[timed]) and rounds(one).equals(rounds(other)) and events(one).equals(events(other))


def scores_apart(one: Outcome, other: Outcome) -> float:
    """The largest difference between two runs' losses and scores, relative to each (or to 1)."""
    ours, theirs = (metrics(outcome).filter(regex="|".join(VALUES)).to_numpy() for outcome in (one, other))
    assert (np.isnan(ours) == np.isnan(theirs)).all()
    return float(np.nanmax(np.abs(ours - theirs) / np.maximum(1.0, np.abs(ours)), initial=0.0))


def learners(scenario: Scenario, name: str, seed: int, data: LoadedData) -> tuple[Any, Mapping[int, Any]]:
    """The learners of a run: the server's, and the clients'."""
    made = scenario.protocols[name].protocol.learners(setting(scenario, name, data), seed)
    return made.server, made.clients


def parties(scenario: Scenario, name: str, seed: int, data: LoadedData, *rest: Any, **more: Any) -> Parties:
    """The nodes of a run."""
    return make_parties(scenario.protocols[name].protocol, setting(scenario, name, data), seed, *rest, **more)


def coding_plan_of(scenario: Scenario, name: str, data: LoadedData) -> CodingPlan:
    """The plan of a coded protocol."""
    protocol = scenario.protocols[name].protocol
    assert isinstance(protocol, FedVS)
    return coding_plan(protocol, setting(scenario, name, data), seed=0)


def coded_stages_of(scenario: Scenario, name: str, data: LoadedData) -> CodedStages:
    """The stages of a coded protocol's rounds."""
    protocol = scenario.protocols[name].protocol
    assert isinstance(protocol, FedVS)
    return CodedStages(protocol, setting(scenario, name, data))
