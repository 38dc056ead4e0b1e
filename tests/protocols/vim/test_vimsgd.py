"""VIMSGD (VIM Alg. 2): its updates, its messages and its rounds."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from plain_heads import MLP, Heads, heads, trained
from tiny_worlds import EAGER, apart, events, metrics, run
from torch import Tensor, nn

from vflsim.learning.batches import Batch
from vflsim.learning.execution.operations import Handle, ImmediateExecutor
from vflsim.learning.learners.server import ServerParts
from vflsim.learning.models.aggregates import ConcatAggregate
from vflsim.learning.optimizers import Sgd
from vflsim.learning.tasks import REGRESSION
from vflsim.protocols.vim.admm import HeadsFirstServer
from vflsim.scenario import load
from vflsim.vocabulary.execution_options import USUAL, Execution

VIMSGD = {"kind": "vimsgd"}


def vimsgd(plain: Heads, ids: Tensor) -> float:
    """Eq. 12–16."""
    hs = [plain.embed(m, ids) for m in plain.clients]
    loss = plain.cross_entropy(plain.logits([h.detach() for h in hs]), ids)
    plain.step_heads(torch.autograd.grad(loss, [plain.heads[m] for m in plain.clients]))
    after = plain.cross_entropy(plain.logits(hs), ids)
    for m in plain.clients:
        plain.step(m, torch.autograd.grad(after, plain.weights[m], retain_graph=True))
    return float(loss.detach())


@pytest.mark.parametrize("execution", [USUAL, EAGER], ids=["batched", "eager"])
def test_many_rounds_are_those_of_the_equations(many: int, execution: Execution) -> None:
    said = heads(VIMSGD, stop={"updates": 3 * many}, evaluate={"every": f"{many} rounds"})
    outcome, plain = run(load(said), execution=execution), Heads(said)
    losses = trained(plain, many, vimsgd)
    assert metrics(outcome)["train_loss"].iloc[1] == pytest.approx(sum(losses) / many, abs=1e-10)
    assert plain.apart(dict(outcome.weights)) <= 1e-10


def test_gradients_at_the_old_heads_are_those_of_synchronous_training() -> None:
    stop = {"rounds": 4}
    old, new, plain = (
        run(load(heads(entry, stop=stop)))
        for entry in ({**VIMSGD, "gradient_heads": "old"}, VIMSGD, {"kind": "synchronous"})
    )
    assert metrics(old)["train_loss"].iloc[-1] == metrics(plain)["train_loss"].iloc[-1]
    assert metrics(new)["train_loss"].iloc[-1] != metrics(plain)["train_loss"].iloc[-1]


def test_one_step_by_hand() -> None:
    """h = (2, 1), W = (½, −1), y = 3: the loss is 9, and ∇W = −6 h. With η = 0.05 W becomes (1.1, −0.7), which predicts
    1.5; ∇h = 2 (1.5 − 3) W."""

    def build() -> nn.Module:
        layer = nn.Linear(2, 1, bias=False, dtype=torch.float64)
        layer.weight.data = torch.tensor([[0.5, -1.0]], dtype=torch.float64)
        return layer

    labels = {"train": torch.tensor([[3.0]], dtype=torch.float64)}
    server = HeadsFirstServer(
        ServerParts(
            (1, 2), (1, 1), labels, build, Sgd(lr=0.05), ConcatAggregate(), REGRESSION, batch=1, dtype=torch.float64
        )
    )
    batch = Batch(0, torch.tensor([0]).numpy())
    messages = []
    for client, h in ((2, 1.0), (1, 2.0)):  # in order of arrival
        value: Handle[Tensor] = Handle((1, 1), torch.float64)
        value.set(torch.tensor([[h]], dtype=torch.float64))
        messages.append(SimpleNamespace(sender=client, batch=batch, value=value))
    operation = server.server_step(messages)
    ImmediateExecutor().submit(operation)
    step = operation.result
    assert step.loss.value == pytest.approx(9)
    assert server.model.weight.tolist() == [pytest.approx([1.1, -0.7])]
    assert [float(step.gradient_for(message).value) for message in messages] == pytest.approx([2.1, -3.3])
    assert operation.flops() == 4 * 2 * 2  # predict, ∇W, predict, ∇h: two multiply-adds each


def test_synchronous_training_takes_the_gradients_at_the_old_heads() -> None:
    both = {"old": {"kind": "synchronous"}, "new": VIMSGD}
    scenario = load({**heads(VIMSGD, stop={"rounds": 1}), "protocols": both})
    old, new = run(scenario, "old"), run(scenario, "new")
    assert torch.allclose(old.weights["server.weight"], new.weights["server.weight"], atol=1e-12)
    longer = load({**heads(VIMSGD, stop={"updates": 3}), "protocols": both})
    assert apart(run(longer, "old"), run(longer, "new")) > 1e-4


def test_a_round_sends_embeddings_up_and_gradients_down() -> None:
    scenario = load(heads(VIMSGD, stop={"updates": 3}, training__batch=20))
    found = events(run(scenario))
    header = found[found["kind"] == "transfer.embedding"]["bytes"].iloc[0] - 20 * MLP["embedding"] * 8
    for kind in ("transfer.embedding", "transfer.gradient"):
        sizes = found[(found["kind"] == kind) & (found["outcome"] == "done")]["bytes"]
        assert set(sizes[:3]) == {header + 20 * MLP["embedding"] * 8}
    assert header < 100
