"""C-VFL: its updates, exact and compressed, its messages, and the protocols that it equals."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from codecs_by_hand import CODECS, Compress
from plain_training import LEARNING, Plain
from thorough import in_turn
from three_clients import MLP, three_clients
from tiny_worlds import (
    EAGER,
    RANDOM_TIMING,
    apart,
    data_of,
    events,
    learners,
    metrics,
    raw,
    run,
    same_times,
    same_weights,
    tiny,
)
from torch import Tensor, nn

from vflsim.codecs.frame import frame_bytes
from vflsim.learning.batches import Batch
from vflsim.learning.execution.operations import ImmediateExecutor, Operation
from vflsim.learning.learners.client import ClientParts
from vflsim.learning.learners.server import ServerParts
from vflsim.learning.models.aggregates import SumAggregate
from vflsim.learning.optimizers import Sgd
from vflsim.learning.tasks import REGRESSION
from vflsim.protocols.fedbcd import BlockServer, RecomputingClient, shared_values_of
from vflsim.scenario import load
from vflsim.world.messages import Embedding

Q, ROWS = 3, 20
DOUBLE = torch.float64
C_VFL: dict[str, Any] = {"kind": "c_vfl", "local_steps": Q}
POLYNOMIAL = {"kind": "polynomial", "degree": 3, "embedding": 5}
AGGREGATES = ["mean", "sum", "concat", "max", "weighted"]

ACTIVE = {"partition": {"clients": 3, "active": True}, "models__active": {"kind": "mlp", "hidden": [4], "embedding": 5}}
"""A server with features of its own, as wide as ``MLP``."""


def one_round(plain: Plain, ids: Tensor, t: int, compress: Compress) -> float:
    """Every party's Q steps at what it holds."""
    sent = [plain.embed(m, ids).detach() for m in plain.clients]
    held = [compress(h, m, "embedding/", t) for m, h in zip(plain.clients, sent, strict=True)]
    vector = compress(torch.cat([w.detach().flatten() for w in plain.weights[0]]), 0, "shared_values.1/model", t)
    own, parts = plain.weights[0], vector.split([w.numel() for w in plain.weights[0]])
    copy = [part.reshape(w.shape) for part, w in zip(parts, own, strict=True)]
    first = float(plain.loss(held, ids).detach())
    for _ in range(Q):
        plain.step(0, torch.autograd.grad(plain.loss(held, ids), plain.weights[0]))
    new, plain.weights[0] = plain.weights[0], copy
    for place, m in enumerate(plain.clients):
        for _ in range(Q):
            view = [plain.embed(m, ids) if j == place else h for j, h in enumerate(held)]
            plain.step(m, torch.autograd.grad(plain.loss(view, ids), plain.weights[m]))
    plain.weights[0] = new
    return first


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("codec", "aggregate"),
    [
        *[("exact", each) for each in AGGREGATES],
        ("quantised", "concat"),
        ("sparse", "mean"),
        *[(each, "concat") for each in ("rounded", "signs", "half")],
    ],
)
def test_many_rounds_are_those_of_the_equations(many: int, codec: str, aggregate: str) -> None:
    said, compress = CODECS[codec]
    scenario = three_clients(
        C_VFL,
        codec=said,
        models__aggregate=aggregate,
        models__client=POLYNOMIAL if aggregate == "max" else MLP,
        stop={"updates": 3 * Q * many},
        evaluate={"every": f"{many} rounds"},
    )
    loaded = load(scenario)
    outcome, plain = run(loaded), Plain(scenario, loaded, "it", 0, data_of(loaded))
    losses = [one_round(plain, plain.ids(1, t), t, compress) for t in range(many)]
    assert plain.furthest(dict(outcome.weights)) <= 1e-10
    assert metrics(outcome)["train_loss"].iloc[1] == pytest.approx(sum(losses) / many, abs=1e-10)
    assert metrics(outcome)["updates"].iloc[-1] == 3 * Q * many
    assert many < LEARNING or losses[-1] < losses[0] - (
        0 if codec == "sparse" else 0.05
    )  # two weights of the server's are few


