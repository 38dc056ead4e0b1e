"""The server alone: gradients against plain autograd, groups, table and staleness by hand."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vflsim.errors import NonFiniteError
from vflsim.learning.batches import Batch
from vflsim.learning.execution.operations import Handle
from vflsim.learning.learners.server import ServerLearner, ServerParts, ServerStep
from vflsim.learning.models.aggregates import ConcatAggregate, MaxAggregate, MeanAggregate, SumAggregate
from vflsim.learning.models.build import seeded
from vflsim.learning.optimizers import Sgd
from vflsim.learning.tasks import task_of

ROWS, WIDTH, CLASSES, LR = 10, 4, 3, 0.5
CLIENTS = (1, 2, 4)
RANDOM = torch.Generator().manual_seed(11)
LABELS = {
    "train": torch.randint(0, CLASSES, (ROWS,), generator=RANDOM),
    "validation": torch.zeros(0, dtype=torch.int64),
    "test": torch.randint(0, CLASSES, (5,), generator=RANDOM),
}


@dataclass
class Arrival:
    sender: int
    batch: Batch | None
    value: Any = field(default=None)


def batch(*ids: int, index: int = 0, origin: int = -1) -> Batch:
    return Batch(index, np.array(ids, dtype=np.int64), origin)


def arrival(sender: int, of: Batch | None, values: Tensor | None = None, rows: int | None = None) -> Arrival:
    if values is None:
        values = torch.randn(rows or len(of.ids), WIDTH, generator=RANDOM, dtype=torch.float64)
    handle: Handle[Tensor] = Handle(tuple(values.shape), values.dtype)
    handle.set(values)
    return Arrival(sender, of, handle)


def server(aggregate: Any = None, table: bool = True, hidden: int = 5) -> ServerLearner:
    aggregate = aggregate or MeanAggregate()
    inputs = aggregate.width([WIDTH] * len(CLIENTS))

    def build() -> nn.Module:
        return nn.Sequential(nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, CLASSES))

    return ServerLearner(
        ServerParts(
            clients=CLIENTS,
            widths=(WIDTH,) * len(CLIENTS),
            labels=LABELS,
            build=partial(seeded, build, 3, torch.float64),
            optimizer=Sgd(lr=LR),
            aggregate=aggregate,
            task=task_of("multiclass"),
            batch=4,
            dtype=torch.float64,
            table=table,
        )
    )


def step(learner: ServerLearner, fresh: Sequence[Arrival], answers: Sequence[Arrival] = ()) -> tuple[ServerStep, Any]:
    operation = learner.server_step(fresh, answers)
    operation.run()
    return operation.result, operation.commit()


def weights(learner: ServerLearner) -> list[Tensor]:
    return [w.detach().clone().requires_grad_() for w in learner.model.parameters()]


def loss_of(w: list[Tensor], joint: Tensor, ids: Sequence[int]) -> Tensor:
    logits = torch.tanh(joint @ w[0].T + w[1]) @ w[2].T + w[3]
    return F.cross_entropy(logits, LABELS["train"][list(ids)])


def test_one_group_gives_every_client_its_gradient_and_steps_once() -> None:
    learner, of = server(), batch(2, 7, 5)
    w = weights(learner)
    arrivals = [arrival(m, of) for m in CLIENTS]
    hs = [message.value.value.clone().requires_grad_() for message in arrivals]
    loss = loss_of(w, sum(hs) / 3, of.ids)
    expected = torch.autograd.grad(loss, [*w, *hs])
    result, facts = step(learner, arrivals)
    for message, h_slope in zip(arrivals, expected[4:], strict=True):
        assert torch.allclose(result.gradient_for(message).value, h_slope, atol=1e-15)
    for before, slope, after in zip(w, expected, learner.model.parameters(), strict=False):
        assert torch.allclose(after, before - LR * slope, atol=1e-15)
    assert result.loss.value == pytest.approx(float(loss.detach()), abs=1e-15)
    assert (facts.used, list(facts.missing), facts.row_ages) == ([1, 2, 4], [], (0.0, 9, 0))
    assert list(facts.client_ages) == [0, 0, 0]


def test_several_groups_step_on_the_mean_and_leave_each_clients_gradient_undivided() -> None:
    learner = server()
    w = weights(learner)
    one, other = batch(0, 1, 2, index=0), batch(2, 3, index=1)  # row 2 is in both
    first, second = arrival(1, one), arrival(4, other)
    h1, h4 = (message.value.value.clone().requires_grad_() for message in (first, second))
    zero = torch.zeros
    seen_by_one = zero(3, WIDTH, dtype=torch.float64)
    seen_by_one[2] = h4.detach()[0]  # what has arrived in this very step stands in the table
    seen_by_other = zero(2, WIDTH, dtype=torch.float64)
    seen_by_other[0] = h1.detach()[2]
    losses = [loss_of(w, (h1 + seen_by_one) / 3, one.ids), loss_of(w, (seen_by_other + h4) / 3, other.ids)]
    steps = torch.autograd.grad((losses[0] + losses[1]) / 2, w, retain_graph=True)
    result, facts = step(learner, [second, first])
    assert torch.allclose(result.gradient_for(first).value, torch.autograd.grad(losses[0], h1)[0], atol=1e-15)
    assert torch.allclose(result.gradient_for(second).value, torch.autograd.grad(losses[1], h4)[0], atol=1e-15)
    for before, slope, after in zip(w, steps, learner.model.parameters(), strict=True):
        assert torch.allclose(after, before - LR * slope, atol=1e-15)
    assert result.loss.value == pytest.approx(float((losses[0] + losses[1]).detach()) / 2, abs=1e-15)
    # ages: group `one`: client 1 0 0 0, client 2 1 1 1, client 4 1 1 0; group `other`: 0 1, 1 1, 0 0
    assert facts.row_ages == (3 + 2 + 1 + 2, 9 + 6, 1)
    assert (facts.used, facts.missing) == ([1, 4], [2])


def test_later_steps_read_the_latest_rows_of_the_others() -> None:
    learner = server(SumAggregate())
    early = arrival(2, batch(0, 1, 2, 3))
    step(learner, [early])
    newer = arrival(2, batch(1, 2, index=1))
    step(learner, [newer])
    w = weights(learner)
    mine = arrival(1, batch(0, 1, 9, index=5))
    h = mine.value.value.clone().requires_grad_()
    others = torch.zeros(3, WIDTH, dtype=torch.float64)
    others[0], others[1] = early.value.value[0], newer.value.value[0]
    result, _ = step(learner, [mine])
    expected = torch.autograd.grad(loss_of(w, h + others, mine.batch.ids), h)[0]
    assert torch.allclose(result.gradient_for(mine).value, expected, atol=1e-15)


def test_answers_to_queries_are_in_the_table_but_get_no_gradient() -> None:
    learner = server(ConcatAggregate())
    w = weights(learner)
    of = batch(4, 6)
    mine, answer = arrival(1, of), arrival(2, of)
    h = mine.value.value.clone().requires_grad_()
    joint = torch.cat([h, answer.value.value, torch.zeros(2, WIDTH, dtype=torch.float64)], 1)
    result, facts = step(learner, [mine], [answer])
    expected = torch.autograd.grad(loss_of(w, joint, of.ids), h)[0]
    assert torch.allclose(result.gradient_for(mine).value, expected, atol=1e-15)
    with pytest.raises(KeyError):
        result.gradient_for(answer)
    assert (facts.used, list(facts.client_ages)) == ([1], [0, 0, 1])


@pytest.mark.parametrize(
    "aggregate", [SumAggregate(), MeanAggregate(), ConcatAggregate(), MaxAggregate()], ids=lambda each: each.kind
)
def test_a_fresh_embedding_counts_though_an_answer_for_another_batch_has_its_rows_too(aggregate: Any) -> None:
    learner = server(aggregate)
    w, mine_of, others_of = weights(learner), batch(0, 1), batch(1, 2, index=1)
    mine, other, answer = arrival(1, mine_of), arrival(2, others_of), arrival(1, others_of)
    h, nothing = mine.value.value.clone().requires_grad_(), torch.zeros(2, WIDTH, dtype=torch.float64)
    theirs = nothing.clone()
    theirs[1] = other.value.value[0]
    joint = aggregate.combine([h, theirs, nothing], [WIDTH] * 3)
    result, _ = step(learner, [mine, other], [answer])
    expected = torch.autograd.grad(loss_of(w, joint, mine_of.ids), h)[0]
    assert torch.allclose(result.gradient_for(mine).value, expected, atol=1e-15)


def test_without_a_table_the_others_are_missing() -> None:
    learner = server(MeanAggregate(), table=False)
    w = weights(learner)
    of = batch(4, 6)
    arrivals = [arrival(1, of), arrival(4, of)]
    hs = [message.value.value.clone().requires_grad_() for message in arrivals]
    result, facts = step(learner, arrivals)
    expected = torch.autograd.grad(loss_of(w, (hs[0] + hs[1]) / 2, of.ids), hs)
    for message, slope in zip(arrivals, expected, strict=True):
        assert torch.allclose(result.gradient_for(message).value, slope, atol=1e-15)
    assert facts.row_ages == (0.0, 4, 0)
    assert list(facts.client_ages) == [0, 1, 0]
    assert list(facts.missing) == [2]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_the_order_of_arrival_changes_no_bit(order: tuple[int, ...]) -> None:
    of = batch(0, 3, 8)
    values = [torch.randn(3, WIDTH, generator=torch.Generator().manual_seed(m), dtype=torch.float64) for m in range(3)]
    found = []
    for each in ((0, 1, 2), order):
        learner = server(SumAggregate())
        arrivals = {j: arrival(CLIENTS[j], of, values[j]) for j in each}
        result, _ = step(learner, list(arrivals.values()))
        found.append([*weights(learner), *(result.gradient_for(arrivals[j]).value for j in range(3))])
    assert all(map(torch.equal, *found))


def test_a_client_that_the_maximum_never_chose_gets_zeros() -> None:
    learner, of = server(MaxAggregate()), batch(1, 2)
    high, low = torch.full((2, WIDTH), 5.0, dtype=torch.float64), torch.full((2, WIDTH), -5.0, dtype=torch.float64)
    chosen, beaten = arrival(1, of, high), arrival(2, of, low)
    result, _ = step(learner, [chosen, beaten])
    assert torch.equal(result.gradient_for(beaten).value, torch.zeros(2, WIDTH, dtype=torch.float64))
    assert result.gradient_for(chosen).value.abs().sum() > 0


def test_a_filled_table_replaces_the_zeros() -> None:
    learner = server(SumAggregate())
    fills = [arrival(m, None, rows=ROWS) for m in CLIENTS]
    learner.fill(fills).run()
    w = weights(learner)
    mine = arrival(2, batch(7, 0))
    h = mine.value.value.clone().requires_grad_()
    result, _ = step(learner, [mine])
    joint = fills[0].value.value[[7, 0]] + h + fills[2].value.value[[7, 0]]
    expected = torch.autograd.grad(loss_of(w, joint, (7, 0)), h)[0]
    assert torch.allclose(result.gradient_for(mine).value, expected, atol=1e-15)


def test_staleness_moves_on_with_every_completed_step() -> None:
    learner = server()
    assert learner.staleness.step == 0
    step(learner, [arrival(1, batch(0))])
    _, facts = step(learner, [arrival(2, batch(1, index=1))])
    assert learner.staleness.step == 2
    assert list(facts.client_ages) == [1, 0, 2]
    assert facts.row_ages == (2 + 0 + 2, 3, 2)


def test_who_is_too_old_is_told_before_the_step_with_its_arrivals_counted() -> None:
    learner = server()
    of, own = batch(0, 1), batch(3, index=4, origin=2)
    assert learner.too_old([arrival(1, of)], None, "client_age") == []
    assert learner.too_old([arrival(1, of)], 0, "client_age") == [(2, of), (4, of)]
    assert learner.too_old([arrival(1, of), arrival(2, own)], 0, "client_age") == [(4, of), (4, own)]
    assert learner.too_old([arrival(1, of), arrival(2, own)], 1, "row_age") == []


def test_a_loss_that_is_not_finite_is_an_error() -> None:
    learner, of = server(), batch(0)
    bad = arrival(1, of, torch.full((1, WIDTH), float("nan"), dtype=torch.float64))
    with pytest.raises(NonFiniteError, match=r"training loss became nan[\s\S]*smaller learning rate"):
        step(learner, [bad])


def test_evaluation_scores_all_rows_of_a_split_without_training() -> None:
    learner = server(MeanAggregate())
    before = weights(learner)
    answers = [arrival(m, None, rows=5) for m in reversed(CLIENTS)]
    operation = learner.evaluate("test", answers)
    assert operation.units == 5 / 4
    operation.run()
    joint = sum(message.value.value for message in answers) / 3
    w = before
    logits = torch.tanh(joint @ w[0].T + w[1]) @ w[2].T + w[3]
    scores = operation.result.value
    assert scores["loss"] == pytest.approx(float(F.cross_entropy(logits, LABELS["test"]).detach()), abs=1e-15)
    assert scores["accuracy"] == pytest.approx(float((logits.argmax(1) == LABELS["test"]).double().mean()))
    assert all(map(torch.equal, before, learner.model.parameters()))
    assert not learner.model.training


def test_a_step_costs_the_models_flops_for_the_rows_of_all_groups() -> None:
    learner = server()
    one = learner.server_step([arrival(1, batch(0, 1, 2))])
    two = learner.server_step([arrival(1, batch(0, 1, 2)), arrival(2, batch(3, 4, index=1))])
    layers = WIDTH * 5 + 5 * CLASSES
    assert one.flops() == 3 * (2 * 3 * layers)  # forward, gradients of the weights, gradients passed on
    assert two.flops() == 3 * (2 * 5 * layers)
    assert learner.evaluate("test", []).flops() == 2 * 5 * layers
    assert one.nbytes == 3 * WIDTH * 8
