"""A protocol's own parties: two round trips, two models each, an active party with labels and features."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vflsim.errors import NonFiniteError, RunError
from vflsim.learning.batches import Batch
from vflsim.learning.execution.deferred_executor import DeferredExecutor
from vflsim.learning.execution.operations import Executor, Handle, ImmediateExecutor, Operation
from vflsim.learning.learners.graphs import backward
from vflsim.learning.learners.inputs import PartyParts
from vflsim.learning.learners.party import PartyLearner
from vflsim.learning.learners.staleness import Staleness
from vflsim.learning.models.build import seeded
from vflsim.learning.optimizers import Adam, Sgd
from vflsim.learning.tasks import task_of
from vflsim.streams import torch_seed

ROWS, TEST, COLUMNS, WIDTH, CLASSES, TAU, LR = 24, 6, {0: 3, 1: 5}, 4, 3, 2, 0.3
DOUBLE = torch.float64


@dataclass(eq=False)
class Parcel:
    sender: int
    batch: Batch | None
    value: Any


class Party(PartyLearner):
    """An embedding model and a prediction head."""

    def __init__(self, held: PartyParts) -> None:
        super().__init__(held)
        columns = self.features("train").shape[1]
        self.embedding = self.add_model("embedding", lambda: network(columns), Sgd(lr=LR))
        self.head = self.add_model("head", lambda: nn.Linear(WIDTH, CLASSES), Adam(lr=0.01), inputs=(WIDTH,))

    def embed_split(self) -> Operation[Handle[Tensor]]:
        result = self.promise(TEST, WIDTH)

        def run() -> None:
            result.set(self.embedding(self.features("test")))

        return self.operation("evaluate", run, result, rows=TEST)


class Passive(Party):
    """Embeds; predicts from its own embedding plus the active party's; learns from both gradients, and by itself."""

    def __init__(self, held: PartyParts) -> None:
        super().__init__(held)
        self.uploaded = self.add_graph("uploaded", self.embedding, self.embedding)
        self.predicted = self.add_graph("predicted", self._prediction, self.embedding, self.head)

    def embed(self, batch: Batch) -> Operation[Handle[Tensor]]:
        h = self.promise(len(batch), WIDTH)
        cost = lambda: self.embedding.forward_flops(len(batch))  # noqa: E731
        return self.operation("embed", lambda: h.set(self.uploaded.forward(batch)), h, cost=cost)

    def predict(self, batch: Batch, theirs: Parcel) -> Operation[Handle[Tensor]]:
        prediction = self.promise(len(batch), CLASSES)

        def run() -> None:
            prediction.set(self.predicted.forward(batch, theirs.value.value))

        return self.operation("predict", run, prediction, inputs=[theirs.value])

    def step(self, batch: Batch, by_h: Parcel, by_prediction: Parcel) -> Operation[None]:
        def run() -> None:
            backward(batch, (self.uploaded, by_h.value.value), (self.predicted, by_prediction.value.value))

        return self.operation("step", run, None, inputs=[by_h.value, by_prediction.value], counts="update")

    def local_steps(self, batch: Batch) -> Operation[None]:
        def run() -> None:
            for _ in range(TAU):
                h = self.embedding(self.x(batch))
                anchor = self.kept.get("anchor", torch.zeros_like(h[0]))
                self.descend((h - anchor).square().mean(), self.embedding)
                self.kept["anchor"] = 0.5 * anchor + 0.5 * h.detach().mean(0)

        cost = lambda: TAU * self.embedding.training_flops(len(batch))  # noqa: E731
        return self.operation("local_steps", run, None, rows=len(batch), cost=cost, counts="update")

    def _prediction(self, x: Tensor, theirs: Tensor) -> Tensor:
        return self.head(self.embedding(x) + theirs)