with_features = in_turn(aggregate=[*AGGREGATES, "learned_mean"], features={"labels alone": {}, "active server": ACTIVE})
"""Aggregates, and what the server holds."""


@pytest.mark.sampled(1)
@with_features
def test_one_uncompressed_step_is_synchronous_training_to_the_bit(aggregate: str, features: dict[str, Any]) -> None:
    """Clients compute the gradient that the server would send; only messages differ, and by them the times."""
    protocols = {"wait": {"kind": "synchronous"}, "c_vfl": {"kind": "c_vfl"}}
    scenario = tiny(protocols, timing=RANDOM_TIMING, models__aggregate=aggregate, models__client=MLP, **features)
    one, other = (run(scenario, name, execution=EAGER) for name in protocols)
    assert same_weights(one, other)
    assert metrics(one)["train_loss"].equals(metrics(other)["train_loss"])
    assert apart(run(scenario, "wait"), run(scenario, "c_vfl")) <= 1e-12


@pytest.mark.sampled(1)
@with_features
def test_uncompressed_it_is_fedbcd_with_recomputed_gradients_to_the_bit(
    aggregate: str, features: dict[str, Any]
) -> None:
    """FedBCD's clients get the others' embeddings alone; with held gradients they learn something else."""
    fedbcd = {"kind": "fedbcd", "local_steps": Q}
    protocols = {"c_vfl": C_VFL, "fedbcd": {**fedbcd, "gradients": "recomputed"}, "held": fedbcd}
    scenario = tiny(protocols, timing=RANDOM_TIMING, models__aggregate=aggregate, models__client=MLP, **features)
    one, other, held = (run(scenario, name) for name in protocols)
    assert same_weights(one, other)
    assert not same_times(one, other)
    assert apart(one, held) > 1e-4


@pytest.mark.parametrize(
    "codec", ["plain", {"kind": "scalar_quantiser", "bits": 3}, {"kind": "top_k", "fraction": 0.5}]
)
def test_a_round_sends_embeddings_up_and_all_of_them_with_the_server_s_model_down(codec: Any) -> None:
    scenario = load(three_clients(C_VFL, codec=codec, stop={"updates": 3 * Q}, training__batch=ROWS))
    found = events(run(scenario))
    found = found[(found["outcome"] == "done") & (found["round"] == 0)]
    sent = found[found["kind"].str.startswith("transfer.")]
    payload, model = scenario.codec.payload_bytes, 5 * 8 + 8 + 8 * 10 + 10  # the server: mlp, hidden 8
    up = frame_bytes(("",)) + payload((ROWS, 5), DOUBLE)
    down = frame_bytes(("model", "1", "2", "3")) + payload((model,), DOUBLE) + 3 * payload((ROWS, 5), DOUBLE)
    assert sorted(zip(sent["kind"], sent["bytes"], strict=True)) == [
        *[("transfer.embedding", up)] * 3,
        *[("transfer.shared_values", down)] * 3,
    ]


@pytest.mark.slow
def test_compression_saves_bytes_and_little_accuracy() -> None:
    scenario = raw({"it": C_VFL}, stop={"rounds": 60}, evaluate={"every": "60 rounds"})
    plain, coarse = (
        metrics(run(load({**scenario, "codec": codec}))) for codec in ("plain", {"kind": "vector_quantiser", "bits": 4})
    )
    for direction in ("bytes_up", "bytes_down"):
        assert coarse[direction].iloc[-1] < 0.2 * plain[direction].iloc[-1]
    assert plain["test_accuracy"].iloc[-1] > 0.6
    assert coarse["test_accuracy"].iloc[-1] > plain["test_accuracy"].iloc[-1] - 0.2


class Squared(nn.Module):
    """h = θ² x."""

    def __init__(self) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.ones(1, dtype=DOUBLE))

    def forward(self, x: Tensor) -> Tensor:
        return self.theta.square() * x


