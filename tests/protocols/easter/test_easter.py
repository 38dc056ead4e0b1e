"""EASTER and its baselines: a round by hand, many rounds against plain autograd, metrics, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from closed_forms_of import found
from protocols_by_kind import KINDS
from thorough import in_turn
from tiny_worlds import EAGER, data_of, events, learners, metrics, raw, rounds, run, tiny
from torch import Tensor, nn
from torch.nn import functional as F

from vflsim.codecs.frame import ONLY, frame_bytes
from vflsim.errors import ScenarioError
from vflsim.learning.batches import Batch, BatchSequence
from vflsim.learning.execution.operations import Handle, ImmediateExecutor
from vflsim.learning.tasks import REGRESSION
from vflsim.protocols.easter.protocol import GlobalEmbedding, Prediction
from vflsim.protocols.synchronous import Synchronous
from vflsim.scenario import load
from vflsim.scenario.models import Scenario
from vflsim.scenario.resolve import setting
from vflsim.streams import SHARED, party_name
from vflsim.vocabulary.execution_options import USUAL, Execution
from vflsim.world.messages import Embedding, Gradient

ROUNDS = 50
RATES = {True: 0.2, False: 0.1}  # of passive parties, of the active party
MLP = {"kind": "mlp", "hidden": [5], "embedding": 6}
HETEROGENEOUS: dict[str, Any] = {
    "models__client": [{"select": "all", **MLP}, {"select": "2", "kind": "cnn", "channels": [2], "embedding": 6}],
    "models__predictor": [{"select": "1", "kind": "linear"}, {"select": "2", "kind": "mlp", "hidden": [4, 3]}],
}
SAID: dict[str, dict[str, Any]] = {
    "easter": {"kind": "easter", "blinding": "off"},
    "local": {"kind": "local"},
    "pyvertical": {"kind": "pyvertical", "models": {"aggregate": "concat"}},
    "agg_vfl": {"kind": "agg_vfl"},
    "agg_vfl-sum": {"kind": "agg_vfl", "combine": "sum"},
}
Nets = dict[int, dict[str, nn.Module]]


def world(*names: str, **changes: Any) -> Scenario:
    """A scenario of an active party and three passive ones."""
    active: dict[str, Any] = {
        "partition": {"clients": 3, "active": True, "by": "image_rows"},
        "models__active": {"kind": "mlp", "hidden": [7], "embedding": 6},
        "models__client": MLP,
        "stop": {"rounds": ROUNDS},
        "evaluate": {"every": f"{ROUNDS} rounds"},
    }
    return load(raw({name: SAID[name] for name in names}, **{**active, **changes}))


# --- by hand --------------------------------------------------------------------------------------------------------


def test_one_round_by_hand() -> None:
    """Two samples, two passive parties; all nets are a factor: h_k = a_k x_k and R_k = w_k E; the loss is a square."""
    factor = {"kind": "linear", "bias": False}
    said = world(
        "easter",
        partition={"clients": 2, "active": True},
        models__client={**factor, "embedding": 1},
        models__active={**factor, "embedding": 1},
        models__server=factor,
        training__batch="all",
        training__client_optimizer={"kind": "sgd", "lr": 0.1},
    )
    x = torch.tensor([[3.0, 3.0, 3.0], [6.0, 0.0, -3.0]], dtype=torch.float64)
    of = [{"train": x[:, party, None]} for party in range(3)]
    data: Any = replace(
        data_of(said), joint={"train": x}, features=tuple(of[1:]), shapes=((1,), (1,)), active=of[0], server_shape=(1,),
        labels={"train": torch.tensor([[1.0], [2.0]], dtype=torch.float64)}, task=REGRESSION, outputs=1,
    )  # fmt: skip
    made = said.protocols["easter"].protocol.learners(replace(setting(said, "easter", data_of(said)), data=data), 0)
    active, parties, batch = made.server, [made.server, *made.clients.values()], Batch(0, np.array([0, 1]), SHARED)
    for party, a, w in zip(parties, (1.0, 2.0, -1.0), (1.0, 2.0, -1.0), strict=True):
        named = {name: a if name.startswith("embedding") else w for name in party.weights()}
        party.load_weights({name: torch.tensor([[value]]) for name, value in named.items()})
    executor = ImmediateExecutor()

    def done(operation: Any) -> Any:
        executor.submit(operation)
        return operation.result

    def column(handle: Handle[Tensor]) -> list[float]:
        return handle.value.flatten().tolist()

    def sent(kind: Any, *handles: Handle[Tensor]) -> list[Any]:
        messages = [kind(batch, handle) for handle in handles]
        for client, message in enumerate(messages, start=1):
            message.sender = client
        return messages

    own, *theirs = (done(party.embed(batch)) for party in parties)
    mean = done(active.join(own, sent(Embedding, *theirs)[::-1]))
    assert [column(h) for h in (own, *theirs)] == [[3, 6], [6, 0], [-3, 3]]
    assert column(mean) == [2, 3]
    mine, *others = (done(party.predict(GlobalEmbedding(batch, mean))) for party in parties)
    assert [column(R) for R in (mine, *others)] == [[2, 3], [4, 6], [-2, -3]]
    gradients = done(active.server_step(batch, mine, sent(Prediction, *others)[::-1]))  # ∂L_k/∂R_k = R_k − y
    assert {client: column(gradient) for client, gradient in gradients.items()} == {1: [3, 4], 2: [-3, -5]}
    for client, learner in made.clients.items():
        done(learner.client_step(batch, Gradient(value=gradients[client])))
    weights = [p.weights()[name].item() for p in parties for name in sorted(p.weights())]
    # w_k ← w_k − 0.1 Σ_i g_i E_i;  a_k ← a_k − 0.1 Σ_i g_i (w_k / 3) x_i
    assert weights == pytest.approx([0.7, 0.5, 1.4, 0.2, -0.8, 1.1])


# --- plain autograd -------------------------------------------------------------------------------------------------


def losses(name: str, nets: Nets, x: dict[int, Tensor], y: Tensor) -> list[Tensor]:
    """What the parties descend, each party by its own nets' share of it."""
    h = {party: nets[party]["embedding"](x[party]) for party in nets}
    if name == "easter":  # a party knows of the others' embeddings what they are, not how they came about
        means = [sum(h[other] if other == party else h[other].detach() for other in h) / len(h) for party in h]
        return [F.cross_entropy(nets[party]["predictor"](E), y) for party, E in zip(nets, means, strict=True)]
    if name == "pyvertical":
        return [F.cross_entropy(nets[0]["top"](torch.cat([*h.values()], 1)), y)]
    o = torch.stack([nets[party]["predictor"](h[party]) for party in nets])
    return [F.cross_entropy(o.sum(0) if name.endswith("sum") else o.mean(0), y)]