class Active(Party):
    """Holds labels and features: shares its embedding, takes both losses, returns both gradients."""

    def __init__(self, held: PartyParts) -> None:
        super().__init__(held)
        self.staleness = Staleness([1], ROWS)

    def embed(self, batch: Batch) -> Operation[Handle[Tensor]]:
        h = self.promise(len(batch), WIDTH)

        def run() -> None:
            with torch.no_grad():
                h.set(self.embedding(self.x(batch)))

        return self.operation("embed", run, h)

    def step(self, batch: Batch, embedded: Parcel, predicted: Parcel) -> Operation[dict[str, Handle[Any]]]:
        result = {"loss": Handle(), "h": self.promise(len(batch), WIDTH), "p": self.promise(len(batch), CLASSES)}

        def run() -> None:
            h, p = self.leaf(embedded.value), self.leaf(predicted.value)
            own = F.cross_entropy(self.head(self.embedding(self.x(batch)) + h), self.y(batch))
            result["loss"].set(self.descend(own + F.cross_entropy(p, self.y(batch)), self.embedding, self.head))
            result["h"].set(h.grad)
            result["p"].set(p.grad)

        return self.operation(
            "server_step", run, result, inputs=[embedded.value, predicted.value], counts="round",
            commit=lambda: self.staleness.complete([(batch, [1])], result["loss"]),
        )  # fmt: skip

    def evaluate(self, mine: Handle[Tensor], theirs: Parcel) -> Operation[Handle[dict[str, float]]]:
        result: Handle[dict[str, float]] = Handle()

        def run() -> None:
            result.set(self.scores(self.head(mine.value + theirs.value.value), "test"))

        return self.operation("evaluate", run, result, inputs=[mine, theirs.value], rows=TEST)


def network(columns: int) -> nn.Module:
    return nn.Sequential(nn.Linear(columns, WIDTH), nn.BatchNorm1d(WIDTH), nn.Tanh())


def drawn(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)


FEATURES = {p: {"train": drawn(p, ROWS, n), "test": drawn(9 + p, TEST, n)} for p, n in COLUMNS.items()}
LABELS = {"train": torch.arange(ROWS) % CLASSES, "test": torch.arange(TEST) % CLASSES}


class Pair:
    """The two parties; ``interrupt`` replaces them by new ones that continue from their states."""

    def __init__(self) -> None:
        common: dict[str, Any] = {"dtype": DOUBLE, "batch": 8, "seed": 5}
        task = task_of("multiclass")
        self.active = Active(PartyParts(party=0, features=FEATURES[0], labels=LABELS, task=task, **common))
        self.passive = Passive(PartyParts(party=1, features=FEATURES[1], **common))

    @property
    def both(self) -> tuple[Party, Party]:
        return self.active, self.passive

    def interrupt(self) -> None:
        states = [{name: tensor.clone() for name, tensor in learner.state().items()} for learner in self.both]
        other = Pair()
        for learner, state in zip(other.both, states, strict=True):
            learner.load(state)
        self.active, self.passive = other.active, other.passive


def batch(k: int) -> Batch:
    return Batch(k, np.random.default_rng(k).permutation(ROWS)[:8])


def a_round(pair: Pair, k: int) -> Iterator[Operation[Any]]:
    """The operations of a round, two trips, each made when the one before has been taken."""
    of = batch(k)
    yield (h := pair.passive.embed(of))
    yield (own := pair.active.embed(of))
    yield (prediction := pair.passive.predict(of, Parcel(0, of, own.result)))
    yield (step := pair.active.step(of, Parcel(1, of, h.result), Parcel(1, of, prediction.result)))
    yield pair.passive.step(of, Parcel(0, of, step.result["h"]), Parcel(0, of, step.result["p"]))
    yield pair.passive.local_steps(of)


def trained(executor: Executor, rounds: int = 4) -> tuple[Pair, dict[str, float]]:
    pair = Pair()
    for k in range(rounds):
        for operation in a_round(pair, k):
            executor.submit(operation)
    mine, theirs = pair.active.embed_split(), pair.passive.embed_split()
    scored = pair.active.evaluate(mine.result, Parcel(1, None, theirs.result))
    for last in (mine, theirs, scored):
        executor.submit(last)
    executor.flush()
    return pair, executor.force(scored.result)


