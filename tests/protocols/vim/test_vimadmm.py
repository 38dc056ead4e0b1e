"""VIMADMM (VIM Alg. 1): its updates, its messages, its local steps."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from plain_heads import MLP, MOMENTUM, Heads, heads, newton, trained
from plain_training import LEARNING
from tiny_worlds import EAGER, data_of, events, learners, metrics, run
from torch import Tensor, nn

from vflsim.codecs.frame import frame_bytes
from vflsim.learning.batches import Batch
from vflsim.learning.execution.operations import Handle, ImmediateExecutor, Operation
from vflsim.learning.learners.client import ClientParts
from vflsim.learning.learners.server import ServerParts
from vflsim.learning.models.aggregates import ConcatAggregate
from vflsim.learning.optimizers import Sgd
from vflsim.learning.tasks import REGRESSION
from vflsim.protocols.vim.admm import AdmmClient, AdmmServer, Duals
from vflsim.scenario import load
from vflsim.vocabulary.execution_options import USUAL, Execution

RHO, TAU = 0.7, 3
VIMADMM: dict[str, Any] = {"kind": "vimadmm", "rho": RHO, "local_steps": TAU}
DOUBLE = torch.float64


class Admm:
    """The equations, with λ of every row."""

    def __init__(self, plain: Heads, residual_heads: str = "new") -> None:
        self.residual_heads = residual_heads
        self.duals = torch.zeros(len(plain.y), 10, dtype=DOUBLE)

    def round(self, plain: Heads, ids: Tensor) -> float:
        """Eq. 6–10; each W_k by its own objective."""
        hs = {m: plain.embed(m, ids).detach() for m in plain.clients}
        old = {m: head.detach().clone() for m, head in plain.heads.items()}
        a = sum(hs[m] @ old[m] for m in plain.clients)
        z = newton(plain.y[ids], a, self.duals[ids], RHO)
        duals = self.duals[ids] = self.duals[ids] + RHO * (a - z)
        steps = []
        for k in plain.clients:
            others = sum(hs[i] @ old[i] for i in plain.clients if i != k)
            own = hs[k] @ plain.heads[k]
            objective = (duals * own).sum() + RHO / 2 * (others + own - z).square().sum()
            steps += torch.autograd.grad(objective / len(ids), plain.heads[k])
        plain.step_heads(steps)
        new = {m: head.detach() for m, head in plain.heads.items()}
        taken = new if self.residual_heads == "new" else old
        for k in plain.clients:
            residual = z - sum(hs[i] @ taken[i] for i in plain.clients if i != k)
            for _ in range(TAU):
                own = plain.embed(k, ids) @ new[k]
                objective = (duals * own).sum() + RHO / 2 * (residual - own).square().sum()
                plain.step(k, torch.autograd.grad(objective / len(ids), plain.weights[k]))
        return float(plain.cross_entropy(a, ids))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("execution", [USUAL, EAGER], ids=["batched", "eager"])
@pytest.mark.parametrize("residual_heads", ["new", "old"])
def test_many_rounds_are_those_of_the_equations(many: int, execution: Execution, residual_heads: str) -> None:
    said = heads(
        {**VIMADMM, "residual_heads": residual_heads},
        stop={"updates": 3 * TAU * many},
        evaluate={"every": f"{many} rounds"},
    )
    outcome, plain = run(load(said), execution=execution), Heads(said)
    losses = trained(plain, many, Admm(plain, residual_heads).round)
    table = metrics(outcome)
    assert table["train_loss"].iloc[1] == pytest.approx(sum(losses) / many, abs=1e-10)
    assert table["updates"].iloc[-1] == 3 * TAU * many
    assert plain.apart(dict(outcome.weights)) <= 1e-10
    assert many < LEARNING or losses[-1] < losses[0] / 2


def submitted(operation: Operation[Any]) -> Any:
    ImmediateExecutor().submit(operation)
    return operation.result


def test_one_round_by_hand() -> None:
    """h = (2, 1), W = (½, −1), y = 3, λ = 1, ρ = 2: a = 0, 2 (z − 3) − 1 + 2 z = 0 gives z = 7/4, and λ becomes −5/2.
    ∇W = (λ + ρ (a − z)) h = −6 h, and with η = 0.05 W becomes (1.1, −0.7). s = (z + 0.7, z − 2.2).
    Client 1 has h = θ x, θ = 2, x = 1: ∇θ = (λ + ρ (2.2 − 2.45)) 1.1 = −3.3, and with η = 0.1 θ becomes 2.33.
    """
    batch = Batch(0, np.array([0]))

    def layer(*weights: float) -> nn.Module:
        made = nn.Linear(len(weights), 1, bias=False, dtype=DOUBLE)
        made.weight.data = torch.tensor([weights], dtype=DOUBLE)
        return made

    labels = {"train": torch.tensor([[3.0]], dtype=DOUBLE)}
    parts = ServerParts(
        (1, 2), (1, 1), labels, lambda: layer(0.5, -1.0), Sgd(lr=0.05), ConcatAggregate(), REGRESSION, 1, DOUBLE
    )
    server = AdmmServer(parts, outputs=1, rho=2.0)
    server.kept |= {"duals": torch.ones(1, 1, dtype=DOUBLE), "z": torch.zeros(1, 1, dtype=DOUBLE)}
    features = {"train": torch.ones(1, 1, dtype=DOUBLE)}
    client = AdmmClient(ClientParts(1, features, lambda: layer(2.0), Sgd(lr=0.1), 1, 1), outputs=1, rho=2.0)
    other: Handle[Tensor] = Handle((1, 1), DOUBLE)
    other.set(torch.ones(1, 1, dtype=DOUBLE))
    messages = [
        SimpleNamespace(sender=2, batch=batch, value=other),
        SimpleNamespace(sender=1, batch=batch, value=submitted(client.embed(batch))),
    ]
    step = submitted(server.server_step(messages))
    mine = {name: float(handle.value) for name, handle in step.variables_for(1).items()}
    assert mine == pytest.approx({"duals": -2.5, "residuals": 2.45, "head": 1.1})
    assert float(step.variables_for(2)["residuals"].value) == pytest.approx(-0.45)
    assert server.model.weight.tolist() == [pytest.approx([1.1, -0.7])]
    assert float(server.kept["z"]) == pytest.approx(1.75)
    assert float(server.kept["duals"]) == pytest.approx(-2.5)
    assert step.loss.value == pytest.approx(9)
    submitted(client.client_step(batch, step.variables_for(1)))
    assert float(client.model.weight.detach()) == pytest.approx(2.33)


def test_primal_and_dual_residuals_shrink(monkeypatch: pytest.MonkeyPatch) -> None:
    """‖Σ h^k W_k − z‖ and ρ ‖z(t+1) − z(t)‖, on full batches."""
    update, primal, dual = Duals.update, [], []

    def watched(self: Duals, batch: Batch, a: Tensor) -> tuple[Tensor, Tensor]:
        before = self._server.kept["z"].clone() if "z" in self._server.kept else torch.zeros_like(a)
        z, duals = update(self, batch, a)
        primal.append(float((a - z).norm()))
        dual.append(RHO * float((self._server.kept["z"] - before).norm()))
        return z, duals

    monkeypatch.setattr(Duals, "update", watched)
    run(load(heads(VIMADMM, stop={"rounds": 120}, training__batch="all", evaluate={"every": "120 rounds"})))
    assert sum(primal[-10:]) < 0.1 * sum(primal[:10])
    assert sum(dual[-10:]) < 0.1 * sum(dual[:10])


def test_the_bytes_of_a_round() -> None:
    """b d_f up and (2b + d_f) d_c down for each client, in one message each; float64, ten classes."""
    rows, width = 20, MLP["embedding"]
    found = events(run(load(heads(VIMADMM, stop={"updates": 3 * TAU}, training__batch=rows))))
    found = found[(found["outcome"] == "done") & (found["round"] == 0)]
    up, down = (found[found["kind"] == f"transfer.{kind}"]["bytes"] for kind in ("embedding", "admm_variables"))
    assert list(up) == [frame_bytes(("",)) + 8 * rows * width] * 3
    assert list(down) == [frame_bytes(("duals", "residuals", "head")) + 8 * (2 * rows + width) * 10] * 3


def test_every_local_step_takes_the_clients_compute_time_and_is_an_update() -> None:
    """Embed 2 s, upload 1 s, server 1 s, three steps of 2 s."""
    timing = {"server": {"compute": "1 s"}, "clients": {"select": "all", "compute": "2 s", "upload_delay": "1 s"}}
    outcome = run(load(heads(VIMADMM, timing=timing, stop={"rounds": 3}, evaluate={"every": "1 rounds"})))
    steps = events(outcome, "compute.client_step", "client-1")
    assert steps[["start_s", "end_s"]].to_numpy().tolist()[:4] == [[4, 6], [6, 8], [8, 10], [14, 16]]
    assert metrics(outcome)[["time_s", "updates"]].to_numpy().tolist() == [[0, 0], [4, 0], [14, 9], [24, 18]]


def test_flops_are_those_of_the_products() -> None:
    batch = Batch(0, np.arange(20))
    for residual_heads, products in (("old", 2), ("new", 3)):  # predict, ∇W, and predict again for the residuals
        scenario = load(heads({**VIMADMM, "residual_heads": residual_heads}))
        server, clients = learners(scenario, "it", 0, data_of(scenario, "it"))
        messages = [SimpleNamespace(sender=m, batch=batch, value=Handle((20, 5), DOUBLE)) for m in clients]
        operation = server.server_step(messages)
        assert operation.flops() == products * 2 * 20 * 15 * 10
    variables = operation.result.variables_for(1)
    columns = clients[1].features("train").shape[1:].numel()
    layers = [columns * 7, 7 * 5]
    expected = 20 * (2 * sum(layers) + 2 * sum(layers) + 2 * layers[1] + 4 * 5 * 10)  # no gradient by the features
    assert clients[1].client_step(batch, variables).flops() == expected


def test_momentum_lasts_from_round_to_round() -> None:
    said = heads(VIMADMM, stop={"updates": 18})
    without = heads(VIMADMM, stop={"updates": 18}, training__client_optimizer={**MOMENTUM, "momentum": 0.0})
    one, other = run(load(said)), run(load(without))
    assert not torch.allclose(one.weights["client-1.1.weight"], other.weights["client-1.1.weight"], atol=1e-4)