@pytest.mark.sampled(2)
@in_turn(
    trained={
        **{name: (name, {}) for name in SAID},
        **{f"{name}, unlike": (name, HETEROGENEOUS) for name in SAID if name != "pyvertical"},
    },
    execution={"batched": USUAL, "eager": EAGER},
)
def test_many_rounds_are_those_of_plain_autograd(trained: tuple[str, dict[str, Any]], execution: Execution) -> None:
    name, models = trained
    scenario = world(name, **models)
    data = data_of(scenario)
    server, clients = learners(scenario, name, 0, data)
    nets: Nets = {
        party: {net: model.build() for net, model in learner.models.items()}
        for party, learner in {0: server, **clients}.items()
    }
    features = {party: data.active if party == 0 else data.features[party - 1] for party in nets}
    rules = [
        torch.optim.SGD([p for net in own.values() for p in net.parameters()], RATES[party > 0])
        for party, own in nets.items()
    ]
    sequence, seen = BatchSequence(data.rows, scenario.training, 0, SHARED), []
    for k in range(ROUNDS):
        ids = torch.tensor(sequence.batch(k).ids)
        each = losses(name, nets, {party: x["train"][ids] for party, x in features.items()}, data.labels["train"][ids])
        for rule in rules:
            rule.zero_grad()
        torch.autograd.backward(each)
        for rule in rules:
            rule.step()
        seen.append(sum(loss.item() for loss in each) / len(each))
    stop = {"rounds": ROUNDS} if name == "local" else {"updates": 3 * ROUNDS}  # the last round's steps included
    outcome = run(scenario.model_copy(update={"stop": scenario.stop.model_validate(stop)}), execution=execution)
    plain = {
        ".".join([party_name(party), *([net] if len(own) > 1 else []), weight]): tensor
        for party, own in nets.items()
        for net, module in own.items()
        for weight, tensor in module.state_dict().items()
    }
    assert plain.keys() == outcome.weights.keys()
    assert max((tensor - outcome.weights[weight]).abs().max().item() for weight, tensor in plain.items()) <= 1e-10
    assert metrics(outcome)["train_loss"].iloc[1] == pytest.approx(sum(seen) / ROUNDS, abs=1e-10)
    assert sum(seen[-5:]) < sum(seen[:5])


