"""FDML and VIMADMM-J (VIM Alg. 3): whole models at the clients."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from plain_heads import MLP, Heads, heads, newton, trained
from plain_training import LEARNING
from tiny_worlds import EAGER, data_of, events, learners, metrics, run
from torch import Tensor

from vflsim.codecs.frame import frame_bytes
from vflsim.learning.batches import Batch
from vflsim.learning.execution.operations import Handle, ImmediateExecutor
from vflsim.scenario import load
from vflsim.simulation.run import Outcome
from vflsim.vocabulary.execution_options import USUAL, Execution

RHO, TAU = 0.7, 3
JOINT: dict[str, Any] = {"kind": "vimadmm_j", "rho": RHO, "local_steps": TAU}
DOUBLE = torch.float64


def furthest(plain: Heads, outcome: Outcome) -> float:
    """The largest difference of weights; a run's clients have heads of their own."""
    found = dict(outcome.weights)
    differences = [
        float((found.pop(f"client-{m}.head.weight") - plain.heads[m].detach().T).abs().max()) for m in plain.clients
    ]
    return max(*differences, plain.furthest({name.replace(".embedding", ""): tensor for name, tensor in found.items()}))


class Joint:
    """Eq. 17–21, with λ of every row."""

    def __init__(self, plain: Heads) -> None:
        self.duals = torch.zeros(len(plain.y), 10, dtype=DOUBLE)

    def round(self, plain: Heads, ids: Tensor) -> float:
        os = {m: (plain.embed(m, ids) @ plain.heads[m]).detach() for m in plain.clients}
        total = sum(os.values())
        z = newton(plain.y[ids], total, self.duals[ids], RHO)
        duals = self.duals[ids] = self.duals[ids] + RHO * (total - z)
        for k in plain.clients:
            residual = z - sum(os[i] for i in plain.clients if i != k)

            def objective(k: int = k, residual: Tensor = residual) -> Tensor:
                own = plain.embed(k, ids) @ plain.heads[k]
                return ((duals * own).sum() + RHO / 2 * (residual - own).square().sum()) / len(ids)

            for _ in range(TAU):
                gradients = torch.autograd.grad(objective(), plain.heads[k])
                with torch.no_grad():
                    plain.head_rules[k].step([plain.heads[k]], gradients)
                plain.step(k, torch.autograd.grad(objective(), plain.weights[k]))
        return float(plain.cross_entropy(total, ids))


def fdml(plain: Heads, ids: Tensor, share: float = 1.0) -> float:
    """The gradient of the loss of the combined logits, at the old weights of everybody."""
    logits = share * plain.logits([plain.embed(m, ids) for m in plain.clients])
    loss = plain.cross_entropy(logits, ids)
    gradients = {
        m: torch.autograd.grad(loss, [plain.heads[m], *plain.weights[m]], retain_graph=True) for m in plain.clients
    }
    plain.step_heads([gradients[m][0] for m in plain.clients])
    for m in plain.clients:
        plain.step(m, gradients[m][1:])
    return float(loss.detach())


@pytest.mark.sampled(1)
@pytest.mark.parametrize("execution", [USUAL, EAGER], ids=["batched", "eager"])
def test_many_rounds_of_vimadmm_j_are_those_of_the_equations(many: int, execution: Execution) -> None:
    said = heads(JOINT, stop={"updates": 3 * TAU * many}, evaluate={"every": f"{many} rounds"})
    outcome, plain = run(load(said), execution=execution), Heads(said)
    losses = trained(plain, many, Joint(plain).round)
    assert metrics(outcome)["train_loss"].iloc[1] == pytest.approx(sum(losses) / many, abs=1e-10)
    assert metrics(outcome)["updates"].iloc[-1] == 3 * TAU * many
    assert furthest(plain, outcome) <= 1e-10
    assert many < LEARNING or losses[-1] < losses[0] / 2


@pytest.mark.sampled(2)
@pytest.mark.parametrize("execution", [USUAL, EAGER], ids=["batched", "eager"])
@pytest.mark.parametrize(("combine", "share"), [("sum", 1.0), ("mean", 1 / 3)])
def test_many_rounds_of_fdml_are_those_of_one_graph(
    many: int, combine: str, share: float, execution: Execution
) -> None:
    said = heads({"kind": "fdml", "combine": combine}, stop={"updates": 3 * many}, evaluate={"every": f"{many} rounds"})
    outcome, plain = run(load(said), execution=execution), Heads(said)
    losses = trained(plain, many, lambda plain, ids: fdml(plain, ids, share))
    assert metrics(outcome)["train_loss"].iloc[1] == pytest.approx(sum(losses) / many, abs=1e-10)
    assert furthest(plain, outcome) <= 1e-10


def test_the_sum_of_logits_is_what_synchronous_training_with_heads_predicts() -> None:
    """Both take all gradients at the old weights; only who holds the heads differs, and so when they step."""
    both = {"server": {"kind": "synchronous"}, "clients": {"kind": "fdml"}}
    scenario = load({**heads({}, stop={"updates": 60}), "protocols": both})
    one, other = (metrics(run(scenario, name)) for name in both)
    assert one["test_loss"].iloc[-1] == pytest.approx(other["test_loss"].iloc[-1], abs=1e-10)