def weights(learner: PartyLearner) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in learner.weights().items()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(tensor, other[name]) for name, tensor in one.items())


def test_two_round_trips_have_the_gradients_of_plain_autograd() -> None:
    pair, of = Pair(), batch(0)
    (f0, g0), (f1, g1) = [[deepcopy(model.module) for model in each.models.values()] for each in pair.both]
    x0, x1, y = FEATURES[0]["train"][of.ids], FEATURES[1]["train"][of.ids], LABELS["train"][of.ids]
    h0, h1 = f0(x0), f1(x1)
    loss = F.cross_entropy(g0(h0 + h1), y) + F.cross_entropy(g1(h1 + h0.detach()), y)
    loss.backward()
    before = [weights(learner) for learner in pair.both]
    for operation, _ in zip(a_round(pair, 0), range(5), strict=False):
        operation.run()
        if operation.commit is not None:
            facts, result = operation.commit(), operation.result
    assert result["loss"].value == pytest.approx(loss.item(), abs=1e-14)
    for learner, old, f, g in zip(pair.both, before, (f0, f1), (g0, g1), strict=True):
        now = learner.weights()
        assert now.keys() == old.keys()
        for name, parameter in f.named_parameters():
            expected = old[f"embedding.{name}"] - LR * parameter.grad
            assert torch.allclose(now[f"embedding.{name}"], expected, rtol=0, atol=1e-14)
        for name, parameter in g.named_parameters():
            slope = parameter.grad  # Adam's first step is lr · g / (|g| + ε)
            expected = old[f"head.{name}"] - 0.01 * slope / (slope.abs() + 1e-8)
            assert torch.allclose(now[f"head.{name}"], expected, rtol=0, atol=1e-9)
    assert (facts.used, list(facts.missing), facts.row_ages) == ([1], [], (0.0, 8, 0))
    assert facts.loss is result["loss"]


def test_local_steps_descend_a_partys_own_objective_and_remember_its_tensor() -> None:
    passive, of = Pair().passive, batch(3)
    plain, rows, anchor = deepcopy(passive.embedding.module), FEATURES[1]["train"][batch(3).ids], torch.zeros(WIDTH)
    for _ in range(TAU):
        plain.zero_grad()
        h = plain(rows)
        (h - anchor).square().mean().backward()
        anchor = 0.5 * anchor + 0.5 * h.detach().mean(0)
        with torch.no_grad():
            for parameter in plain.parameters():
                parameter -= LR * parameter.grad
    passive.local_steps(of).run()
    assert all(map(torch.allclose, plain.parameters(), passive.embedding.module.parameters()))
    assert torch.allclose(passive.kept["anchor"], anchor)


def test_deferred_operations_learn_what_immediate_ones_do_to_the_byte() -> None:
    (eager, scores), (deferred, others) = trained(ImmediateExecutor()), trained(DeferredExecutor())
    assert all(same(weights(one), weights(other)) for one, other in zip(eager.both, deferred.both, strict=True))
    assert scores == others
    assert scores.keys() == {"loss", "accuracy"}
    assert trained(ImmediateExecutor(), 40)[1]["loss"] < scores["loss"]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("stop", range(14))
def test_a_party_loaded_between_any_two_operations_continues_to_the_byte(stop: int) -> None:
    whole, resumed = Pair(), Pair()
    n = 0
    for k in range(3):
        for one, other in zip(a_round(whole, k), a_round(resumed, k), strict=True):
            one.run()
            other.run()
            if n == stop:
                resumed.interrupt()
            n += 1
    for one, other in zip(whole.both, resumed.both, strict=True):
        assert same(weights(one), weights(other))
        assert same(one.state(), other.state())