# --- metrics, weights -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["easter", "agg_vfl"])
def test_every_party_has_metrics_of_its_own(name: str) -> None:
    scenario = world(name)
    outcome, data = run(scenario), data_of(scenario)
    server, clients = learners(scenario, name, 0, data)
    parties, y = {0: server, **clients}, data.labels["test"]
    for party, learner in parties.items():
        own = f"{party_name(party)}."
        learner.load_weights({k.removeprefix(own): v for k, v in outcome.weights.items() if k.startswith(own)})
    with torch.no_grad():
        h = {party: each.embedding(each.features("test")) for party, each in parties.items()}
        mean = sum(h.values()) / 4
        o = {party: each.models["predictor"](mean if name == "easter" else h[party]) for party, each in parties.items()}
    right = {party: (each.argmax(1) == y).double().mean().item() for party, each in o.items()}
    together = sum(o.values()) / 4
    row = metrics(outcome).iloc[-1]
    assert [row[f"test_accuracy.{party_name(party)}"] for party in o] == pytest.approx([*right.values()], abs=1e-12)
    assert row["test_loss.client-2"] == pytest.approx(F.cross_entropy(o[2], y).item(), abs=1e-12)
    whole = sum(right.values()) / 4 if name == "easter" else (together.argmax(1) == y).double().mean().item()
    assert row["test_accuracy"] == pytest.approx(whole, abs=1e-12)


def test_initial_weights_are_those_of_split_training() -> None:
    scenario = world("easter", "agg_vfl", "local")
    scenario = scenario.with_protocols({"synchronous": Synchronous()})
    data = data_of(scenario)
    top, bottoms = learners(scenario, "synchronous", 3, data)
    for name in ("easter", "agg_vfl", "local"):
        server, clients = learners(scenario, name, 3, data)
        own = server.weights()
        assert all(torch.equal(each, own[k.replace("top.", "predictor.")]) for k, each in top.weights().items())
        for client, learner in clients.items():
            own = learner.weights()
            assert all(torch.equal(each, own[f"embedding.{k}"]) for k, each in bottoms[client].weights().items())


# --- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["easter", "agg_vfl", "local"])
def test_a_server_without_features_is_refused(name: str) -> None:
    said = raw({name: SAID[name]})
    said["partition"].pop("active")
    said["models"].pop("active")
    with pytest.raises(ScenarioError, match=rf"protocols\.{name}: the active party .* holds no features"):
        load(said)


@pytest.mark.parametrize(("name", "aggregate"), [("easter", "sum"), ("pyvertical", "mean")])
def test_another_aggregate_is_refused(name: str, aggregate: str) -> None:
    allowed = {"easter": "mean", "pyvertical": "concat"}[name]
    with pytest.raises(ScenarioError, match=rf"{aggregate}(.|\n)*allowed: models\.aggregate: {allowed}"):
        load(raw({name: {"kind": name}}, models__aggregate=aggregate))


def test_updates_cannot_end_a_run_without_clients() -> None:
    with pytest.raises(
        ScenarioError, match=r"stop\.updates: protocol 'local' would never end(.|\n)*add `stop: {rounds"
    ):
        world("local", stop={"updates": 5})
    assert world("local", stop={"updates": 5, "rounds": 9}).clients == 3


