"""EF-VFL: its updates, exact and compressed, its messages, its surrogates, and the protocols that it equals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from codecs_by_hand import CODECS, Compress
from plain_training import LEARNING, Plain
from thorough import every_pair
from three_clients import MLP, three_clients
from tiny_worlds import EAGER, RANDOM_TIMING, apart, data_of, events, metrics, raw, run, tiny
from torch import Tensor, nn

import vflsim
from vflsim.codecs.frame import frame_bytes
from vflsim.errors import VflsimError
from vflsim.learning.batches import Batch
from vflsim.learning.execution.operations import Handle, ImmediateExecutor, Operation
from vflsim.learning.learners.client import ClientParts
from vflsim.learning.learners.server import ServerParts
from vflsim.learning.models.aggregates import SumAggregate
from vflsim.learning.optimizers import Sgd
from vflsim.learning.tasks import REGRESSION
from vflsim.protocols.ef_vfl import protocol as protocol_module
from vflsim.protocols.ef_vfl.learning import Difference, Sent, SurrogateClient, SurrogateServer, surrogate_learners
from vflsim.scenario import load
from vflsim.world.messages import Gradient

ROWS = 20
DOUBLE = torch.float64
TOP_K = {"kind": "top_k", "fraction": 0.2}
labels = pytest.mark.parametrize("labels", ["shared", "private"])

ACTIVE = {"partition": {"clients": 3, "active": True}, "models__active": {"kind": "mlp", "hidden": [4], "embedding": 5}}
"""A server with features of its own, as wide as ``MLP``."""


class ByHand:
    """The rounds of EF-VFL with plain autograd."""

    def __init__(self, plain: Plain, compress: Compress, labels: str, steps: int) -> None:
        self.plain, self.compress, self.private, self.steps = plain, compress, labels == "private", steps
        rows = len(plain.y)
        self.surrogates = {m: torch.zeros(rows, plain.widths[m], dtype=DOUBLE) for m in plain.clients}
        self.weights = torch.zeros(sum(w.numel() for w in plain.weights[0]), dtype=DOUBLE)

    def round(self, ids: Tensor, t: int) -> float:
        plain = self.plain
        for m in plain.clients:
            sent = plain.embed(m, ids).detach() - self.surrogates[m][ids]
            self.surrogates[m][ids] += self.compress(sent, m, "difference/", t)
        held = [self.surrogates[m][ids].clone().requires_grad_() for m in plain.clients]
        own = plain.weights[0]
        if not self.private:
            sent = torch.cat([w.detach().flatten() for w in own]) - self.weights
            self.weights += self.compress(sent, 0, "shared_values.1/model", t)
        loss = plain.loss(held, ids)
        gradients = torch.autograd.grad(loss, held)
        before = [w.detach().clone().requires_grad_() for w in own]
        held = [h.detach() for h in held]
        for _ in range(self.steps):
            plain.step(0, torch.autograd.grad(plain.loss(held, ids), own))
        parts = self.weights.split([w.numel() for w in own])
        plain.weights[0] = [part.reshape(w.shape) for part, w in zip(parts, before, strict=True)]
        for place, m in enumerate(plain.clients):
            for _ in range(self.steps):
                h = plain.embed(m, ids)
                if self.private:
                    objective = (h * gradients[place]).sum()
                else:
                    objective = plain.loss([h if j == place else each for j, each in enumerate(held)], ids)
                plain.step(m, torch.autograd.grad(objective, plain.weights[m]))
        plain.weights[0] = own
        return float(loss.detach())


@pytest.mark.sampled(3)
@labels
@pytest.mark.parametrize(
    ("codec", "aggregate", "steps"),
    [
        ("exact", "mean", 1),
        ("exact", "max", 2),
        ("exact", "concat", 3),
        ("quantised", "concat", 2),
        ("sparse", "sum", 1),
        ("rounded", "concat", 2),
        ("signs", "mean", 1),
        ("half", "concat", 2),
    ],
)
def test_many_rounds_are_those_of_the_equations(many: int, labels: str, codec: str, aggregate: str, steps: int) -> None:
    said, compress = CODECS[codec]
    scenario = three_clients(
        {"kind": "ef_vfl", "labels": labels, "local_steps": steps},
        codec={"kind": "by_direction", "up": said} if labels == "private" else said,
        models__aggregate=aggregate,
        stop={"updates": 3 * steps * many},
        evaluate={"every": f"{many} rounds"},
    )
    loaded = load(scenario)
    outcome, plain = run(loaded), Plain(scenario, loaded, "it", 0, data_of(loaded))
    by_hand = ByHand(plain, compress, labels, steps)
    losses = [by_hand.round(plain.ids(1, t), t) for t in range(many)]
    assert plain.furthest(dict(outcome.weights)) <= 1e-10
    assert metrics(outcome)["train_loss"].iloc[1] == pytest.approx(sum(losses) / many, abs=1e-10)
    assert metrics(outcome)["test_loss"].iloc[-1] == pytest.approx(plain.test_loss(), abs=1e-10)  # uncompressed
    assert many < LEARNING or losses[-1] < losses[0] - 0.01


features = pytest.mark.parametrize("features", [{}, ACTIVE], ids=["labels alone", "active server"])
"""What the server holds."""


@pytest.mark.sampled(2)
@every_pair(
    aggregate=["mean", "concat", "max", "learned_mean"],
    labels=["shared", "private"],
    features={"labels alone": {}, "active server": ACTIVE},
)
def test_uncompressed_it_is_synchronous_training(labels: str, aggregate: str, features: dict[str, Any]) -> None:
    """But for rounding: ĥ + (h − ĥ) is h within a few units of the last place."""
    protocols = {"wait": {"kind": "synchronous"}, "it": {"kind": "ef_vfl", "labels": labels}}
    scenario = tiny(protocols, timing=RANDOM_TIMING, models__aggregate=aggregate, models__client=MLP, **features)
    one, other = (run(scenario, name, execution=EAGER) for name in protocols)
    assert apart(one, other) <= 1e-12


@pytest.mark.sampled(1)
@features
def test_uncompressed_with_shared_labels_it_is_c_vfl(features: dict[str, Any]) -> None:
    protocols = {"c_vfl": {"kind": "c_vfl", "local_steps": 3}, "it": {"kind": "ef_vfl", "local_steps": 3}}
    scenario = tiny(protocols, timing=RANDOM_TIMING, models__client=MLP, **features)
    assert apart(*(run(scenario, name) for name in protocols)) <= 1e-12


@pytest.mark.slow
def test_it_learns_through_a_compressor_that_c_vfl_cannot_learn_through() -> None:
    """The surrogates approach the embeddings, and the same error is made in every round of C-VFL."""
    said = {"training__batch": "all", "models__aggregate": "concat", "stop": {"rounds": 120}}
    plain, direct, feedback = (
        metrics(run(load(raw({"it": protocol}, evaluate={"every": "120 rounds"}, **said))))["test_loss"].iloc[-1]
        for protocol in (
            {"kind": "synchronous"},
            {"kind": "c_vfl", "codec": TOP_K},
            {"kind": "ef_vfl", "codec": TOP_K},
        )
    )
    assert feedback < plain + 0.15 * (direct - plain)


@labels
def test_a_round_sends_differences_up_and_gradients_or_all_differences_down(labels: str) -> None:
    said = {"kind": "ef_vfl", "labels": labels}
    scenario = load(three_clients(said, codec=TOP_K, stop={"updates": 3}, training__batch=ROWS))
    found = events(run(scenario))
    found = found[(found["outcome"] == "done") & (found["round"] == 0)]
    sent = found[found["kind"].str.startswith("transfer.")]
    each, model = scenario.codec.payload_bytes((ROWS, 5), DOUBLE), 5 * 8 + 8 + 8 * 10 + 10
    assert each == 1 * ROWS * 8 + 8  # a number of five a row, and 20 places of 3 bits
    down = frame_bytes(("model", "1", "2", "3")) + scenario.codec.payload_bytes((model,), DOUBLE) + 3 * each
    back = ("transfer.gradient", frame_bytes(("",)) + each) if labels == "private" else ("transfer.shared_values", down)
    assert sorted(zip(sent["kind"], sent["bytes"], strict=True)) == [
        *[("transfer.difference", frame_bytes(("",)) + each)] * 3,
        *[back] * 3,
    ]


class Squared(nn.Module):
    """h = θ² x."""

    def __init__(self) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.ones(1, dtype=DOUBLE))

    def forward(self, x: Tensor) -> Tensor:
        return self.theta.square() * x


def submitted(operation: Operation[Any]) -> Any:
    ImmediateExecutor().submit(operation)
    if operation.commit is not None:
        operation.commit()
    return operation.result


def holding(number: float) -> Handle[Tensor]:
    handle: Handle[Tensor] = Handle((1, 1), DOUBLE)
    handle.set(torch.tensor([[number]], dtype=DOUBLE))
    return handle


def test_two_rounds_with_private_labels_by_hand() -> None:
    """One client: h = θ² x = 2 (θ = 1, x = 2); of 2 − 0 arrives 1.5. w = ½, y = 3: w 1.5 − y = −2.25, ∂ℓ/∂ĥ = −2.25.

    θ ← 1 + 0.1 · 2.25 · 2 θ x = 1.9, h = 7.22; the client sends 7.22 − 1.5 = 5.72, of which 5 arrives: ĥ = 6.5.
    The server, η = 0.05: ∂ℓ/∂w = 2 (−2.25) 1.5 = −6.75, w = 0.8375: 2 (0.8375 · 6.5 − 3) 0.8375 = 4.0932…
    """
    batch, labels = Batch(0, np.array([0])), {"train": torch.tensor([[3.0]], dtype=DOUBLE)}

    def top() -> nn.Module:
        made = nn.Linear(1, 1, bias=False, dtype=DOUBLE)
        made.weight.data.fill_(0.5)
        return made

    parts = ServerParts((1,), (1,), labels, top, Sgd(lr=0.05), SumAggregate(), REGRESSION, 1, DOUBLE)
    features = {"train": torch.full((1, 1), 2.0, dtype=DOUBLE)}
    server, client = SurrogateServer(parts), SurrogateClient(ClientParts(1, features, Squared, Sgd(lr=0.1), 1, 1))

    def exchanged(t: int, expected: float, arrives: float) -> float:
        difference = submitted(client.difference(batch))
        assert float(difference.value) == pytest.approx(expected)
        client.sent = Sent(t, batch, holding(arrives))
        message = Difference(batch, client.sent.value, round=t)
        message.sender = 1
        step, (embedding,) = submitted(server.surrogate_step([message]))
        return float(step.gradient_for(embedding).value)

    gradient = exchanged(0, 2.0, 1.5)
    assert gradient == pytest.approx(-2.25)
    submitted(client.client_step(batch, Gradient(value=holding(gradient))))
    assert float(client.model.theta.detach()) == pytest.approx(1.9)
    assert client.sent is None
    assert exchanged(1, 5.72, 5.0) == pytest.approx(2 * (0.8375 * 6.5 - 3) * 0.8375)
    assert float(server.kept["client-1"]) == pytest.approx(6.5)
    assert float(client.kept["client-1"]) == pytest.approx(1.5)  # the rest comes with the gradient


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"codec": {**TOP_K, "error_feedback": True}}, r"surrogates in place of error_feedback"),
        ({"timing": "crash"}, r"would miss differences(.|\n)*labels: private"),
    ],
)
def test_what_would_part_the_two_ends_is_refused(more: dict[str, Any], words: str, tmp_path: Path) -> None:
    if "timing" in more:
        failure = {"kind": "failure", "at": "1 s", "repair": "1 s", "interrupted": "lost"}
        more = {"timing": {**RANDOM_TIMING, "clients": [{"select": "all", "availability": failure}]}}
    with pytest.raises(VflsimError, match=words):
        vflsim.run(raw({"it": {"kind": "ef_vfl"}}, **more), out=tmp_path / "out")


def test_the_memory_of_the_surrogates_is_counted_and_described() -> None:
    from vflsim.scenario.resolve import setting

    scenario = load(raw({"s": {"kind": "ef_vfl"}, "p": {"kind": "ef_vfl", "labels": "private"}}))
    rows, width = data_of(scenario).rows, 4 * 6
    for name, copies in (("s", 5), ("p", 2)):
        protocol, made = scenario.protocols[name].protocol, setting(scenario, name, data_of(scenario))
        assert protocol.extra_bytes(made) == 8 * rows * width * copies
        assert "surrogates" in protocol.describe(made)
        assert ("labels" in protocol.describe(made)) is (name == "s")


QUANTISER = {"kind": "scalar_quantiser", "bits": 3}
EACH: dict[str, dict[str, Any]] = {
    "shared": {"kind": "ef_vfl", "codec": QUANTISER, "local_steps": 2},
    "private": {"kind": "ef_vfl", "labels": "private", "codec": QUANTISER},
    "plain": {"kind": "ef_vfl", "labels": "private", "local_steps": 2},
}


def crashing(protocol: dict[str, Any], interrupt: str) -> dict[str, Any]:
    """Client 2 is away for 10 ms out of 60: in embeddings, uploads and steps."""
    intervals = {"kind": "intervals", "down": [["3 ms", "13 ms"]], "period": "60 ms", "interrupted": interrupt}
    clients = [*RANDOM_TIMING["clients"], {"select": "2", "availability": intervals}]
    said = raw({"it": protocol}, stop={"rounds": 60}, evaluate={"every": "30 rounds"})
    return {**said, "timing": {**RANDOM_TIMING, "clients": clients}}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["private", "plain"])
def test_both_ends_have_the_same_surrogates_after_many_crashes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for the difference of the last round, which the server has and a client adds when it next computes."""
    made: list[Any] = []

    def recorded(*arguments: Any) -> Any:
        made.append(surrogate_learners(*arguments))
        return made[-1]

    monkeypatch.setattr(protocol_module, "surrogate_learners", recorded)
    monkeypatch.setattr(SurrogateServer, "let_go", lambda self: None)
    outcome = run(load(crashing(EACH[name], "lost")))
    lost = events(outcome, party="client-2")
    assert {"transfer.gradient", "transfer.difference"} & set(lost[lost["outcome"] == "lost"]["kind"])
    (learners,) = (each for each in made if each.server.staleness.step)  # others were traced
    for m, client in learners.clients.items():
        mine, sent = client.kept[f"client-{m}"], client.sent
        if sent is not None and sent.round == 59:
            mine[torch.tensor(sent.batch.ids)] += sent.value.value
        assert torch.equal(mine, learners.server.kept[f"client-{m}"])
        assert float(mine.abs().max()) > 0
