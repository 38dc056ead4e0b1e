"""A server that holds features, too: its embedding is one more input of the aggregate, under every protocol."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kept_runs import assert_interruptions_change_no_byte
from plain_training import Plain
from protocols_by_kind import HEADS
from tiny_worlds import EAGER, apart, data_of, events, metrics, raw, run, same_weights

from vflsim.scenario import load
from vflsim.studies.checks.describe import overrides
from vflsim.vocabulary.execution_options import USUAL, Execution

COMPUTABLE = {"kind": "polynomial", "degree": 1, "bias": False, "embedding": 6}
PARTITION = {"clients": 3, "active": True}
OWN = {"kind": "mlp", "hidden": [7], "embedding": 6}
PROTOCOLS: dict[str, dict[str, Any]] = {
    "synchronous": {"kind": "synchronous"},
    "ignore": {"kind": "ignore", "fastest": 2},
    "t_synchronous": {"kind": "t_synchronous", "t": 2},
    "asynchronous": {"kind": "asynchronous", "first_fill": "upload"},
    "centralised": {"kind": "centralised"},
}


def active(kind: str = "synchronous", **changes: Any) -> dict[str, Any]:
    return raw({kind: PROTOCOLS[kind]}, partition=PARTITION, models__active=OWN, **changes)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("aggregate", "execution"),
    [("mean", USUAL), ("mean", EAGER), ("max", USUAL), ("concat", USUAL), ("weighted", USUAL)],
    ids=["mean", "one by one", "max", "concat", "weighted"],
)
def test_synchronous_training_is_that_of_one_graph(aggregate: str, execution: Execution) -> None:
    said = active(models__aggregate=aggregate, stop={"updates": 90})
    scenario = load(said)
    plain = Plain(said, scenario, "synchronous", 0, data_of(scenario))
    losses = [plain.synchronous_step(plain.ids(1, k)) for k in range(30)]
    outcome = run(scenario, execution=execution)
    assert plain.furthest(dict(outcome.weights)) <= 1e-12
    assert metrics(outcome)["test_loss"].iloc[-1] == pytest.approx(plain.test_loss(), abs=1e-12)
    assert losses[-1] < losses[0]


def test_the_centralised_reference_learns_what_synchronous_training_does() -> None:
    one, other = run(load(active("synchronous"))), run(load(active("centralised")))
    assert same_weights(one, other)
    assert {name.rpartition(".")[0] for name in one.weights if name.startswith("server")} == {
        "server.top.0", "server.top.2", "server.embedding.1", "server.embedding.3"
    }  # fmt: skip


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", PROTOCOLS)
def test_it_is_the_same_one_by_one_and_after_an_interruption(kind: str, tmp_path: Path) -> None:
    scenario = load(active(kind, stop={"rounds": 6}))
    outcome = assert_interruptions_change_no_byte(scenario, tmp_path)
    assert apart(outcome, run(scenario, execution=EAGER)) <= 1e-12


def test_its_computation_counts_the_flops_of_its_own_model() -> None:
    timing = {"server": {"compute": {"kind": "flops", "rate": "1 MFLOPS"}}, "clients": [{"compute": "1 ms"}]}
    alone = run(load(raw(partition={"clients": 3}, timing=timing)))
    with_own = run(load(active(timing=timing)))
    steps = [events(outcome, "compute.server_step") for outcome in (alone, with_own)]
    longest = [(each["end_s"] - each["start_s"]).max() for each in steps]
    columns = data_of(load(active())).active_shape[0]
    extra = 2 * (2 * 20 * columns * 7) + 3 * (2 * 20 * 7 * 6)
    assert longest[1] - longest[0] == pytest.approx(extra / 1e6)


def test_a_protocol_may_leave_the_servers_features_unused() -> None:
    """Those that cannot use them must; others train as if the server had none."""
    unused = {"models": {"active": None}}
    entries = {
        "with": {"kind": "synchronous"},
        "without": {"kind": "synchronous", **unused},
        "fedvs": {"kind": "fedvs", "K": 1, "models": {"active": None, "client": COMPUTABLE}},
        "vimsgd": {"kind": "vimsgd", "models": {"active": None, **HEADS}},
    }
    said = raw(entries, partition=PARTITION, models__active=OWN, stop={"updates": 15})
    scenario = load(said)
    runs = {name: run(scenario, name) for name in entries}
    embedding = {name for name, each in runs.items() if any("server.embedding" in weight for weight in each.weights)}
    assert embedding == {"with"}
    plain = Plain(said, scenario, "without", 0, data_of(scenario))
    for k in range(5):
        plain.synchronous_step(plain.ids(1, k))
    assert plain.furthest(dict(runs["without"].weights)) <= 1e-12
    assert "without differs: models.active: null" in list(overrides(scenario))