def test_a_client_that_crashes_between_the_trips_gets_the_global_embedding_again() -> None:
    intervals = {"kind": "intervals", "down": [["14 ms", "20 ms"]], "interrupted": "lost"}
    timing = {
        "server": {"compute": "1 ms", "link": {"latency": "1 ms"}},
        "clients": [
            {"select": "all", "compute": "5 ms"},
            {"select": "2", "upload_delay": "4 ms", "availability": intervals},
        ],
    }
    outcome = run(tiny({"it": KINDS["easter-clear"]}, timing=timing, stop={"rounds": 3}))
    first = events(outcome, "transfer.global_embedding")
    first = first[first["round"] == 0]
    assert sorted(first["peer"]) == ["client-1", "client-2", "client-2", "client-3", "client-4"]
    assert len(events(outcome, "compute.embed", "client-2")) == 1 + 3  # it begins the round anew
    assert len(rounds(outcome)) == 3


def test_messages_carry_embeddings_and_predictions() -> None:
    outcome = run(tiny({"it": KINDS["easter-clear"]}, stop={"rounds": 4}))
    sent = events(outcome)
    done = sent[sent["kind"].str.startswith("transfer.") & (sent["outcome"] == "done") & (sent["round"] == 1)]
    embedding, prediction = (frame_bytes((ONLY,)) + 20 * columns * 8 for columns in (6, 10))
    assert dict(zip(done["kind"], done["bytes"], strict=True)) == {
        "transfer.embedding": embedding,
        "transfer.global_embedding": embedding,
        "transfer.prediction": prediction,
        "transfer.gradient": prediction,
    }


BANDWIDTH, LATENCY = 2e6, 0.015


def easter(timing: dict[str, Any]) -> dict[str, Any]:
    """A scenario without blinding, whose embeddings have 8 bytes an element either way."""
    said = raw(
        {"it": {"kind": "easter", "blinding": "off"}}, timing=timing, partition={"clients": 3, "by": "image_rows"}
    )
    said["training"]["last_batch"], said["record"] = "drop", "rounds"
    return said


def communicating(network: str) -> dict[str, Any]:
    link = {"up": f"{BANDWIDTH} bps", "down": f"{BANDWIDTH} bps"}
    everybody = {"select": "all", "link": {**link, "latency": f"{LATENCY} s"}}
    return easter({"network": network, "server": {"compute": 0, "link": link}, "clients": everybody})


def sent(columns: int) -> float:
    """The bytes over the bandwidth of a message of 20 rows."""
    return 8 * (20 * columns * 8 + frame_bytes((ONLY,))) / BANDWIDTH


EMBEDDING, PREDICTION = sent(6), sent(10)
"""Both go either way: E_k and E; R_k and its gradient."""
ALONE = 2 * EMBEDDING + 2 * PREDICTION + 4 * LATENCY


def test_communication_takes_the_bytes_over_the_bandwidth_and_four_latencies() -> None:
    world = load(communicating("dedicated"))
    form = found(world)
    assert form.exactness == "exact"
    assert form.mean.low == pytest.approx(ALONE, rel=1e-9)
    measured = rounds(run(world)).iloc[1:]
    assert (measured["end_s"] - measured["start_s"]).to_numpy() == pytest.approx(ALONE, rel=1e-9)


@pytest.mark.parametrize(
    ("network", "waits"),
    [
        ("fifo", 4 * PREDICTION),  # three gradients, the last embedding; an embedding, then predictions in a queue
        ("fair", 4 * PREDICTION + 4 * EMBEDDING),  # whatever the server sends or receives is three at once
    ],
)
def test_where_parties_contend_the_measured_time_lies_within_the_bounds(network: str, waits: float) -> None:
    world = load(communicating(network))
    form = found(world)
    measured = rounds(run(world)).iloc[1:]
    assert form.exactness == "bounds"
    assert (form.mean.low, form.mean.high) == pytest.approx((ALONE, ALONE + 4 * PREDICTION + 4 * EMBEDDING))
    assert (measured["end_s"] - measured["start_s"]).to_numpy() == pytest.approx(ALONE + waits, rel=1e-9)