def test_operations_that_are_made_and_dropped_change_nothing() -> None:
    pair = Pair()
    for operation in a_round(pair, 0):
        operation.run()
    before = [{name: tensor.clone() for name, tensor in learner.state().items()} for learner in pair.both]
    ages = pair.active.staleness.client_ages().tolist()
    list(a_round(pair, 1))
    assert all(same(state, learner.state()) for state, learner in zip(before, pair.both, strict=True))
    assert pair.active.staleness.client_ages().tolist() == ages


def test_evaluation_leaves_training_as_it_is() -> None:
    one, other = Pair(), Pair()
    for k in range(2):
        for mine, theirs in zip(a_round(one, k), a_round(other, k), strict=True):
            mine.run()
            theirs.run()
        (scored := other.passive.embed_split()).run()
        assert not other.passive.embedding.module.training
        assert not scored.result.value.requires_grad
    assert all(same(mine.state(), theirs.state()) for mine, theirs in zip(one.both, other.both, strict=True))


def test_each_model_has_initial_weights_of_its_own_stream() -> None:
    pair = Pair()
    first = seeded(lambda: network(COLUMNS[1]), torch_seed(5, 1, "weights"), DOUBLE)
    assert torch.equal(pair.passive.model[0].weight, first[0].weight)
    heads = [pair.active.head.module.weight, pair.passive.head.module.weight]
    further = seeded(lambda: nn.Linear(WIDTH, CLASSES), torch_seed(5, 1, "weights/head"), DOUBLE)
    assert torch.equal(heads[1], further.weight)
    assert not torch.equal(*heads)


def test_costs_are_counted_on_the_models() -> None:
    pair, of = Pair(), batch(0)
    forward = 2 * 8 * COLUMNS[1] * WIDTH  # two operations a multiply-add
    assert pair.passive.embed(of).flops() == forward
    assert pair.passive.local_steps(of).flops() == TAU * 2 * forward  # the features need no gradient
    assert pair.passive.head.backward_flops(8) == 2 * (2 * 8 * WIDTH * CLASSES)  # of the weights, and of the embedding
    assert (pair.passive.head.parameters, pair.passive.embedding.parameters) == (WIDTH * CLASSES + CLASSES, 20 + 4 + 8)
    assert pair.passive.embed(of).nbytes == 8 * WIDTH * 8


def test_gradients_and_losses_that_are_not_finite_end_the_run() -> None:
    pair, of = Pair(), batch(0)
    bad: Handle[Tensor] = Handle((8, WIDTH), DOUBLE)
    bad.set(torch.full((8, WIDTH), torch.nan, dtype=DOUBLE))
    pair.passive.embed(of).run()
    pair.passive.predict(of, Parcel(0, of, bad)).run()
    with pytest.raises(NonFiniteError, match="gradient received is not finite"):
        pair.passive.step(of, Parcel(0, of, bad), Parcel(0, of, bad)).run()
    with pytest.raises(NonFiniteError, match="training loss became nan"):
        pair.active.step(of, Parcel(1, of, bad), Parcel(1, of, bad)).run()


def test_mistakes_of_an_operation_are_reported_with_a_remedy() -> None:
    pair, of = Pair(), batch(0)
    h = pair.passive.promise(8, WIDTH)
    with pytest.raises(RunError, match="did not set a value that it promised"):
        pair.passive.operation("lazy", lambda: None, h).run()
    with pytest.raises(RunError, match=r"promised a tensor of shape \(8, 4\), and its value has the shape \(2,\)"):
        pair.passive.operation("wrong", lambda: h.set(torch.zeros(2)), h).run()
    with pytest.raises(RunError, match="client-1 holds no labels"):
        pair.passive.y(of)
    with pytest.raises(RunError, match="'head'"):
        pair.passive.add_model("head", lambda: nn.Linear(1, 1), Sgd(lr=1))
    for operation, _ in zip(a_round(pair, 0), range(3), strict=False):
        operation.run()
    with pytest.raises(RunError, match="gradient came for batch 1, of which no forward pass is kept"):
        pair.passive.predicted.backward(batch(1), torch.zeros(8, CLASSES, dtype=DOUBLE))