def submitted(operation: Operation[Any]) -> Any:
    ImmediateExecutor().submit(operation)
    return operation.result


def test_two_local_steps_by_hand() -> None:
    """h = θ² x = 2 at both clients (θ = 1, x = 2), w = ½, y = 3: w (2 + 2) − y = −1, ∂ℓ/∂h = −2 w = −1, ∂ℓ/∂w = −8.

    The server, η = 0.05, steps to w = 0.9, and shares ½. A client, η = 0.1: ∇θ = −2 θ x = −4, so that θ becomes 1.4 and
    h = 3.92. At h = 3.92 + 2 held, and w = ½: ∂ℓ/∂h = 2 (2.96 − 3) ½ = −0.04, and ∇θ = −0.04 · 5.6 = −0.224.
    """
    batch, labels = Batch(0, np.array([0])), {"train": torch.tensor([[3.0]], dtype=DOUBLE)}

    def top() -> nn.Module:
        made = nn.Linear(1, 1, bias=False, dtype=DOUBLE)
        made.weight.data.fill_(0.5)
        return made

    parts = ServerParts((1, 2), (1, 1), labels, top, Sgd(lr=0.05), SumAggregate(), REGRESSION, 1, DOUBLE)
    server, features = BlockServer(parts), {"train": torch.full((1, 1), 2.0, dtype=DOUBLE)}
    clients = {
        m: RecomputingClient(ClientParts(m, features, Squared, Sgd(lr=0.1), 1, 1), BlockServer(parts)) for m in (1, 2)
    }
    messages = []
    for m in (2, 1):
        messages.append(Embedding(batch, submitted(clients[m].embed(batch)), round=0))
        messages[-1].sender = m
    shared = shared_values_of(submitted(server.sharing_step(messages)), messages, 0)
    assert shared["model"].value.tolist() == [0.5]
    assert list(shared.tensors) == ["model", "client-1", "client-2"]
    assert float(server.model.weight.detach()) == pytest.approx(0.9)
    submitted(clients[1].client_step(batch, shared))
    assert float(clients[1].model.theta.detach()) == pytest.approx(1.4)
    submitted(clients[1].step_again(batch, shared))
    assert float(clients[1].model.theta.detach()) == pytest.approx(1.4 + 0.0224)
    assert float(clients[2].model.theta.detach()) == 1


def test_copies_of_the_server_hold_nothing_for_each_client_before_a_step() -> None:
    """M copies with M numbers each would take 9 GB of 10,000 clients, whose timing needs none of them."""
    scenario = load(three_clients(C_VFL))
    _, clients = learners(scenario, "it", 0, data_of(scenario))
    for client in clients.values():
        of_each = {
            name: value for name, value in vars(client._server).items() if isinstance(value, dict) and 1 in value
        }
        assert not of_each
        assert "staleness" not in vars(client._server)
        assert "widths" not in vars(client)
        assert client.widths == {1: 5, 2: 5, 3: 5}


def test_a_client_s_step_costs_the_flops_of_the_server_s_model_too() -> None:
    scenario = load(three_clients(C_VFL))
    server, clients = learners(scenario, "it", 0, data_of(scenario))
    batch, message = Batch(0, np.arange(ROWS)), SimpleNamespace(carried={})
    first, again = clients[1].client_step(batch, message).flops(), clients[1].step_again(batch, message).flops()
    own, top = clients[1].embedding, server.top
    assert first == own.backward_flops(ROWS) + top.training_flops(ROWS)
    assert again == first + own.forward_flops(ROWS)


def test_it_says_that_clients_hold_the_labels() -> None:
    scenario = load(three_clients(C_VFL))
    assert "labels" in scenario.protocols["it"].protocol.describe(None)  # type: ignore[arg-type]


def test_recomputed_gradients_need_parallel_rounds() -> None:
    said = {"kind": "fedbcd", "local_steps": 2, "gradients": "recomputed", "order": "sequential"}
    with pytest.raises(Exception, match=r"gradients: recomputed(.|\n)*allowed: gradients: held"):
        load(three_clients(said))