def logits(value: float, sender: int, batch: Batch) -> SimpleNamespace:
    handle: Handle[Tensor] = Handle((1, 1), DOUBLE)
    handle.set(torch.full((1, 1), value, dtype=DOUBLE))
    return SimpleNamespace(sender=sender, batch=batch, value=handle)


@pytest.mark.parametrize(("combine", "share"), [("sum", 1.0), ("mean", 0.5)])
def test_fdml_by_hand(combine: str, share: float) -> None:
    """Of a binary task with logits that add up to 0: σ(0) − y, times the share of a client in the prediction."""
    said = heads({"kind": "fdml", "combine": combine}, data={"name": "breast_cancer", "train_rows": 60},
                 partition={"clients": 2, "by": "columns"})  # fmt: skip
    scenario = load(said)
    server, _ = learners(scenario, "it", 0, data_of(scenario))
    row = int(server.labels("train").argmax())
    messages = [logits(o, m, Batch(0, np.array([row]))) for m, o in ((2, -1.0), (1, 1.0))]
    operation = server.server_step(messages)
    ImmediateExecutor().submit(operation)
    assert float(operation.result.loss.value) == pytest.approx(np.log(2))
    assert [float(operation.result.gradient_for(each).value) for each in messages] == pytest.approx([-0.5 * share] * 2)


def test_a_round_of_vimadmm_j_by_hand() -> None:
    """Binary, o = (2, −1), y = 1, λ = −5/2, ρ = 2: σ(z) − 1 + 5/2 + 2 (z − 1) = 0 at z = 0; λ = −1/2, s = (1, −2).

    Then W_1 ← W_1 − η ((λ + ρ (o − s)) h + β W_1), with η = 0.1 and β = 0.005.
    """
    said = heads({**JOINT, "rho": 2}, data={"name": "breast_cancer", "train_rows": 60},
                 partition={"clients": 2, "by": "columns"})  # fmt: skip
    scenario = load(said)
    server, clients = learners(scenario, "it", 0, data_of(scenario))
    row = int(server.labels("train").argmax())
    batch = Batch(0, np.array([row]))
    server.kept |= {name: torch.full((60, 1), start, dtype=DOUBLE) for name, start in (("duals", -2.5), ("z", 0.0))}
    messages = [logits(o, m, batch) for m, o in ((2, -1.0), (1, 2.0))]
    operation = server.server_step(messages)
    ImmediateExecutor().submit(operation)
    mine, other = ({name: float(t.value) for name, t in operation.result.variables_for(m).items()} for m in (1, 2))
    assert mine == pytest.approx({"duals": -0.5, "residuals": 1.0}, abs=1e-12)
    assert other == pytest.approx({"duals": -0.5, "residuals": -2.0}, abs=1e-12)
    assert server.kept["duals"][[row, row - 1], 0].tolist() == pytest.approx([-0.5, -2.5])
    client = clients[1]
    before = client.head.module.weight.detach().clone()
    h = client.embedding(client.x(batch)).detach()
    ImmediateExecutor().submit(client.client_step(batch, operation.result.variables_for(1)))
    slope = -0.5 + 2 * (float(h @ before.T) - 1.0)
    assert torch.allclose(client.head.module.weight.detach(), before - 0.1 * (slope * h + 0.005 * before), atol=1e-12)


@pytest.mark.parametrize(
    ("said", "down"), [(JOINT, ("admm_variables", ("duals", "residuals"))), ({"kind": "fdml"}, ("gradient", ("",)))]
)
def test_the_bytes_of_a_round(said: dict[str, Any], down: tuple[str, tuple[str, ...]]) -> None:
    """b d_c up; 2 b d_c down with ADMM, and b d_c with gradients; float64, ten classes."""
    rows, (kind, names) = 20, down
    found = events(run(load(heads(said, stop={"updates": 3 * said.get("local_steps", 1)}, training__batch=rows))))
    found = found[(found["outcome"] == "done") & (found["round"] == 0)]
    assert list(found[found["kind"] == "transfer.logits"]["bytes"]) == [frame_bytes(("",)) + 8 * rows * 10] * 3
    assert list(found[found["kind"] == f"transfer.{kind}"]["bytes"]) == (
        [frame_bytes(names) + 8 * len(names) * rows * 10] * 3
    )


def test_flops_are_those_of_the_products() -> None:
    batch, (embedding, outputs) = Batch(0, np.arange(20)), (MLP["embedding"], 10)
    for said in (JOINT, {"kind": "fdml"}):
        scenario = load(heads(said))
        _, clients = learners(scenario, "it", 0, data_of(scenario, "it"))
        layers = [clients[1].features("train").shape[1:].numel() * 7, 7 * embedding]
        head = embedding * outputs
        assert clients[1].embed(batch).flops() == 2 * 20 * (sum(layers) + head)
        backward = sum(layers) + layers[1]  # no gradient by the features
        message = {"duals": Handle(), "residuals": Handle()}
        if said is JOINT:
            step = clients[1].client_step(batch, message)
            assert step.flops() == 2 * 20 * (sum(layers) + backward + 4 * head)  # twice W_k; ∇W_k; ∇h
        else:
            step = clients[1].client_step(batch, SimpleNamespace(value=Handle()))
            assert step.flops() == 2 * 20 * (backward + 2 * head)
